"""Conventions: another way of writing a function's inputs and results, said in one sentence.

Under a convention a function computes the same from arrays that are written otherwise: a mask in
which True hides, heads behind the tokens. So a convention is a way there and back for some inputs
and results. Whatever is known about the usual function is known about the other one: its right
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
from mha_numpy.teach.mistake import Mistake

Inputs = dict[str, Any]
Rewrite = Callable[[Any, Inputs], Any]  # of one array or number, beside all inputs


class Turn(NamedTuple):
    """How an array is written under a convention, and how it is written as usual again."""

    there: Rewrite
    back: Rewrite


class Turns(NamedTuple):
    """What is written otherwise, by name: "params.w_o", or "" for a single result."""

    inputs: Mapping[str, Turn]
    results: Mapping[str, Turn] = {}


@dataclass(frozen=True, eq=False)
class Convention:
    """A convention that differs from the usual one, and the functions that it is about."""

    name: str
    sentence: str  # to the student
    at: Mapping[str, Turns]  # by the name of a task
    false_here: frozenset[str] = field(default=frozenset())  # mistakes whose words would be false

    @property
    def ignored(self) -> Mistake:
        """The mistake of whoever follows the usual convention instead."""
        verdict = f"the usual convention is followed, not that of your variant: {self.sentence}"
        return Mistake(f"not followed: {self.name}", verdict, self.sentence, {})


IGNORE_ALL = Mistake(
    "no convention followed",
    "the usual conventions are followed, and none of those of your variant",
    "follow the conventions at the top of the docstring",
    {},
)


def give_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return the usual inputs as they are written under some conventions."""
    for convention in conventions:
        turns = convention.at[task].inputs
        inputs = _turned(inputs, {name: turn.there for name, turn in turns.items()}, inputs)
    return inputs


def take_inputs(task: str, conventions: Sequence[Convention], inputs: Inputs) -> Inputs:
    """Return inputs as they are usually written."""
    for convention in reversed(conventions):
        turns = convention.at[task].inputs
        inputs = _turned(inputs, {name: turn.back for name, turn in turns.items()}, inputs)
    return inputs


def give_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a usual result, of usual inputs, as it is written under some conventions."""
    for convention in conventions:
        turns = convention.at[task].results
        result = _turned(result, {name: turn.there for name, turn in turns.items()}, inputs)
    return result


def take_result(task: str, conventions: Sequence[Convention], result: Any, inputs: Inputs) -> Any:
    """Return a result, of usual inputs, as it is usually written."""
    for convention in reversed(conventions):
        turns = convention.at[task].results
        result = _turned(result, {name: turn.back for name, turn in turns.items()}, inputs)
    return result


def follow(
    task: str, conventions: Sequence[Convention], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that does under some conventions what another one does as usual."""
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


def _turned(tree: Any, rewrites: Mapping[str, Rewrite], inputs: Inputs) -> Any:
    """Rewrite some leaves of a tree, those that are not None; arrays lie in memory as usual."""
    if not rewrites:
        return tree
    is_flat = isinstance(tree, dict) and rewrites.keys() <= tree.keys()  # by dotted names
    found, new = tree if is_flat else leaves(tree), {}
    for name, rewrite in rewrites.items():
        if found[name] is not None:
            written = rewrite(found[name], inputs)
            is_array = isinstance(written, np.ndarray)
            new[name] = np.asarray(written, order="C") if is_array else written
    return tree | new if is_flat else replaced(tree, new)


def _either_way(rewrite: Callable[[Array], Any]) -> Turn:
    """Return a turn that leads back when it is made twice."""
    return Turn(lambda array, _: rewrite(array), lambda array, _: rewrite(array))


def _each(names: str, turn: Turn) -> dict[str, Turn]:
    """Let a turn be that of several names; . is the name of a single result."""
    return {name.removeprefix("."): turn for name in names.split()}


def _swapped(array: Array, *, axes: tuple[int, int]) -> Array:
    return array.swapaxes(*axes)


def _count_heads(inputs: Inputs) -> int:
    """Return H, which a layer is given or has saved."""
    return int(inputs["num_heads"] if "num_heads" in inputs else inputs["saved"].q.shape[1])


def _reversed_rows(w_o: Array, inputs: Inputs) -> Array:
    return w_o.reshape(_count_heads(inputs), -1, w_o.shape[-1])[::-1].reshape(w_o.shape)


def _reversed_columns(merged: Array, inputs: Inputs) -> Array:
    blocks = merged.reshape(*merged.shape[:-1], _count_heads(inputs), -1)
    return blocks[..., ::-1, :].reshape(merged.shape)


def _count_kv_heads(inputs: Inputs) -> int:
    if "num_kv_heads" in inputs:
        return int(inputs["num_kv_heads"])
    return int(inputs["k" if "k" in inputs else "k_past"].shape[1])


def _neighbours_apart(array: Array, inputs: Inputs) -> Array:
    """Bring head h // G, h % G to the place h % G, h // G."""
    B, H, *rest = array.shape
    groups = array.reshape(B, _count_kv_heads(inputs), -1, *rest)
    return groups.swapaxes(1, 2).reshape(B, H, *rest)


def _neighbours_again(array: Array, inputs: Inputs) -> Array:
    """Bring the heads of each group beside one another."""
    B, H, *rest = array.shape
    groups = array.reshape(B, -1, _count_kv_heads(inputs), *rest)
    return groups.swapaxes(1, 2).reshape(B, H, *rest)


def _of_blocks(rewrite: Rewrite, *, axis: int) -> Rewrite:
    """Rewrite blocks of columns (the last axis) or of rows (axis 0) as if they were heads."""

    def rewritten(array: Array, inputs: Inputs) -> Array:
        moved = np.moveaxis(array, axis, 0)
        blocks = moved.reshape(1, _count_heads(inputs), -1)
        return np.moveaxis(rewrite(blocks, inputs).reshape(moved.shape), 0, axis)

    return rewritten


def _packed_in_reverse(array: Array) -> Array:
    return np.concatenate(np.split(array, 3, axis=-1)[::-1], axis=-1)


SCALE = Turn(lambda q, _: q * np.sqrt(q.shape[-1]), lambda q, _: q / np.sqrt(q.shape[-1]))
NEGATE = _either_way(np.negative)
SCALED_LOSS = Turn(lambda d, _: 1024 * d, lambda d, _: d / 1024)  # exact, as 1024 is a power of 2
FLIP = _either_way(np.logical_not)
ROWS, COLUMNS = Turn(_reversed_rows, _reversed_rows), Turn(_reversed_columns, _reversed_columns)
REVERSE = _either_way(lambda heads: heads[:, ::-1])
GROUPS = Turn(_neighbours_apart, _neighbours_again)
GROUP_COLUMNS = Turn(*(_of_blocks(rewrite, axis=-1) for rewrite in GROUPS))
GROUP_ROWS = Turn(*(_of_blocks(rewrite, axis=0) for rewrite in GROUPS))
TRANSPOSE = _either_way(partial(_swapped, axes=(-1, -2)))
BEHIND = _either_way(partial(_swapped, axes=(1, 2)))
PACKED = _either_way(_packed_in_reverse)
PROJECTIONS = "params.w_q params.w_k params.w_v params.w_o"

# in the order in which they are applied, so that axes change places last
TABLE = [
    Convention(
        "True = blocked",
        "In every mask, True means blocked: a query may attend where the mask is False.",
        {
            "softmax": Turns(_each("mask", FLIP)),
            "softmax_with_lse": Turns(_each("mask", FLIP)),
            "make_mask": Turns({}, _each(".", FLIP)),
            "multi_head": Turns(_each("mask", FLIP)),
            "masked_attention": Turns(_each("mask", FLIP)),
            "backward_from_lse": Turns(_each("mask", FLIP)),
        },
        frozenset({"mask inverted"}),
    ),
    Convention(
        "p = kept",
        "The number p is the probability that a weight is kept, not that it is dropped.",
        {"dropout_backward": Turns(_each("p", _either_way(lambda p: 1 - p)))},
    ),
    Convention(
        "split from last to first",
        "Heads are split from last to first: head 0 gets the last block of columns.",
        {"split_heads": Turns({}, _each(".", REVERSE))},
    ),
    Convention(
        "merged from last to first",
        "Heads are merged from last to first: the last head has the first columns of merged, and "
        "head 0 has the last ones.",
        {
            "merge_heads": Turns(_each("heads", REVERSE)),
            "multi_head": Turns(_each("params.w_o", ROWS)),
            "cross_attention": Turns(_each("params.w_o", ROWS)),
            "decode_step": Turns(_each("params.w_o", ROWS)),
            "multi_head_backward": Turns(
                {"params.w_o": ROWS, "saved.merged": COLUMNS}, _each("d_params.w_o", ROWS)
            ),
        },
        frozenset({"heads merged in reverse"}),
    ),
    Convention(
        "groups in turn",
        "The key/value heads are dealt out in turn: query head h reads key/value head h % H_kv.",
        {
            "grouped_attention": Turns(_each("q", GROUPS), _each(".", GROUPS)),
            "masked_attention": Turns(_each("q", GROUPS), _each(".", GROUPS)),
            "sum_over_group": Turns(_each("d_per_query_head", GROUPS)),
            "grouped_backward": Turns(_each("d_heads q weights", GROUPS), _each("d_q", GROUPS)),
            "decode_step": Turns(
                _each("params.w_q params.b_q", GROUP_COLUMNS) | _each("params.w_o", GROUP_ROWS)
            ),
        },
        frozenset({"groups tiled, not repeated", "gradients summed as if tiled"}),
    ),
    Convention(
        "packed as v, k, q",
        "The three blocks of columns of c_attn_w and of c_attn_b are values, keys, queries, in "
        "this order.",
        {
            "from_gpt2": Turns(_each("c_attn_w c_attn_b", PACKED)),
            "to_gpt2": Turns({}, _each("c_attn_w c_attn_b", PACKED)),
        },
        frozenset({"in the order v, k, q"}),
    ),
    Convention(
        "params as (outputs, inputs)",
        "Every w is stored as (outputs, inputs), and so is its gradient: a linear map is "
        "x @ w.T + b.",
        {
            "multi_head": Turns(_each(PROJECTIONS, TRANSPOSE)),
            "cross_attention": Turns(_each(PROJECTIONS, TRANSPOSE)),
            "decode_step": Turns(_each(PROJECTIONS, TRANSPOSE)),
            "linear_backward": Turns(_each("w", TRANSPOSE), _each("d_w", TRANSPOSE)),
            "input_gradient": Turns(_each(PROJECTIONS, TRANSPOSE)),
            "multi_head_backward": Turns(
                _each(PROJECTIONS, TRANSPOSE),
                _each(" ".join(f"d_{name}" for name in PROJECTIONS.split()), TRANSPOSE),
            ),
        },
    ),
    Convention(
        "scores over d_k",
        "The scores are divided by d_k, and not by its square root.",
        {
            task: Turns(_each("q", SCALE))
            for task in (
                "scores", "one_query", "attention", "grouped_attention", "masked_attention",
                "online_attention",
            )
        },
        frozenset({
            "scale missing", "scale 1/d_k", "scale 1/sqrt(D)", "scale 1/sqrt(T_k)",
            "scale times sqrt(d_k)", "scale after softmax",
        }),
    ),
    Convention(
        "direction of descent",
        "Each gradient is returned with the opposite sign: as the direction of descent. Those that "
        "are given have the usual sign.",
        {
            "scores_backward": Turns({}, _each("d_q d_k", NEGATE)),
            "softmax_backward": Turns({}, _each(".", NEGATE)),
            "dropout_backward": Turns({}, _each(".", NEGATE)),
            "attention_backward": Turns({}, _each("d_q d_k d_v", NEGATE)),
            "linear_backward": Turns({}, _each("d_x d_w d_b", NEGATE)),
            "input_gradient": Turns({}, _each(".", NEGATE)),
            "multi_head_backward": Turns(
                {},
                _each("d_x " + " ".join(f"d_params.{w}_{x}" for x in "qkvo" for w in "wb"), NEGATE),
            ),
            "grouped_backward": Turns({}, _each("d_q d_k d_v", NEGATE)),
            "backward_from_lse": Turns({}, _each("d_q d_k d_v", NEGATE)),
        },
    ),
    Convention(
        "loss times 1024",
        "The gradients that are given belong to a loss that was multiplied by 1024; return those "
        "of the loss itself.",
        {
            "scores_backward": Turns(_each("d_scores", SCALED_LOSS)),
            "softmax_backward": Turns(_each("d_weights", SCALED_LOSS)),
            "dropout_backward": Turns(_each("d_dropped", SCALED_LOSS)),
            "attention_backward": Turns(_each("d_heads", SCALED_LOSS)),
            "linear_backward": Turns(_each("d_out", SCALED_LOSS)),
            "input_gradient": Turns(_each("d_q d_k d_v", SCALED_LOSS)),
            "multi_head_backward": Turns(_each("d_out", SCALED_LOSS)),
            "grouped_backward": Turns(_each("d_heads", SCALED_LOSS)),
            "backward_from_lse": Turns(_each("d_heads", SCALED_LOSS)),
        },
    ),
    Convention(
        "keys as rows",
        "Keys are rows and queries are columns: each array that has the axes T_q, T_k in the text "
        "below has them as T_k, T_q. The weights of a query still sum to 1.",
        {
            "scores": Turns({}, _each(".", TRANSPOSE)),
            "softmax": Turns(_each("scores mask", TRANSPOSE), _each(".", TRANSPOSE)),
            "softmax_with_lse": Turns(_each("scores mask", TRANSPOSE), _each("weights", TRANSPOSE)),
            "make_mask": Turns({}, _each(".", TRANSPOSE)),
            "masked_attention": Turns(_each("mask", TRANSPOSE)),
            "scores_backward": Turns(_each("d_scores", TRANSPOSE)),
            "softmax_backward": Turns(_each("d_weights weights", TRANSPOSE), _each(".", TRANSPOSE)),
            "attention_backward": Turns(_each("weights", TRANSPOSE)),
            "grouped_backward": Turns(_each("weights", TRANSPOSE)),
            "backward_from_lse": Turns(_each("mask", TRANSPOSE)),
        },
    ),
    Convention(
        "tokens as columns",
        "Tokens are columns, not rows: each array that is (T, d) in the text below is (d, T), for "
        "queries, keys, values and results alike.",
        {
            "one_query": Turns(_each("k v", TRANSPOSE)),
            "attention": Turns(_each("q k v", TRANSPOSE), _each(".", TRANSPOSE)),
            "online_attention": Turns(_each("q k v", TRANSPOSE), _each(".", TRANSPOSE)),
        },
    ),
    Convention(
        "heads behind the tokens",
        "Heads stand behind the tokens: each array that is (B, H, T, d) in the text below is "
        "(B, T, H, d), and so with H_kv, T_q, T_k, d_k and d_v.",
        {
            "split_heads": Turns({}, _each(".", BEHIND)),
            "merge_heads": Turns(_each("heads", BEHIND)),
            "scores": Turns(_each("q k", BEHIND)),
            "grouped_attention": Turns(_each("q k v", BEHIND), _each(".", BEHIND)),
            "masked_attention": Turns(_each("q k v", BEHIND), _each(".", BEHIND)),
            "decode_step": Turns(_each("k_past v_past", BEHIND), _each("k v", BEHIND)),
            "scores_backward": Turns(_each("q k", BEHIND), _each("d_q d_k", BEHIND)),
            "attention_backward": Turns(
                _each("d_heads q k v", BEHIND), _each("d_q d_k d_v", BEHIND)
            ),
            "sum_over_group": Turns(_each("d_per_query_head", BEHIND), _each(".", BEHIND)),
            "grouped_backward": Turns(_each("d_heads q k v", BEHIND), _each("d_q d_k d_v", BEHIND)),
            "input_gradient": Turns(_each("d_q d_k d_v", BEHIND)),
        },
        frozenset({
            "split without transpose", "heads left behind the tokens", "merge without transpose",
            "heads before the batch",
        }),
    ),
]  # fmt: skip
CONVENTIONS = {convention.name: convention for convention in TABLE}

SEED = 20240229


class Variant(NamedTuple):
    """What one student's functions are called with, and how they are to write their arrays."""

    seed: int = SEED
    conventions: tuple[str, ...] = ()  # keys of CONVENTIONS

    def of(self, task: str) -> tuple[Convention, ...]:
        """Return the conventions that are about a task, in the order of the table."""
        return tuple(
            convention
            for name, convention in CONVENTIONS.items()
            if name in self.conventions and task in convention.at
        )


DEFAULT = Variant()
_IN_FORCE: ContextVar[Variant] = ContextVar("variant", default=DEFAULT)


@contextmanager
def using(variant: Variant) -> Iterator[Variant]:
    """Let probes, right answers, mistakes, laws and slopes be those of a variant, for a while.

    The seed draws other numbers of the same sizes; where sizes are drawn by chance, as those of a
    mask, they change too. A convention counts for the functions that it is about.

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
    token = _IN_FORCE.set(variant)
    try:
        yield variant
    finally:
        _IN_FORCE.reset(token)


def variant_in_force() -> Variant:
    """Return the variant that is being used."""
    return _IN_FORCE.get()


def conventions_of(task: str) -> tuple[Convention, ...]:
    """Return the conventions in force that are about a task."""
    return _IN_FORCE.get().of(task)
