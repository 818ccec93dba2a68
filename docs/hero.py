"""What the first page shows: where both heads of the example look, and why, from the core."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.core.attention import attention_stages
from mha_numpy.dtypes import Array
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.example import FEATURES, MEANING, SENTENCE, TOKENS, example_setting
from mha_numpy.teach.exercises import EXERCISES, find_exercise, judge

FISH = TOKENS.index("fish")
NARROW, WIDE, CAPITAL, OTHER = 0.32, 0.85, 0.68, 0.53  # widths of letters, in em
ROW = 46  # px: the height of a word on a phone
ROUGHLY_ALL = 0.995  # is shown as 100%
ALMOST_NONE = 0.005  # is not shown
NAMED = 0.1  # from this share on a word is named
ROOM = {"wide": 240, "tall": 60}  # for arcs beside the words: 1/100 em, and px


class Head(NamedTuple):
    """Where a head of one word looks."""

    asks: str
    shares: list[float]  # T
    named: list[tuple[str, str]]  # the words with large shares, and those in percent
    only_itself: bool


class Row(NamedTuple):
    """What a word offers, and how that fits what another one asks for."""

    word: str
    key: list[float]
    terms: str
    score: str


class View(NamedTuple):
    """What the page shows of one word."""

    asker: int
    heads: list[Head]
    query: list[float]
    rows: list[Row]


def hero() -> dict[str, Any]:
    """Return the example's words, where they are, and a view of each, with two kinds of fish."""
    words = [{"word": token, "stop": shown.removeprefix(token), "width": _width(shown)}
             for token, shown in zip(TOKENS, SENTENCE.split(), strict=True)]  # fmt: skip
    views = {is_alive: _views(is_alive) for is_alive in (False, True)}
    ends = np.cumsum([word["width"] for word in words])
    return {
        "words": words,
        "width": round(float(ends[-1]), 2),
        "wide": _arcs(
            [100 * (end - word["width"] / 2) for end, word in zip(ends, words, strict=True)]
        ),
        "tall": _arcs([ROW * (place + 0.5) for place in range(len(words))], is_tall=True),
        "height": ROW * len(words),
        "room": ROOM,
        "columns": MEANING.matched[0],
        "names": MEANING.heads,
        "asker": MEANING.asker,
        "views": views,
        "most": max(max(row.key) for view in views[False] for row in view.rows),
        "percent": percent,
        "number": number,
    }


def verdict() -> dict[str, Any]:
    """Return what a check says about a softmax over the wrong axis."""

    def wrong_softmax(scores: Array, mask: Array | None = None) -> Array:
        shown = scores if mask is None else np.where(mask, scores, -np.inf)
        powers = np.exp(shown - shown.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True)

    said = judge(find_exercise("softmax"), lambda: wrong_softmax)
    stages = [stage for stage in said.stages if stage.name in ("shape", "finite", "values")]
    return {"stages": stages, "cause": said.summary, "exercises": len(EXERCISES)}


def code() -> list[tuple[str, str]]:
    """Return two steps forward, each with a line of its way back, as a trace has them."""
    equations = {step.name: step.equation for step in walk().trace}
    return [tuple(f"{name} = {equations[name]}" for name in pair)
            for pair in (("scores", "d_q"), ("heads", "d_v"))]  # fmt: skip


def percent(share: float) -> str:
    """Return a share as it is shown; nothing for next to none."""
    if share < ALMOST_NONE:
        return ""
    return "100%" if share > ROUGHLY_ALL else f"{100 * share:.0f}%"


def number(value: float) -> str:
    """Return a number as it is shown."""
    return f"{value:.3g}".replace("-", "\N{MINUS SIGN}")


def _views(is_alive: bool) -> list[View]:
    setting = example_setting()
    x = setting.inputs["x_q"]
    x[0, FISH, FEATURES.index("alive")] = is_alive
    setting.layer(x)
    cache = setting.layer.forward_cache.attention
    q, k, weights = cache.inputs.q[0], cache.inputs.k[0], setting.layer.weights[0]
    scores = attention_stages(cache).scores[0]
    scale = {0.5: "½"}[cache.inputs.scale]
    views = []
    for i in range(len(TOKENS)):
        heads = [_head(weights[h, i], i, MEANING.asks[h][i]) for h in range(len(MEANING.heads))]
        best = np.argsort(-weights[0, i], kind="stable")[:2]
        rows = [Row(TOKENS[j], k[0, j].tolist(), _terms(scale, q[0, i], k[0, j]),
                    number(scores[0, i, j])) for j in best]  # fmt: skip
        views.append(View(i, heads, q[0, i].tolist(), rows))
    return views


def _head(shares: Array, asker: int, asks: str) -> Head:
    best = [j for j in np.argsort(-shares, kind="stable")[:2] if shares[j] > NAMED]
    named = [(TOKENS[j], percent(shares[j])) for j in best]
    return Head(asks, shares.tolist(), named, only_itself=best == [asker])


def _terms(scale: str, query: Array, key: Array) -> str:
    """Return how a score is computed, without products with 0."""
    both = [(a, b) for a, b in zip(query, key, strict=True) if a and b]
    pairs = [f"{number(a)}\N{MIDDLE DOT}{number(b)}" for a, b in both]
    return f"{scale} ({' + '.join(pairs) or 0}) ="


def _width(word: str) -> float:
    """Return about how wide a word is in em, with the room around it: columns need no measuring."""
    kinds = {"filtrI.,'": NARROW, "mw": WIDE}
    letters = [next((width for kind, width in kinds.items() if letter in kind),
                    CAPITAL if letter.isupper() else OTHER) for letter in word]  # fmt: skip
    return round(sum(letters) + 0.7, 2)


def _arcs(places: list[float], is_tall: bool = False) -> list[list[list[str]]]:
    """Return the path of an arc for each head, asking word, and word that is looked at.

    Head 0 is above the words or at their right, head 1 below them or at their left.
    """
    room, slope, loop = (ROOM["tall"], 0.25, 8) if is_tall else (ROOM["wide"], 0.4, 18)

    def path(head: int, start: float, end: float) -> str:
        far = abs(start - end)
        if not far:
            start, end = start - loop, end + loop
        away = min(room, 0.3 * room + slope * far) * 4 / 3  # a curve stays within 3/4 of this
        is_first = head == 0
        here = room if is_first != is_tall else 0
        there = here - away if here else away
        points = [(start, here), (start, there), (end, there), (end, here)]
        at = [f"{y:.0f} {x:.0f}" if is_tall else f"{x:.0f} {y:.0f}" for x, y in points]
        return f"M{at[0]}C{' '.join(at[1:])}"

    return [[[path(head, start, end) for end in places] for start in places]
            for head in range(len(MEANING.heads))]  # fmt: skip
