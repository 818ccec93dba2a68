"""The cases: small problems of attention that reach every option, and what core computes."""

import itertools
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.conformance.words import USUAL
from mha_numpy.core import attention_backward, attention_forward, rope_backward, rope_forward
from mha_numpy.dtypes import Array

VERSION = 1  # of the contents: another name, number or word is another version
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
        """Draw a mask; each query sees the first key, so no row is blind."""
        mask: Array = self._shares(shape) < 0.6
        mask[..., 0] = True
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
    inputs = {name: array.astype(np.float64) for name, array in case.inputs.items()}
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


PAIR = {"B": 2, "H": 2, "T_q": 3, "T_k": 4}  # two sequences
CELLS = ("B", "H", "T_q", "T_k")


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the shapes that broadcast to all cells and have an axis of keys, each with a name."""
    for rank in (1, 2, 3, 4):
        for kept in itertools.product((True, False), repeat=rank - 1):
            if rank == 4 or all(kept):
                axes = [*zip(CELLS[-rank:], (*kept, True), strict=True)]
                yield "-".join(a if k else "1" for a, k in axes), tuple(
                    PAIR[a] if k else 1 for a, k in axes
                )


def _broadcasting() -> Iterator[Case]:
    for axes, shape in _shapes():
        # a mask of (H, T_q, T_k) could also be one per sequence if B = H
        B = 1 if len(shape) == 3 else PAIR["B"]
        text = axes.replace("-", ", ")
        yield make_case(f"bias-{axes}", f"bias of shape ({text})", **{**PAIR, "B": B}, bias=shape)
        yield make_case(f"mask-{axes}", f"mask of shape ({text})", **{**PAIR, "B": B}, mask=shape)
    yield make_case("bias-B-1-T_q-1", "the same number for all keys of a query changes nothing",
        **PAIR, bias=(2, 1, 3, 1))  # fmt: skip


def _plain() -> Iterator[Case]:
    yield make_case("plain", "softmax(q k^T / sqrt(d_k)) v", T_k=3)
    yield make_case("unequal-lengths", "more keys than queries")
    yield make_case("value-width", "d_v != d_k, and the scale comes from d_k", d_k=4, d_v=3)
    yield make_case("scale", "a scale of one's own", scale=0.25)
    yield make_case("softcap", "softcap * tanh(scores / softcap)", softcap=0.75)
    yield make_case("order-scale-softcap-bias", "softcap comes after scale and before bias",
        scale=1.5, softcap=0.75, bias=(1, 2, 3, 4))  # fmt: skip
    yield make_case("order-softcap-mask", "the cap does not lift what is hidden",
        softcap=0.75, mask=(3, 4))  # fmt: skip
    yield make_case("large-scores", "scores of thousands: subtract the largest", scale=1.0, add=500)
    yield make_case("float32", "float32 in; the expected numbers are computed in float64",
        dtype="float32", bias=(1, 2, 3, 4))  # fmt: skip


def _hidden() -> Iterator[Case]:
    yield make_case("padding", "sequences of 4 and 2 keys", **PAIR,
        mask=(np.arange(4) < [[4], [2]])[:, None, None])  # fmt: skip
    bias = Draw("bias-inf").floats(3, 4)
    bias[[0, 1, 2], [3, 0, 1]] = -np.inf
    yield make_case("bias-inf", "a bias of -inf hides a cell", bias=bias)
    blind = np.ones((3, 4), bool)
    blind[1] = False
    yield make_case("blind-row", "query 1 sees nothing", mask=blind)
    yield make_case("blind-sequence", "all keys of sequence 1 are padding", **PAIR,
        mask=(np.arange(4) < [[3], [0]])[:, None, None])  # fmt: skip
    yield make_case("blind-bias", "a bias of -inf hides all keys from query 1",
        bias=np.where(blind, bias.clip(-2), -np.inf))  # fmt: skip
    yield make_case("blind-causal", "all keys come after query 0", is_causal=True, q_offset=-1)
    yield make_case("blind-window", "no key is in the window of query 2",
        window=(0, 0), T_k=2)  # fmt: skip
    last = np.array([True, True, True, False])
    yield make_case("hidden-nan", "NaN in a key and a value that no query sees", mask=last,
        last={"k": np.nan, "v": np.nan})  # fmt: skip
    yield make_case("hidden-inf", "infinity in a key and a value that no query sees", mask=last,
        last={"k": np.inf, "v": -np.inf})  # fmt: skip
    yield make_case("hidden-query", "NaN in a query that sees nothing, and in its bias",
        mask=np.array([[True] * 4, [True] * 4, [False] * 4]), bias=(1, 2, 3, 4),
        last={"q": np.nan, "bias": np.nan})  # fmt: skip
    yield make_case("empty-keys", "no keys at all: every row is blind", T_k=0)
    yield make_case("empty-queries", "no queries at all", T_q=0)


def _causal() -> Iterator[Case]:
    causal: dict[str, Any] = {"is_causal": True}
    yield make_case("causal", "query i sees key j <= i", T_q=3, T_k=3, **causal)
    yield make_case("causal-top-left", "more keys than queries", T_q=2, **causal)
    yield make_case("causal-top-left-tall", "more queries than keys", T_q=4, T_k=2, **causal)
    yield make_case("causal-bottom-right", "the last query sees all keys", T_q=2, q_offset=2,
        **causal)  # fmt: skip
    yield make_case("causal-bottom-right-tall", "the first queries see nothing", T_q=4, T_k=2,
        q_offset=-2, **causal)  # fmt: skip
    yield make_case("causal-q_offset", "one earlier key, as with a KV cache", T_q=2, q_offset=1,
        **causal)  # fmt: skip
    yield make_case("causal-per-sequence", "each sequence has its own offset", **PAIR,
        q_offset=np.array([0, 2]), **causal)  # fmt: skip
    yield make_case("window-both", "one key before and one after", T_q=4, window=(1, 1))
    yield make_case("window-left", "one key before, all after", T_q=4, window=(1, None))
    yield make_case("window-right", "all keys before, one after", T_q=4, window=(None, 1))
    yield make_case("window-causal", "one key before, none after", T_q=4, window=(1, 0))
    yield make_case("window-q_offset", "a window moves with the offset", T_q=2, window=(1, 0),
        q_offset=2)  # fmt: skip
    yield make_case("and-mask-causal", "mask and causality", T_q=4, mask=(4, 4), **causal)
    yield make_case("and-window-causal", "causality cuts a window", T_q=4, window=(1, 2), **causal)
    bias = np.where(np.eye(4, k=-1), -np.inf, 0.5)
    yield make_case("and-all", "mask, causality, window and bias", T_q=4, mask=(4, 4), bias=bias,
        window=(2, None), **causal)  # fmt: skip


def _heads() -> Iterator[Case]:
    yield make_case("grouped", "four query heads, two key/value heads", H=4, H_kv=2)
    yield make_case("grouped-mask-bias", "mask and bias belong to query heads", H=4, H_kv=2,
        mask=(1, 4, 1, 4), bias=(1, 4, 3, 4))  # fmt: skip
    yield make_case("multi-query", "one key/value head for all", H=3, H_kv=1)
    yield make_case("dropout", "weights times 0 or 1 / (1 - p), after softmax",
        dropout_mask=(1, 2, 3, 4))  # fmt: skip
    yield make_case("dropout-1-H-1-T_k", "the same keys dropped for all queries",
        dropout_mask=(1, 2, 1, 4))  # fmt: skip
    yield make_case("sink", "one more score per head", sink=(2,))
    yield make_case("sink-per-sequence", "one more score per sequence and head", **PAIR,
        sink=(2, 2))  # fmt: skip
    yield make_case("sink-blind-row", "where nothing is seen, the sink takes all weight",
        mask=np.array([[True] * 4, [False] * 4, [True] * 4]), sink=np.array([0.5, -np.inf]))  # fmt: skip
    yield make_case("head-gate", "each head's output times a number", head_gate=(2,))
    yield make_case("head-gate-per-sequence", "one number per sequence and head", **PAIR,
        head_gate=np.array([[0.5, 0.0], [-1.25, 2.0]]))  # fmt: skip
    for name, interleaved in (("halves", False), ("pairs", True)):
        yield make_case(f"rope-{name}", f"q and k turned in {name}, at positions 0, 1, ...", d_k=4,
            rope_interleaved=interleaved, rope_base=100.0)  # fmt: skip


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases.

    Examples
    --------
    >>> case = next(case for case in cases() if case.name == "causal-top-left")
    >>> case.conventions["causal_alignment"], case.inputs["q"].shape, case.inputs["k"].shape
    ('top-left', (1, 2, 2, 2), (1, 2, 4, 2))
    >>> solve(case)["out"].shape
    (1, 2, 2, 2)
    """
    return (*_plain(), *_broadcasting(), *_hidden(), *_causal(), *_heads())
