"""A case: a small problem of attention, drawn from its name, and what core computes of it."""

from random import Random
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.conformance.words import USUAL
from mha_numpy.core import attention_backward, attention_forward, rope_backward, rope_forward
from mha_numpy.dtypes import Array

TOLERANCES = {"float64": 1e-10, "float32": 1e-5}  # times the largest expected number of a case
INPUTS = ("q", "k", "v", "bias", "sink", "head_gate")  # these have gradients


class Case(NamedTuple):
    """A problem; `solve` computes what it expects."""

    name: str
    about: str
    conventions: dict[str, str]  # entries of WORDS
    inputs: dict[str, Array]  # by name, those of INPUTS that it has
    options: dict[str, Any]  # arguments without a gradient
    d_out: Array

    @property
    def dtype(self) -> str:
        """The dtype of the inputs."""
        return self.inputs["q"].dtype.name


class Draw:
    """Random numbers that depend only on the name of a case.

    Floats are multiples of 1/16 from -2 to 2, which every format of floats has exactly.
    """

    def __init__(self, name: str) -> None:
        self._random = Random(name)

    def floats(self, *shape: int) -> Array:
        """Draw an array of floats."""
        return np.floor(self._shares(shape) * 65) / 16 - 2

    def bools(self, *shape: int) -> Array:
        """Draw a mask; every query sees the first key, and the first one does not see the last."""
        mask: Array = self._shares(shape) < 0.6
        mask[..., 0] = True
        mask.flat[shape[-1] - 1] = False
        return mask

    def dropped(self, *shape: int) -> Array:
        """Draw 0 or 2: dropout with p = 1/2."""
        return 2.0 * (self._shares(shape) < 0.5)

    def _shares(self, shape: tuple[int, ...]) -> Array:
        count = int(np.prod(shape))
        return np.array([self._random.random() for _ in range(count)]).reshape(shape)


def make_case(
    name: str, about: str, *, B: int = 1, H: int = 2, H_kv: int = 0, T_q: int = 3, T_k: int = 4,
    d_k: int = 2, d_v: int = 0, dtype: str = "float64", add: float = 0.0,
    last: dict[str, float] | None = None, **options: Any,
) -> Case:  # fmt: skip
    """Draw a problem of these sizes; an option's array may be given by its shape, as a tuple.

    `add` is added to all keys. `last` has numbers for the last rows of arrays.
    """
    draw = Draw(name)
    H_kv, d_v = H_kv or H, d_v or d_k
    inputs = {
        "q": draw.floats(B, H, T_q, d_k),
        "k": draw.floats(B, H_kv, T_k, d_k) + add,
        "v": draw.floats(B, H_kv, T_k, d_v),
    }
    draws = {"mask": draw.bools, "dropout_mask": draw.dropped}
    draws |= dict.fromkeys(("bias", "sink", "head_gate"), draw.floats)
    for option, value in options.items():
        if option in draws and isinstance(value, tuple):
            options[option] = draws[option](*value)
    inputs |= {option: options.pop(option) for option in INPUTS if option in options}
    for array, number in (last or {}).items():
        inputs[array][..., -1, :] = number
    inputs = {array: value.astype(dtype) for array, value in inputs.items()}
    case = Case(name, about, {}, inputs, options, draw.floats(B, H, T_q, d_v).astype(dtype))
    return case._replace(conventions=_conventions(case))


def _conventions(case: Case) -> dict[str, str]:
    """Return the words of what a case needs."""
    inputs, options = case.inputs, case.options
    q, k, bias = inputs["q"], inputs["k"], inputs.get("bias")
    hides_by_bias = bias is not None and bool(np.isneginf(bias).any())
    hiding = [name for name in ("mask", "is_causal", "window") if name in options]
    needs = {
        "layout": True,
        "scale": "scale" not in options,
        "order": "softcap" in options or ("scale" in options and bias is not None),
        "mask": "mask" in options,
        "bias": bias is not None,
        "combination": len(hiding) + hides_by_bias > 1,
        "window": "window" in options,
        "blind_rows": bool(np.isneginf(solve(case)["lse"]).any()),
        "hidden_numbers": any(np.isnan(x).any() or np.isposinf(x).any() for x in inputs.values()),
        "grouping": 1 < k.shape[1] < q.shape[1],
        "weights": "dropout_mask" in options,
        "sink": "sink" in inputs,
        "head_gate": "head_gate" in inputs,
    }
    words = {name: USUAL[name] for name, is_needed in needs.items() if is_needed}
    if {"is_causal", "window"} & {*hiding} and (q.shape[2] != k.shape[2] or "q_offset" in options):
        words["causal_alignment"] = _alignment(options.get("q_offset", 0), own_offset(case))
    if "rope_interleaved" in options:
        words["rope"] = "pairs" if options["rope_interleaved"] else "halves"
    return words


def _alignment(q_offset: Any, bottom_right: int) -> str:
    if isinstance(q_offset, np.ndarray):
        return "q_offset"
    return {0: "top-left", bottom_right: "bottom-right"}.get(q_offset, "q_offset")


def own_offset(case: Case) -> int:
    """Return the `q_offset` that aligns a case at the bottom right."""
    return case.inputs["k"].shape[2] - case.inputs["q"].shape[2]


def solve(case: Case) -> dict[str, Array]:
    """Compute in float64 what a case expects: out, weights, lse and gradients, by name."""
    inputs: dict[str, Any] = {name: x.astype(np.float64) for name, x in case.inputs.items()}
    options = {name: x for name, x in case.options.items() if not name.startswith("rope_")}
    caches = {}
    if "rope_base" in case.options:
        turn = {name.removeprefix("rope_"): x for name, x in case.options.items()
                if name.startswith("rope_")}  # fmt: skip
        for name in ("q", "k"):
            inputs[name], caches[name] = rope_forward(inputs[name], **turn)
    out, cache = attention_forward(**inputs, **options, backend="numpy")
    grads = attention_backward(case.d_out.astype(np.float64), cache)._asdict()
    for name, turned in caches.items():
        grads[f"d_{name}"] = rope_backward(grads[f"d_{name}"], turned).d_x
    found = {"out": out, "weights": cache.weights, "lse": cache.lse, **grads}
    return {name: array + 0.0 for name, array in found.items() if array is not None}  # no -0.0
