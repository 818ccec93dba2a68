"""The conventions that a student may be asked to follow: each is in use somewhere."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.convention_words import FALSE_HERE, WORDS
from mha_numpy.teach.turns import Convention, Inputs, Rewrite, Turn, Turns


def _either_way(rewrite: Callable[[Array], Any]) -> Turn:
    """Return a turn that is its own inverse."""
    return Turn(lambda array, _: rewrite(array), lambda array, _: rewrite(array))


def _axes(*order: int) -> Turn:
    """Return the turn that puts the first axes into an order."""
    back = tuple(int(axis) for axis in np.argsort(order))

    def moved(first: tuple[int, ...], array: Array, _: Inputs) -> Array:
        return array.transpose(*first, *range(len(first), array.ndim))

    return Turn(partial(moved, order), partial(moved, back))


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


def _joined(*parts: dict[str, Turns]) -> dict[str, Turns]:
    """Join the turns of different arrays of the same tasks."""
    at: dict[str, Turns] = {}
    for part in parts:
        for task, (inputs, results) in part.items():
            before = at.get(task, Turns({}))
            at[task] = Turns({**before.inputs, **inputs}, {**before.results, **results})
    return at


def _count_heads(inputs: Inputs) -> int:
    """Return H, which is an argument, or known from heads."""
    if "num_heads" in inputs:
        return int(inputs["num_heads"])
    if "saved" in inputs:
        return int(inputs["saved"].q.shape[1])
    return int(inputs["heads" if "heads" in inputs else "d_q"].shape[1])


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


def _interleaved(array: Array, count: int, axis: int, *, there: bool) -> Array:
    """Bring the number h * d + c of an axis to the place c * count + h, or back."""
    moved = np.moveaxis(array, axis, 0)
    pieces = moved.reshape(count if there else -1, -1 if there else count, *moved.shape[1:])
    return np.moveaxis(pieces.swapaxes(0, 1).reshape(moved.shape), 0, axis)


def _alternating(axis: int, count: Callable[[Inputs], int] = _count_heads) -> Turn:
    """Return the turn that lets an axis alternate between heads, which were blocks of it."""

    def dealt(array: Array, inputs: Inputs, *, there: bool) -> Array:
        return _interleaved(array, count(inputs), axis, there=there)

    return Turn(partial(dealt, there=True), partial(dealt, there=False))


def _scaled(power: float, count: Callable[[Inputs], int] = lambda _: 1) -> Turn:
    """Return the turn that multiplies by a power of d_k, the last axis or its share of a head."""

    def scaled(power: float, array: Array, inputs: Inputs) -> Array:
        return np.asarray(array * (array.shape[-1] // count(inputs)) ** power)

    return Turn(partial(scaled, power), partial(scaled, -power))


def _of_scale(power: float) -> dict[str, Turns]:
    """Scale the queries; then the gradient of the queries has the opposite scale."""
    backward = ("scores_backward", "attention_backward", "grouped_backward", "backward_from_lse")
    layers = dict.fromkeys(
        ("multi_head", "cross_attention", "decode_step", "multi_head_backward"),
        "params.w_q params.b_q",
    )
    return _joined(
        _at(
            _scaled(power), scores="q", one_query="q", attention="q", grouped_attention="q",
            masked_attention="q", online_attention="q", multi_head_backward="saved.q",
            **dict.fromkeys(backward, "q"),
        ),
        _at(_scaled(power, _count_heads), **layers),
        _at(_scaled(-power), **dict.fromkeys(backward, "-> d_q")),
        _at(
            _scaled(-power, _count_heads), multi_head_backward="-> d_params.w_q d_params.b_q",
        ),
    )  # fmt: skip


def _packed(array: Array, _: Inputs) -> Array:
    """Exchange the last two of three blocks of columns."""
    first, second, third = np.split(array, 3, axis=-1)
    return np.concatenate([first, third, second], axis=-1)


FLIP = _either_way(np.logical_not)
AS_BIAS = Turn(lambda mask, _: np.where(mask, 0.0, -np.inf), lambda bias, _: np.equal(bias, 0))
GROUPS = Turn(partial(_dealt, there=True), partial(_dealt, there=False))
GROUP_ROWS, GROUP_COLUMNS = _of_blocks(GROUPS, axis=0), _of_blocks(GROUPS, axis=-1)
ROWS, COLUMNS, KV_COLUMNS = _alternating(0), _alternating(-1), _alternating(-1, _count_kv_heads)
TRANSPOSE = _either_way(lambda array: array.swapaxes(-1, -2))
PACKED = Turn(_packed, _packed)

# arrays of tasks, by their axes: those of heads, (B, T, D), a cell for each query and key, ...
HEADS = {
    "split_heads": "-> .", "merge_heads": "heads", "scores": "q k",
    "grouped_attention": "q k v -> .", "masked_attention": "q k v -> .",
    "decode_step": "k_past v_past -> k v", "scores_backward": "q k -> d_q d_k",
    "attention_backward": "d_heads q k v -> d_q d_k d_v", "sum_over_group": "d_per_query_head -> .",
    "grouped_backward": "d_heads q k v -> d_q d_k d_v", "input_gradient": "d_q d_k d_v",
    "multi_head_backward": "saved.q saved.k saved.v",
    "backward_from_lse": "d_heads q k v heads -> d_q d_k d_v",
}  # fmt: skip
SEQUENCES = {
    "split_heads": "x", "merge_heads": "-> .", "multi_head": "x -> .",
    "cross_attention": "y x -> .", "decode_step": "x -> out", "linear_backward": "d_out x -> d_x",
    "input_gradient": "-> .", "multi_head_backward": "d_out saved.x saved.merged -> d_x",
}  # fmt: skip
CELLS_OF_HEADS = {
    "scores": "-> .", "make_mask": "-> .", "masked_attention": "mask",
    "scores_backward": "d_scores", "dropout_backward": "d_dropped keep -> .",
    "attention_backward": "weights", "grouped_backward": "weights",
    "multi_head_backward": "saved.weights",
}  # fmt: skip
CELLS = {
    **CELLS_OF_HEADS, "softmax": "scores mask -> .", "softmax_with_lse": "scores mask -> weights",
    "multi_head": "mask", "softmax_backward": "d_weights weights -> .", "backward_from_lse": "mask",
}  # fmt: skip
ONE_HEAD = {"one_query": "k v", "attention": "q k v -> .", "online_attention": "q k v -> ."}
W = "params.w_q params.w_k params.w_v params.w_o"
D_W = W.replace("params", "d_params")
INWARD = "params.w_q params.b_q params.w_k params.b_k params.w_v params.b_v"
D_INWARD = INWARD.replace("params", "d_params")
MAPS = {
    "multi_head": W, "cross_attention": W, "decode_step": W, "linear_backward": "w -> d_w",
    "input_gradient": W, "multi_head_backward": f"{W} -> {D_W}",
}  # fmt: skip
MASKS = {
    "softmax": "mask", "softmax_with_lse": "mask", "make_mask": "-> .", "multi_head": "mask",
    "masked_attention": "mask", "backward_from_lse": "mask",
}  # fmt: skip

TABLE = [  # in the order in which they are applied, so that axes change places last
    Convention(
        "True = blocked",
        "In every mask, True means blocked: a query may attend where the mask is False, as in "
        "PyTorch's `nn.MultiheadAttention`.",
        frozenset({"mask"}),
        _at(FLIP, **MASKS),
        WORDS["True = blocked"],
        FALSE_HERE["True = blocked"],
    ),
    Convention(
        "0 and -inf",
        "Every mask is a float array to be added to the scores: 0 where a query may attend and "
        "-inf where it may not, as in Hugging Face's models and PyTorch's `nn.Transformer`.",
        frozenset({"mask"}),
        _at(AS_BIAS, **MASKS),
        WORDS["0 and -inf"],
        FALSE_HERE["0 and -inf"],
    ),
    Convention(
        "p = kept",
        "The number p is the probability that a weight is kept, not that it is dropped, as "
        "`keep_prob` was in TensorFlow 1.",
        frozenset({"dropout"}),
        _at(_either_way(lambda p: 1 - p), dropout_backward="p"),
        WORDS["p = kept"],
    ),
    Convention(
        "groups in turn",
        "The key/value heads are dealt out in turn: query head h reads key/value head h % H_kv, "
        "as in x-transformers.",
        frozenset({"groups"}),
        _joined(
            _at(
                GROUPS, grouped_attention="q -> .", masked_attention="q -> .",
                sum_over_group="d_per_query_head", grouped_backward="d_heads q weights -> d_q",
            ),
            _at(GROUP_COLUMNS, decode_step="params.w_q params.b_q"),
            _at(GROUP_ROWS, decode_step="params.w_o"),
        ),
        WORDS["groups in turn"],
        FALSE_HERE["groups in turn"],
    ),
    Convention(
        "heads alternate",
        "The columns of the heads alternate: of H heads, head h has columns h, h + H, h + 2*H and "
        "so on, as in SuperGlue (Sarlin et al. 2020).",
        frozenset({"columns"}),
        _joined(
            _at(
                COLUMNS, split_heads="x", merge_heads="-> .", multi_head=INWARD,
                cross_attention=INWARD, decode_step="params.w_q params.b_q", input_gradient=W,
                multi_head_backward=f"{INWARD} saved.merged -> {D_INWARD}",
            ),
            _at(KV_COLUMNS, decode_step="params.w_k params.b_k params.w_v params.b_v"),
            _at(
                ROWS, multi_head="params.w_o", cross_attention="params.w_o",
                decode_step="params.w_o", input_gradient="params.w_o",
                multi_head_backward="params.w_o -> d_params.w_o",
            ),
        ),
        WORDS["heads alternate"],
        FALSE_HERE["heads alternate"],
    ),
    Convention(
        "packed as q, v, k",
        "The three blocks of columns of c_attn_w and of c_attn_b are queries, values, keys, in "
        "this order, as in CodeGen.",
        frozenset({"packing"}),
        _at(PACKED, from_gpt2="c_attn_w c_attn_b", to_gpt2="-> c_attn_w c_attn_b"),
        WORDS["packed as q, v, k"],
        FALSE_HERE["packed as q, v, k"],
    ),
    Convention(
        "scores over d_k",
        "The scores are divided by d_k, not by its square root, as in muP (Yang et al. 2022).",
        frozenset({"scale"}),
        _of_scale(0.5),
        WORDS["scores over d_k"],
        FALSE_HERE["scores over d_k"],
        source={"np.sqrt(q.shape[-1])": "q.shape[-1]"},
    ),
    Convention(
        "scores without scale",
        "The scores are the products of queries and keys, and are not divided by anything, as in "
        "T5 and GPT-Neo.",
        frozenset({"scale"}),
        _of_scale(-0.5),
        WORDS["scores without scale"],
        FALSE_HERE["scores without scale"],
        source={"np.sqrt(q.shape[-1])": "1.0"},
    ),
    Convention(
        "params as (outputs, inputs)",
        "Every w is stored as (outputs, inputs), and so is its gradient: a linear map is "
        "x @ w.T + b, as in PyTorch's `nn.Linear`.",
        frozenset({"params"}),
        _at(TRANSPOSE, **MAPS),
        WORDS["params as (outputs, inputs)"],
    ),
    Convention(
        "heads after the tokens",
        "Heads come after the tokens: queries, keys and values of all heads are (B, T, H, d), as "
        "in FlashAttention and JAX.",
        frozenset({"layout"}),
        _at(_axes(0, 2, 1), **HEADS),
        WORDS["heads after the tokens"],
        FALSE_HERE["heads after the tokens"],
    ),
    Convention(
        "tokens first",
        "Tokens come first: inputs and outputs are (T, B, D), and queries, keys and values of all "
        "heads are (T, B, H, d), as in Megatron-LM.",
        frozenset({"layout"}),
        _joined(_at(_axes(2, 0, 1), **HEADS), _at(_axes(1, 0), **SEQUENCES)),
        WORDS["tokens first"],
        FALSE_HERE["tokens first"],
        same=frozenset({"linear_backward"}),
    ),
    Convention(
        "heads first",
        "Heads come first: queries, keys, values, scores and weights of all heads are "
        "(H, B, T, ...), as in the PyTorch code for \"Attention is all you need\" by jadore801120.",
        frozenset({"layout"}),
        _joined(
            _at(_axes(1, 0), **HEADS),
            _at(_axes(1, 0), **CELLS_OF_HEADS, backward_from_lse="lse"),
        ),
        WORDS["heads first"],
        FALSE_HERE["heads first"],
        same=frozenset({
            "scores", "scores_backward", "attention_backward", "backward_from_lse",
            "dropout_backward",
        }),
    ),
    Convention(
        "tokens as columns",
        "Tokens are columns: inputs are (D, T), queries, keys and values (d, T), and scores and "
        "weights (T_k, T_q), so that each query has a column. A linear map is w @ x + b with w as "
        "(outputs, inputs), as in \"Understanding Deep Learning\" (Prince 2023).",
        frozenset({"layout", "params"}),
        _joined(
            *(_at(TRANSPOSE, **names) for names in (HEADS, SEQUENCES, CELLS, ONE_HEAD, MAPS))
        ),
        WORDS["tokens as columns"],
        FALSE_HERE["tokens as columns"],
        same=frozenset({"dropout_backward", "sum_over_group"}),
    ),
]  # fmt: skip
CONVENTIONS = {convention.name: convention for convention in TABLE}
