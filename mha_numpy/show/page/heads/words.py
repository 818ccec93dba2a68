"""What a head does on a text, in one or two sentences; never more than the numbers show."""

from collections.abc import Mapping

import numpy as np

PATTERNS = {  # where the weight lies: as a name, and within a sentence
    "previous": ("token before", "the token before"),
    "itself": ("token itself", "the token itself"),
    "next": ("token after", "the token after"),
    "first": ("first token", "the first token"),
    "delimiter": ("delimiters", "delimiters: [SEP] and . , ; : ! ?"),
    "duplicate": ("copies", "other copies of the same token"),
    "induction": ("after a copy", "what followed an earlier copy of the token"),
}
OTHERS = {
    "distance": ("mean distance (tokens)", "how far away it looks, in tokens"),
    "entropy": ("entropy (nats)", "how widely it spreads, in nats: 0 for one key, ln n for n keys"),
}
FLOW = "weight \N{MULTIPLICATION SIGN} norm"
MOST, MUCH = 0.5, 0.3  # of all weight
DIFFERS = 0.2  # from here on, a share by weight x norm is named beside that by weight


def say_head(
    scores: Mapping[str, float], flows: Mapping[str, float], places: Mapping[str, int], queries: int
) -> str:
    """Say what a head does on a text.

    By pattern, `scores` and `flows` are shares of weight and of weight x norm, and `places` is how
    many of the queries have a place where it would look. `scores` also has "distance" and
    "entropy".

    Examples
    --------
    >>> scores = {"previous": 0.9, "first": 0.02, "distance": 1.1, "entropy": 0.4}
    >>> flows = {"previous": 0.8, "first": 0.1}
    >>> say_head(scores, flows, {"previous": 8, "first": 8}, 9)
    'On this text, 90% of its weight is on the token before.'
    """
    usual = [name for name in PATTERNS if 2 * places.get(name, 0) >= queries]
    best = max(usual, key=lambda name: scores[name])
    keys, distance = np.exp(scores["entropy"]), scores["distance"]
    spread = f"spreads as if over {keys:.1f} equal keys, {distance:.1f} tokens away on average."
    if scores[best] < MUCH:
        told = f"On this text, its weight follows none of the patterns. It {spread}"
    else:
        told = f"On this text, {_percent(scores[best])} of its weight is on {_where(best)}"
        told += ", more than on any other pattern" * (scores[best] < MOST)
        if abs(flows[best] - scores[best]) >= DIFFERS:
            how = "but only" if flows[best] < scores[best] else "and"
            told += f", {how} {_percent(flows[best])} of {FLOW}"
        told += f". Its weight {spread}" if scores[best] < MOST else "."
    most = max(usual, key=lambda name: flows[name])
    if most != best and flows[most] >= MUCH:
        told += f" {_percent(flows[most])} of {FLOW} is on {_where(most)}."
    return told


def _where(pattern: str) -> str:
    """Return where a pattern looks, within a sentence."""
    return PATTERNS[pattern][1].split(":")[0]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
