"""What if: other equations for some arrays, and the question that each of them answers.

A switch is an edit of equations. What no equation computes, a param, gets other numbers by its
equation, from those on record.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checking.tracing.equations import parse, resolved
from mha_numpy.dtypes import Array
from mha_numpy.show.page.equation import equation_tree, numbers_of

# by name of an array; instead of an equation, columns on which a param is projected
Equations: TypeAlias = dict[str, str | Array]
Switch: TypeAlias = tuple[str, str, str, str, Equations]  # see switches_of
PROJECTIONS = [  # letter, width of x, tokens, heads, width of a head
    ("q", "D", "T_q", "H", "d_k"), ("k", "kdim", "T_k", "H_kv", "d_k"),
    ("v", "vdim", "T_k", "H_kv", "d_v"),
]  # fmt: skip
NEEDED = {f"{kind}_{letter}" for kind in "xw" for letter in "qkv"} | {"w_o", "scale", "weights"}


def switches_of(trace: Trace, last: Mapping[str, Step], ids: Mapping[int, int]) -> list[Any]:
    """Return the switches that fit a trace, ready for JSON."""
    if not last.keys() >= NEEDED or len({step.name for step in trace}) < len(trace):
        return []  # not one layer
    sizes = trace.sizes_before(trace.steps[-1])

    def change(name: str, equation: str | Array) -> dict[str, Any]:
        if not isinstance(equation, str):
            columns = ["given", list(equation.shape), numbers_of(equation)]
            shares = ["@", ["swapaxes", columns, -1, -2], ["array", ids[id(last[name])]]]
            return {"array": ids[id(last[name])], "equation": "", "tree": ["@", columns, shares]}
        tree = parse(equation)
        tree = None if tree is None else resolved(tree, sizes)
        place = ids[id(last[name])]
        return {"array": place, "equation": equation, "tree": equation_tree(tree, last, ids)}

    found = []
    for *told, equations in _all_switches(last, sizes):
        changes = [change(*each) for each in equations.items()]
        if changes:
            words = zip(("id", "label", "question", "says"), told, strict=True)
            found.append({**dict(words), "changes": changes})
    return found


def _all_switches(last: Mapping[str, Step], sizes: Mapping[str, int]) -> list[Switch]:
    D, d_k = sizes["D"], sizes["d_k"]
    return [
        (
            "cut-first",
            "each head saw only its own part of x",
            "Why split into heads after the projection, and not split x before it?",
            "Look at w_q: a head that sees only its own part of x does not use the other rows of "
            "its columns, so they are 0. Then look at its weights.",
            _cut_first(sizes),
        ),
        (
            "no-transpose",
            "heads took some tokens, not some features",
            "Why is it not enough to reshape [B, T, D] to [B, H, T, d_h]?",
            "Look at q: each head now has all features of some tokens, instead of some features of "
            "all tokens.",
            _without_transpose(last),
        ),
        (
            "head-by-head",
            "each head had its own small w_q",
            "Is one wide w_q the same as a list of small ones, one for each head?",
            "Yes. Look at q: each head multiplies x_q by its own block of columns of w_q, and "
            "every number is the same as before.",
            _head_by_head(last),
        ),
        (
            "by-sqrt-D",
            "scores were divided by sqrt(D)",
            "Why are scores divided by sqrt(d_k), and not by sqrt(D)?",
            f"Look at weights: the sums have {d_k} terms and not {D}, so the scores become too "
            "small, and each row moves towards equal shares.",
            {"scale": f"1 / np.sqrt({D})"},
        ),
        (
            "no-scale",
            "scores were not divided at all",
            "Why are scores divided at all?",
            "Look at weights: with larger scores each row goes to fewer keys. Then look at "
            "d_scores: gradients shrink where the weights are close to 0 and 1.",
            {"scale": "1"},
        ),
        *_of_today(last, sizes),
    ]


def _of_today(last: Mapping[str, Step], sizes: Mapping[str, int]) -> list[Switch]:
    """Return what newer models do to cache less, shared keys, a latent and a window; and a sink."""
    H_kv, T_k, per_head = sizes["H_kv"], sizes["T_k"], sizes["d_k"] + sizes["d_v"]
    rank = min(H_kv * per_head // 4, 8)

    def cached(numbers: int, tokens: int = T_k) -> str:
        before = 4 * H_kv * per_head * T_k
        return f"The KV cache, in float32: {4 * numbers * tokens} bytes instead of {before}."

    found: list[Switch] = [
        (
            "grouped" if heads > 1 else "multi-query",
            f"every {H_kv // heads} heads shared a key and a value" if heads > 1
            else "all heads shared one key and one value",
            "Why do newer models have fewer keys and values than queries?",
            "Look at k and v: the heads that share them have the same numbers, but their queries "
            f"still differ. {cached(heads * per_head)}",
            _shared(last, sizes, heads),
        )
        for heads in sorted({1, H_kv // 2} - {0}, reverse=True)
        if heads < H_kv and H_kv % heads == 0
    ]  # fmt: skip
    found += [
        (
            "latent",
            f"keys and values came from {rank} numbers per token",
            "Can a token keep one short vector, and all heads make their keys and values from it?",
            f"Look at w_k and w_v: side by side they now have rank {rank}, the best there is, so "
            f"{rank} numbers of a token say all that they need. {cached(rank)}",
            _from_a_latent(last, rank),
        ),
        (
            "window-2",
            "a query saw only itself and the token before",
            "What is lost if a model forgets all but the last tokens?",
            "Look at weights: whatever a row took from further away is gone, and the rest grew. "
            f"{cached(H_kv * per_head, tokens=min(2, T_k))}",
            _window(last),
        ),
        (
            "sink",
            "each row could leave some of its attention unspent",
            "Must a head spend all of its attention?",
            "Look at weights: a sink is one more score in each row, 0 here, without a value. Rows "
            "sum to less than 1, the least where no key fits well. The cache does not change.",
            _sink(last),
        ),
    ]
    return found


def _shared(last: Mapping[str, Step], sizes: Mapping[str, int], heads: int) -> Equations:
    """Give all heads of a group the mean of their params, which is how models are converted."""
    equations: Equations = {}
    for letter, _, _, H, d in PROJECTIONS[1:]:
        G = sizes[H] // heads
        for name in (f"w_{letter}", f"b_{letter}"):
            if name in last:
                rows = last[name].array.size // (sizes[H] * sizes[d])
                mean = f"({name}.reshape({rows}, {heads}, {G}, {d}).sum(axis=2) / {G})"
                shape = f"{rows}, {H} * {d}" if name.startswith("w") else f"{H} * {d}"
                equations[name] = f"{mean}.repeat({G}, axis=1).reshape({shape})"
    return equations


def _from_a_latent(last: Mapping[str, Step], rank: int) -> Equations:
    """Return w_k and w_v of a lower rank, nearest to theirs; {} if their inputs differ."""
    w_k, w_v = last["w_k"].array, last["w_v"].array
    if last["x_v"].equation != "x_k" or not 0 < rank < min(len(w_k), w_k.shape[1] + w_v.shape[1]):
        return {}
    down, *_ = np.linalg.svd(np.concatenate([w_k, w_v], axis=1), full_matrices=False)
    down = down[:, :rank].astype(np.float32)  # x @ down is the latent
    return {"w_k": down, "w_v": down}


def _window(last: Mapping[str, Step]) -> Equations:
    """Hide all keys but a query's own and the one before; {} where no mask is on record."""
    name = next((each for each in ("visible", "mask") if each in last), None)
    if name is None or last["x_k"].equation != "x_q" or "q_offset" in last:
        return {}
    near = "np.arange(T_k) >= np.arange(T_q)[:, None] - 1"
    return {name: f"({last[name].equation or name}) & ({near})"}


def _sink(last: Mapping[str, Step]) -> Equations:
    """Add e^0 to the sum of each row; {} where softmax is written in another way."""
    equation = last["weights"].equation
    powers, _, total = equation.partition(" / ")
    if total != f"{powers}.sum(axis=-1, keepdims=True)":
        return {}
    return {"weights": f"{powers} / (1 + {total})"}


def _cut_first(sizes: Mapping[str, int]) -> Equations:
    """Keep the blocks where a head meets its own part of x; {} if x has no parts."""
    if sizes["H"] == 1 or any(sizes[D] % sizes[H] for _, D, _, H, _ in PROJECTIONS):
        return {}
    equations: Equations = {}
    for letter, D, _, H, d in PROJECTIONS:
        blocks = f"w_{letter}.reshape({H}, {D} // {H}, {H}, {d})"
        is_own = f"np.arange({H})[:, None, None, None] == np.arange({H})[:, None]"
        equations[f"w_{letter}"] = f"({blocks} * ({is_own})).reshape({D}, {H} * {d})"
    return equations


def _without_transpose(last: Mapping[str, Step]) -> Equations:
    """Reshape where the head axis should move, forward and backward."""
    equations: Equations = {}
    for letter, _, T, H, d in PROJECTIONS:
        heads = _heads_name(letter, last)
        equations[heads] = f"{letter}_by_token.reshape(B, {H}, {T}, {d})"
        if f"d_{heads}" in last:
            equations[f"d_{letter}_by_token"] = f"d_{heads}.reshape(B, {T}, {H}, {d})"
    return equations


def _head_by_head(last: Mapping[str, Step]) -> Equations:
    """Multiply by each head's own columns."""
    equations: Equations = {}
    for letter, D, _, H, d in PROJECTIONS:
        columns = f"w_{letter}.reshape({D}, {H}, {d}).transpose(1, 0, 2)"
        product = f"x_{letter}[:, None] @ {columns}"
        if f"b_{letter}" in last:
            product += f" + b_{letter}.reshape({H}, 1, {d})"
        equations[_heads_name(letter, last)] = product
    return equations


def _heads_name(letter: str, last: Mapping[str, Step]) -> str:
    """Return the name of a projection cut into heads, before any rotation."""
    return f"{letter}_unrotated" if f"{letter}_unrotated" in last else letter
