"""The cases, which reach every option of attention."""

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from mha_numpy.conformance.case import Case, Draw, make_case

VERSION = 1  # of the contents: another name, number or word is another version
PAIR: dict[str, Any] = {"B": 2, "H": 2, "T_q": 3, "T_k": 4}  # two sequences
CELLS = ("B", "H", "T_q", "T_k")


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the shapes that broadcast to all cells and have an axis of keys, each with a name."""
    for rank in (1, 2, 3, 4):
        for kept in itertools.product((True, False), repeat=rank - 1):
            if rank == 4 or all(kept):
                axes = [*zip(CELLS[-rank:], (*kept, True), strict=True)]
                yield (
                    "-".join(a if k else "1" for a, k in axes),
                    tuple(PAIR[a] if k else 1 for a, k in axes),
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
        dtype="float32")  # fmt: skip


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
    last = np.array([[[[True, True, True, False]]]])
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
    yield make_case("grouped-mask-bias", "mask and bias belong to query heads", H=6, H_kv=2,
        mask=(1, 6, 1, 4), bias=(1, 6, 3, 4))  # fmt: skip
    yield make_case("multi-query", "one key/value head for all", H=3, H_kv=1)
    yield make_case("dropout", "weights times 0 or 1 / (1 - p), after softmax",
        dropout_mask=(1, 2, 3, 4))  # fmt: skip
    yield make_case("dropout-1-H-1-T_k", "the same keys dropped for all queries",
        dropout_mask=(1, 2, 1, 4))  # fmt: skip
    yield make_case("sink", "one more score per head", sink=(2,))
    yield make_case("sink-per-sequence", "one more score per sequence and head", **PAIR,
        sink=(2, 2))  # fmt: skip
    yield make_case("sink-blind-row", "where nothing is seen, the sink takes all weight",
        mask=np.array([[True] * 4, [False] * 4]), T_q=2, sink=np.array([0.5, -np.inf]))  # fmt: skip
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
    """
    return (*_plain(), *_broadcasting(), *_hidden(), *_causal(), *_heads())
