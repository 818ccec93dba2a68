"""What would be if: other equations for some arrays, and the question that each of them answers.

A switch is an edit of equations. What no equation computes, a param, gets other numbers by its
equation, from those on record.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checking.tracing.equations import parse, resolved
from mha_numpy.show.page.equation import equation_tree

NEEDED = {f"{kind}_{letter}" for kind in "xw" for letter in "qkv"} | {"w_o", "scale", "weights"}


@dataclass(frozen=True)
class Switch:
    """Other equations, and why somebody would want them."""

    id: str
    label: str
    question: str
    says: str  # what to look at
    equations: dict[str, str]  # by the name of the array


def switches_of(trace: Trace, last: Mapping[str, Step], ids: Mapping[int, int]) -> list[Any]:
    """Return the switches that fit a trace, ready for JSON."""
    sizes = trace.sizes_before(trace.steps[-1])
    is_one_layer = last.keys() >= NEEDED and len({step.name for step in trace}) == len(trace)
    found = []
    for switch in _all_switches(last, sizes) if is_one_layer else []:
        changes = [
            {"array": ids[id(last[name])], "equation": equation,
             "tree": equation_tree(_with_sizes(equation, sizes), last, ids)}
            for name, equation in switch.equations.items()
        ]  # fmt: skip
        told = {name: getattr(switch, name) for name in ("id", "label", "question", "says")}
        found.append({**told, "changes": changes})
    return found


def _with_sizes(equation: str, sizes: Mapping[str, int]) -> ast.expr | None:
    tree = parse(equation)
    return None if tree is None else resolved(tree, sizes)


def _all_switches(last: Mapping[str, Step], sizes: Mapping[str, int]) -> list[Switch]:
    D, H, d_k = sizes["D"], sizes["H"], sizes["d_k"]
    found = [
        Switch(
            "no-transpose",
            "cut into heads without the transpose",
            "Why is it not enough to reshape [B, T, D] to [B, H, T, d_h]?",
            "Look at q: each head now holds all features of some tokens, where it should hold some "
            "features of all tokens.",
            _without_transpose(last),
        ),
        Switch(
            "head-by-head",
            "compute each head on its own",
            "Is one wide w_q the same as a list of small ones, one for each head?",
            "Look at q: each head multiplies x_q by its own block of columns of w_q, and every "
            "number is the same as before.",
            _head_by_head(last),
        ),
        Switch(
            "by-sqrt-D",
            "divide by sqrt(D)",
            "Why are scores divided by sqrt(d_k) and not by sqrt(D)?",
            f"Look at weights: the sums have {d_k} terms and not {D}, so that scores become too "
            "small, and each row comes closer to equal shares.",
            {"scale": f"1 / np.sqrt({D})"},
        ),
        Switch(
            "no-scale",
            "divide by nothing",
            "Why are scores divided at all?",
            "Look at weights: larger scores give each row to fewer keys; then look at d_scores, "
            "where little is left to learn from.",
            {"scale": "1"},
        ),
    ]
    cut = _cut_first(last, sizes)
    if cut and H > 1:
        found.insert(0, Switch(
            "cut-first",
            "cut x before the projection",
            "Why are heads cut after the projection, and not x before it?",
            "Look at w_q: a head that sees only its own part of x has no use for the other rows of "
            "its columns, so that they are 0; then look at what became of its weights.",
            cut,
        ))  # fmt: skip
    return found


def _cut_first(last: Mapping[str, Step], sizes: Mapping[str, int]) -> dict[str, str]:
    """Keep of each param the blocks where a head meets its own part of x; {} if x has no parts."""
    equations = {}
    for letter, D, H, d in (("q", "D", "H", "d_k"), ("k", "kdim", "H_kv", "d_k"),
                            ("v", "vdim", "H_kv", "d_v")):  # fmt: skip
        if sizes[D] % sizes[H]:
            return {}
        blocks = f"w_{letter}.reshape({H}, {D} // {H}, {H}, {d})"
        is_own = f"np.arange({H})[:, None, None, None] == np.arange({H})[:, None]"
        equations[f"w_{letter}"] = f"({blocks} * ({is_own})).reshape({D}, {H} * {d})"
    return equations


def _without_transpose(last: Mapping[str, Step]) -> dict[str, str]:
    """Reshape where the head axis should move, forward and backward."""
    equations = {}
    for letter, T, H, d in _projections():
        heads = _heads_name(letter, last)
        equations[heads] = f"{letter}_by_token.reshape(B, {H}, {T}, {d})"
        if f"d_{heads}" in last:
            equations[f"d_{letter}_by_token"] = f"d_{heads}.reshape(B, {T}, {H}, {d})"
    return equations


def _head_by_head(last: Mapping[str, Step]) -> dict[str, str]:
    """Multiply by each head's own columns."""
    equations = {}
    for (letter, _, H, d), D in zip(_projections(), ("D", "kdim", "vdim"), strict=True):
        columns = f"w_{letter}.reshape({D}, {H}, {d}).transpose(1, 0, 2)"
        product = f"x_{letter}[:, None] @ {columns}"
        if f"b_{letter}" in last:
            product += f" + b_{letter}.reshape({H}, 1, {d})"
        equations[_heads_name(letter, last)] = product
    return equations


def _projections() -> list[tuple[str, str, str, str]]:
    """Return letter, tokens, heads and width of each."""
    return [("q", "T_q", "H", "d_k"), ("k", "T_k", "H_kv", "d_k"), ("v", "T_k", "H_kv", "d_v")]


def _heads_name(letter: str, last: Mapping[str, Step]) -> str:
    """Return the name of a projection cut into heads, before any rotation."""
    return f"{letter}_unrotated" if f"{letter}_unrotated" in last else letter
