"""Conventions: a different way of writing a function's inputs and results, in one sentence.

Under a convention a function computes the same from arrays that are written differently: a mask in
which True hides, or heads after the tokens. So a convention translates some inputs and results, and
back again. Everything known about the usual function then holds for the other one too: its right
answers, its mistakes, its laws and its slope.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.own import Example, Own

Inputs = dict[str, Any]
Rewrite = Callable[[Any, Inputs], Any]  # of one array or number, given all inputs


class Turn(NamedTuple):
    """How an array is written under a convention, and the way back."""

    there: Rewrite
    back: Rewrite


class Turns(NamedTuple):
    """The arrays that are written differently, by name: "params.w_o", or "" for a single result."""

    inputs: Mapping[str, Turn]
    results: Mapping[str, Turn] = {}


@dataclass(frozen=True, eq=False)
class Convention:
    """A convention that differs from the usual one, and the functions that it applies to."""

    name: str
    sentence: str  # to the student
    at: Mapping[str, Turns]  # by the name of a task
    false_here: frozenset[str] = field(default=frozenset())  # mistakes whose words would be false

    @property
    def ignored(self) -> str:
        """The name of the mistake of following the usual convention instead."""
        return f"not followed: {self.name}"


def give_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return the usual inputs as they are written under some conventions."""
    for convention in conventions:
        inputs = turned(inputs, convention.at[task].inputs, inputs, there=True)
    return inputs


def take_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return inputs as they are usually written."""
    for convention in reversed(conventions):
        inputs = turned(inputs, convention.at[task].inputs, inputs, there=False)
    return inputs


def give_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a usual result, of usual inputs, as it is written under some conventions."""
    for convention in conventions:
        result = turned(result, convention.at[task].results, inputs, there=True)
    return result


def take_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a result, of usual inputs, as it is usually written."""
    for convention in reversed(conventions):
        result = turned(result, convention.at[task].results, inputs, there=False)
    return result


def follow(
    task: str, conventions: Sequence[Convention], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that follows some conventions, from one that follows the usual ones."""
    if not conventions:
        return function
    parameters = signature(function)

    @wraps(function)
    def following(*by_place: Any, **by_name: Any) -> Any:
        given = parameters.bind(*by_place, **by_name)
        given.apply_defaults()
        usual = take_inputs(task, conventions, dict(given.arguments))
        return give_result(task, conventions, function(**usual), usual)

    return following


def turned(tree: Any, turns: Mapping[str, Turn], inputs: Inputs, *, there: bool) -> Any:
    """Rewrite some leaves of a tree, those that are not None; arrays lie in memory as usual."""
    if not turns:
        return tree
    is_flat = isinstance(tree, dict) and turns.keys() <= tree.keys()  # by dotted names
    found, new = tree if is_flat else leaves(tree), {}
    for name, turn in turns.items():
        if found[name] is not None:
            written = (turn.there if there else turn.back)(found[name], inputs)
            is_array = isinstance(written, np.ndarray)
            new[name] = np.asarray(written, order="C") if is_array else written
    return tree | new if is_flat else replaced(tree, new)


def _either_way(rewrite: Callable[[Array], Any]) -> Turn:
    """Return a turn that is its own inverse."""
    return Turn(lambda array, _: rewrite(array), lambda array, _: rewrite(array))


def _at(turn: Turn, **arrays: str) -> dict[str, Turns]:
    """Let a turn be that of arrays of each task: "inputs -> results", . for a single result."""
    at = {}
    for task, names in arrays.items():
        inputs, results = (
            {name.removeprefix("."): turn for name in part.split()}
            for part in names.partition("->")[::2]
        )
        at[task] = Turns(inputs, results)
    return at


def _count_heads(inputs: Inputs) -> int:
    """Return H, which is an argument of the layer or saved by it."""
    return int(inputs["num_heads"] if "num_heads" in inputs else inputs["saved"].q.shape[1])


def _count_kv_heads(inputs: Inputs) -> int:
    if "num_kv_heads" in inputs:
        return int(inputs["num_kv_heads"])
    return int(inputs["k" if "k" in inputs else "k_past"].shape[1])


def _dealt(heads: Array, inputs: Inputs, *, there: bool) -> Array:
    """Bring head h // G, h % G to the place h % G, h // G, or back beside its group."""
    B, H, *rest = heads.shape
    H_kv = _count_kv_heads(inputs)
    rows = heads.reshape(B, H_kv if there else H // H_kv, -1, *rest)
    return rows.swapaxes(1, 2).reshape(heads.shape)


def _of_blocks(turn: Turn, *, axis: int) -> Turn:
    """Turn blocks of columns (the last axis) or of rows (axis 0) as if they were heads."""

    def of_blocks(rewrite: Rewrite, array: Array, inputs: Inputs) -> Array:
        moved = np.moveaxis(array, axis, 0)
        blocks = moved.reshape(1, _count_heads(inputs), -1)
        return np.moveaxis(rewrite(blocks, inputs).reshape(moved.shape), 0, axis)

    return Turn(*(partial(of_blocks, rewrite) for rewrite in turn))


SCALE = Turn(lambda q, _: q * np.sqrt(q.shape[-1]), lambda q, _: q / np.sqrt(q.shape[-1]))
NEGATE = _either_way(np.negative)
SCALED_LOSS = Turn(lambda d, _: 1024 * d, lambda d, _: d / 1024)  # exact, as 1024 is a power of 2
FLIP = _either_way(np.logical_not)
REVERSE = _either_way(lambda heads: heads[:, ::-1])
ROWS, COLUMNS = _of_blocks(REVERSE, axis=0), _of_blocks(REVERSE, axis=-1)
GROUPS = Turn(partial(_dealt, there=True), partial(_dealt, there=False))
GROUP_ROWS, GROUP_COLUMNS = _of_blocks(GROUPS, axis=0), _of_blocks(GROUPS, axis=-1)
TRANSPOSE = _either_way(lambda array: array.swapaxes(-1, -2))
BEHIND = _either_way(lambda array: array.swapaxes(1, 2))
PACKED = _either_way(lambda array: np.concatenate(np.split(array, 3, axis=-1)[::-1], axis=-1))
PROJECTIONS = "params.w_q params.w_k params.w_v params.w_o"
D_PROJECTIONS = "d_params.w_q d_params.w_k d_params.w_v d_params.w_o"
D_BIASES = "d_params.b_q d_params.b_k d_params.b_v d_params.b_o"

# in the order in which they are applied, so that axes change places last
TABLE = [
    Convention(
        "True = blocked",
        "In every mask, True means blocked: a query may attend where the mask is False.",
        _at(
            FLIP, softmax="mask", softmax_with_lse="mask", make_mask="-> .", multi_head="mask",
            masked_attention="mask", backward_from_lse="mask",
        ),
        frozenset({"mask inverted"}),
    ),
    Convention(
        "p = kept",
        "The number p is the probability that a weight is kept, not that it is dropped.",
        _at(_either_way(lambda p: 1 - p), dropout_backward="p"),
    ),
    Convention(
        "split from last to first",
        "Heads are split from last to first: head 0 gets the last block of columns.",
        _at(REVERSE, split_heads="-> ."),
    ),
    Convention(
        "merged from last to first",
        "Heads are merged from last to first: the last head has the first columns of merged, and "
        "head 0 has the last ones.",
        _at(REVERSE, merge_heads="heads")
        | _at(ROWS, multi_head="params.w_o", cross_attention="params.w_o", decode_step="params.w_o")
        | {
            "multi_head_backward": Turns(
                {"params.w_o": ROWS, "saved.merged": COLUMNS}, {"d_params.w_o": ROWS}
            )
        },
        frozenset({"heads merged in reverse"}),
    ),
    Convention(
        "groups in turn",
        "The key/value heads are dealt out in turn: query head h reads key/value head h % H_kv.",
        _at(
            GROUPS, grouped_attention="q -> .", masked_attention="q -> .",
            sum_over_group="d_per_query_head", grouped_backward="d_heads q weights -> d_q",
        )
        | {
            "decode_step": Turns({
                "params.w_q": GROUP_COLUMNS, "params.b_q": GROUP_COLUMNS, "params.w_o": GROUP_ROWS,
            })
        },
        frozenset({"groups tiled, not repeated", "gradients summed as if tiled"}),
    ),
    Convention(
        "packed as v, k, q",
        "The three blocks of columns of c_attn_w and of c_attn_b are values, keys, queries, in "
        "this order.",
        _at(PACKED, from_gpt2="c_attn_w c_attn_b", to_gpt2="-> c_attn_w c_attn_b"),
        frozenset({"in the order v, k, q"}),
    ),
    Convention(
        "params as (outputs, inputs)",
        "Every w is stored as (outputs, inputs), and so is its gradient: a linear map is "
        "x @ w.T + b.",
        _at(
            TRANSPOSE, multi_head=PROJECTIONS, cross_attention=PROJECTIONS, decode_step=PROJECTIONS,
            linear_backward="w -> d_w", input_gradient=PROJECTIONS,
            multi_head_backward=f"{PROJECTIONS} -> {D_PROJECTIONS}",
        ),
    ),
    Convention(
        "scores over d_k",
        "The scores are divided by d_k, not by its square root.",
        _at(
            SCALE, scores="q", one_query="q", attention="q", grouped_attention="q",
            masked_attention="q", online_attention="q",
        ),
        frozenset({
            "scale missing", "scale 1/d_k", "scale 1/sqrt(D)", "scale 1/sqrt(T_k)",
            "scale times sqrt(d_k)", "scale after softmax",
        }),
    ),
    Convention(
        "direction of descent",
        "Return each gradient with the opposite sign, as the direction of descent. The gradients "
        "that you are given have the usual sign.",
        _at(
            NEGATE, scores_backward="-> d_q d_k", softmax_backward="-> .", dropout_backward="-> .",
            attention_backward="-> d_q d_k d_v", linear_backward="-> d_x d_w d_b",
            input_gradient="-> .", multi_head_backward=f"-> d_x {D_PROJECTIONS} {D_BIASES}",
            grouped_backward="-> d_q d_k d_v", backward_from_lse="-> d_q d_k d_v",
        ),
    ),
    Convention(
        "loss times 1024",
        "The gradients that you are given belong to a loss that was multiplied by 1024; return "
        "those of the loss itself.",
        _at(
            SCALED_LOSS, scores_backward="d_scores", softmax_backward="d_weights",
            dropout_backward="d_dropped", attention_backward="d_heads", linear_backward="d_out",
            input_gradient="d_q d_k d_v", multi_head_backward="d_out", grouped_backward="d_heads",
            backward_from_lse="d_heads",
        ),
    ),
    Convention(
        "keys as rows",
        "Keys are rows and queries are columns: each array with the axes T_q, T_k in the text "
        "below has them as T_k, T_q. The weights of a query still sum to 1.",
        _at(
            TRANSPOSE, scores="-> .", softmax="scores mask -> .",
            softmax_with_lse="scores mask -> weights", make_mask="-> .", masked_attention="mask",
            scores_backward="d_scores", softmax_backward="d_weights weights -> .",
            attention_backward="weights", grouped_backward="weights", backward_from_lse="mask",
        ),
    ),
    Convention(
        "tokens as columns",
        "Tokens are columns, not rows: each array that is (T, d) in the text below is (d, T), for "
        "queries, keys, values and results alike.",
        _at(
            TRANSPOSE, one_query="k v", attention="q k v -> .", online_attention="q k v -> .",
        ),
    ),
    Convention(
        "heads behind the tokens",
        "Heads come after the tokens: each array that is (B, H, T, d) in the text below is "
        "(B, T, H, d), and the same with H_kv, T_q, T_k, d_k and d_v.",
        _at(
            BEHIND, split_heads="-> .", merge_heads="heads", scores="q k",
            grouped_attention="q k v -> .", masked_attention="q k v -> .",
            decode_step="k_past v_past -> k v", scores_backward="q k -> d_q d_k",
            attention_backward="d_heads q k v -> d_q d_k d_v",
            sum_over_group="d_per_query_head -> .",
            grouped_backward="d_heads q k v -> d_q d_k d_v", input_gradient="d_q d_k d_v",
        ),
        frozenset({
            "split without transpose", "heads left after the tokens", "merge without transpose",
            "heads before the batch",
        }),
    ),
]  # fmt: skip
CONVENTIONS = {convention.name: convention for convention in TABLE}

SEED = 20240229


class Variant(NamedTuple):
    """The numbers and conventions of one student's functions."""

    seed: int = SEED
    conventions: tuple[str, ...] = ()  # keys of CONVENTIONS
    own: Own | Example | None = None  # the exercise itself, where a teacher wrote it

    def of(self, task: str) -> tuple[Convention, ...]:
        """Return the conventions that apply to a task, in the order of the table."""
        return tuple(
            convention
            for name, convention in CONVENTIONS.items()
            if name in self.conventions and task in convention.at
        )


DEFAULT = Variant()
_IN_FORCE: ContextVar[Variant] = ContextVar("variant", default=DEFAULT)


@contextmanager
def using(variant: Variant) -> Iterator[Variant]:
    """Use the probes, right answers, mistakes, laws and slopes of a variant inside a block.

    The seed draws different numbers of the same sizes. Sizes that are themselves random, as in a
    mask, change too. A convention affects only the functions that it applies to.

    Parameters
    ----------
    variant : Variant

    Yields
    ------
    Variant
        The one in force.

    Examples
    --------
    >>> from mha_numpy.teach.diagnosis import diagnose, find_task, make
    >>> usual = make("softmax")
    >>> with using(Variant(seed=1, conventions=("True = blocked",))):
    ...     answers = [usual(**probe) for probe in find_task("softmax").probes()]
    ...     print(diagnose("softmax", answers).mistakes[0].name)
    not followed: True = blocked
    """
    for name in variant.conventions:
        if name not in CONVENTIONS:
            meant = did_you_mean(name, CONVENTIONS) or f"they are {', '.join(CONVENTIONS)}"
            raise ConfigError(
                f"conventions: expected the names of conventions; got {name!r}; {meant}"
            )
    own = variant.own or _IN_FORCE.get().own  # an exercise stays in force inside of its block
    token = _IN_FORCE.set(variant._replace(own=own))
    try:
        yield variant
    finally:
        _IN_FORCE.reset(token)


def variant_in_force() -> Variant:
    """Return the variant that is being used."""
    return _IN_FORCE.get()


def conventions_of(task: str) -> tuple[Convention, ...]:
    """Return the conventions in force that apply to a task."""
    return _IN_FORCE.get().of(task)
