"""What if: other equations for some arrays, and the question that each of them answers.

A switch is an edit of equations. What no equation computes, a param, gets other numbers by its
equation, from those on record.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checking.tracing.equations import parse, resolved
from mha_numpy.show.page.equation import equation_tree

Switch: TypeAlias = tuple[str, str, str, str, dict[str, str]]  # see switches_of
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

    def change(name: str, equation: str) -> dict[str, Any]:
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
    ]


def _cut_first(sizes: Mapping[str, int]) -> dict[str, str]:
    """Keep the blocks where a head meets its own part of x; {} if x has no parts."""
    if sizes["H"] == 1 or any(sizes[D] % sizes[H] for _, D, _, H, _ in PROJECTIONS):
        return {}
    equations = {}
    for letter, D, _, H, d in PROJECTIONS:
        blocks = f"w_{letter}.reshape({H}, {D} // {H}, {H}, {d})"
        is_own = f"np.arange({H})[:, None, None, None] == np.arange({H})[:, None]"
        equations[f"w_{letter}"] = f"({blocks} * ({is_own})).reshape({D}, {H} * {d})"
    return equations


def _without_transpose(last: Mapping[str, Step]) -> dict[str, str]:
    """Reshape where the head axis should move, forward and backward."""
    equations = {}
    for letter, _, T, H, d in PROJECTIONS:
        heads = _heads_name(letter, last)
        equations[heads] = f"{letter}_by_token.reshape(B, {H}, {T}, {d})"
        if f"d_{heads}" in last:
            equations[f"d_{letter}_by_token"] = f"d_{heads}.reshape(B, {T}, {H}, {d})"
    return equations


def _head_by_head(last: Mapping[str, Step]) -> dict[str, str]:
    """Multiply by each head's own columns."""
    equations = {}
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
