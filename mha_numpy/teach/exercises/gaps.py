"""gaps_of: what the mistakes that tests of an attention miss have in common.

Mistakes that show on all probes of the piece need not have anything in common. So one thing after
another that a test may forget is taken out of the probes, as long as a mistake still shows: what is
left is enough to see it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mha_numpy.teach.conventions import conventions_of, give_inputs, take_inputs
from mha_numpy.teach.diagnosis import find_task, make
from mha_numpy.teach.diagnosis.fingerprints import attempt, fits
from mha_numpy.teach.task import Inputs


def _with_small_scores(inputs: Inputs) -> Inputs:
    """Return inputs with no number above 1 in q and k."""
    return {**inputs, **{name: inputs[name] / np.abs(inputs[name]).max() for name in "qk"}}


def _sequences(inputs: Inputs) -> list[Inputs]:
    return [
        {n: x[[i]] if isinstance(x, np.ndarray) else x for n, x in inputs.items()}
        for i in range(len(inputs["q"]))
    ]


# what a test may forget, and what is left of inputs without it
WITHOUT: dict[str, Callable[[Inputs], list[Inputs]]] = {
    "a mask that hides keys": lambda i: [{**i, "mask": np.ones_like(i["mask"])}],
    "a query that sees nothing": lambda i: [
        {**i, "mask": i["mask"] | ~i["mask"].any(axis=-1, keepdims=True)}
    ],
    "a softcap": lambda i: [{**i, "softcap": None}],
    "large scores": lambda i: [_with_small_scores(i)],
    "more query heads than key/value heads": lambda i: [{**i, "q": i["q"][:, : i["k"].shape[1]]}],
    "more than one sequence": _sequences,
}


def gaps_of(piece: str, mistakes: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Group mistakes by what a test needs, beyond plain inputs, to see them.

    The piece is one that takes what `masked_attention` takes. What a group needs are keys of
    ``WITHOUT``, none for what shows on plain inputs; the group of the most mistakes comes first.

    Examples
    --------
    >>> gaps_of("masked_attention", ["scale missing", "softcap ignored", "softcap by clipping"])
    {('a softcap',): ['softcap ignored', 'softcap by clipping'], (): ['scale missing']}
    """
    conventions, right = conventions_of(piece), make(piece)
    probes = [take_inputs(piece, conventions, probe) for probe in find_task(piece).probes()]

    def shows(wrong: Callable[..., Any], usual: list[Inputs]) -> bool:
        """Return whether a function gives other arrays than the right one, or fails."""
        inputs = [give_inputs(piece, conventions, one) for one in usual]
        answers = [attempt(wrong, one) for one in inputs]
        expected = [right(**one) for one in inputs]
        return any(answer is None for answer in answers) or not fits(answers, expected)

    found: dict[tuple[str, ...], list[str]] = {}
    for name in mistakes:
        wrong, inputs, needs = make(piece, [name]), probes, []
        for thing, without in WITHOUT.items():
            left = [one for given in inputs for one in without(given)]
            if shows(wrong, left):
                inputs = left
            else:
                needs.append(thing)
        found.setdefault(tuple(needs), []).append(name)
    return dict(sorted(found.items(), key=lambda gap: -len(gap[1])))
