"""The arrays that a line of attention code may make, by name, under some settings."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.identifying.family import USUAL, Problem, evaluate
from mha_numpy.identifying.family.positions import (
    _angles,
    kind_of,
    pairs_of,
    turned_width,
)
from mha_numpy.identifying.family.stages import ORDER, first_stage
from mha_numpy.identifying.searching.search import CLOSE

MADE = {  # what each stage computes
    "take": "from_q from_k from_v", "project": "wide_q wide_k wide_v", "split": "q k v",
    "rotate": "turned_q turned_k turned_v", "group": "keys values", "match": "scores",
    "see": "visible", "normalise": "masked weights", "mix": "dropped heads",
    "finish": "merged out projected",
}  # fmt: skip
SCALABLE = ("wide_q", "q", "turned_q", "wide_k", "k", "turned_k", "keys")
Expected = dict[str, list[Array]]


def expected(problem: Problem, settings: Mapping[str, Any], setting: str) -> Expected:
    """Return what attention has from the stage on that reads a setting."""
    values = evaluate(problem, settings)
    if values is None:
        return {}
    stage = first_stage(setting)
    names = " ".join(MADE[each] for each in ORDER[ORDER.index(stage) :]).split()
    found = {n: [values[n]] for n in names if values.get(n) is not None and n != "visible"}
    if np.array_equal(values["masked"], values["scores"]) and stage != "match":
        found.pop("masked", None)  # nothing is masked yet
    if stage == "rotate":
        found |= _turns(problem, {**USUAL, **settings}, setting)
    if setting == "rotation":
        for name in "qk":
            found[f"turned_{name}"] += pairs_of(values[name], kind_of(settings[setting], name))
    if stage == "match":
        found |= _scores(problem, settings, values, setting)
    if "visible" in names:
        found |= _cells(problem, settings, values)
    if setting == "normaliser":
        block = problem.get("block") or settings.get("block", USUAL["block"])
        found |= _running(values, block, str(settings[setting]))
    return found


def _turns(problem: Problem, settings: Mapping[str, Any], setting: str) -> Expected:
    """Return the angles of a rotation, and their cos and sin, once for each pair or feature.

    Where their order is in question, only that of the settings counts.
    """
    sizes, base = problem.sizes, problem.get("base") or settings["base"]
    first = settings["first_position"] + (problem.get("offset") or 0)
    positions = problem.get("positions")
    places = first + np.arange(max(sizes.T, sizes.S)) if positions is None else positions
    width = turned_width(sizes.d, problem.get("rotary") or settings["turned"])
    angles = _angles(places, width, base, settings["frequencies"])
    both = [angles, np.concatenate([angles, angles], -1), np.repeat(angles, 2, -1)]
    if setting == "angles":
        is_in_halves = kind_of(settings["rotation"], "q") == "halves"
        both = both[1:2] if is_in_halves == (settings["angles"] == "of the pair") else both[2:]
    return {
        **({"positions": [places]} if setting == "first_position" else {}),
        "frequencies": [_angles(np.array([1]), width, base, settings["frequencies"])],
        "angles": both,
        "cos": [np.cos(each) for each in both],
        "sin": [np.sin(each) for each in both],
    }


def _scores(
    problem: Problem, settings: Mapping[str, Any], values: Mapping[str, Any], setting: str
) -> Expected:
    """Return queries or keys that are scaled already, and what else scores are made of.

    Code that takes the keys in blocks has only the scores of the first keys at first.
    """
    plain = {**settings, "alibi": "", "softcap": None}
    bare = evaluate(problem.but(bias=None, slopes=None, softcap=None), plain)
    if bare is None:
        return {}
    blocks = [values["scores"][..., :n] for n in range(values["scores"].shape[-1], 1, -1)]
    product_of = bare["turned_q"] @ bare["keys"].swapaxes(-1, -2)
    factor = float(np.median(bare["scores"] / product_of))
    if setting == "scale" and abs(factor - 1) > CLOSE["float64"]:
        scaled = {f"scaled {name}": [values[name] * factor] for name in SCALABLE}
        return {**scaled, "scores": blocks}
    if settings.get("product") == "k reshaped":
        keys = values["keys"]
        return {"keys": [keys.reshape(keys.swapaxes(-1, -2).shape)], "scores": blocks}
    if setting == "alibi":
        return {"bias": [values["scores"] - bare["scores"]]}
    if settings.get("bias") == "added before the scale":
        return {"scores before the scale": [values["scores"] / factor]}
    return {"scores": blocks}


def _cells(problem: Problem, settings: Mapping[str, Any], values: Mapping[str, Any]) -> Expected:
    """Return which cells all rules and masks show, and some of them; and the keys that are seen."""
    only_rules = problem.but(mask=None, lengths=None)
    views: list[dict[str, Any]] = [{}, {"causal": ""}, {"window": None}]
    made = [
        evaluate(each, {**settings, "hide": "-inf", **view})
        for each, view in product((problem, only_rules), views)
    ]
    rows = zip(values["keys"], values["visible"], strict=True)
    return {
        "visible": [each["visible"] for each in made if each is not None],
        "visible keys": [keys[:, row] for keys, cells in rows for row in cells[0]],
    }


def _running(values: Mapping[str, Any], block: int, kind: str) -> Expected:
    """Return the sums of a softmax that is computed by blocks of keys, after the second block."""
    scores = values["masked"][..., : 2 * block]
    right = np.exp(scores - scores.max(-1, keepdims=True))
    own = right.copy()
    own[..., :block] = np.exp(scores[..., :block] - scores[..., :block].max(-1, keepdims=True))
    of_sum, of_output = (own if f"{part} not" in kind else right for part in ("sum", "output"))
    return {
        "running sum": [of_sum.sum(-1)],
        "running output": [of_output @ values["values"][:, :, : 2 * block]],
    }
