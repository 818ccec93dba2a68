"""The conventions that a student may be asked to follow: each is in use somewhere."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.turns import Convention, Inputs, Rewrite, Turn, Turns, Words


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
    return int((inputs["saved"].q if "saved" in inputs else inputs["d_q"]).shape[1])


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
    q, of_params = _scaled(power), _scaled(power, _count_heads)
    d_q, d_params = _scaled(-power), _scaled(-power, _count_heads)
    layer = {"params.w_q": of_params, "params.b_q": of_params}
    d_layer = {f"d_{name}": d_params for name in layer}
    return {
        **_at(
            q, scores="q", one_query="q", attention="q", grouped_attention="q",
            masked_attention="q", online_attention="q",
        ),
        **{task: Turns(layer) for task in ("multi_head", "cross_attention", "decode_step")},
        "multi_head_backward": Turns({**layer, "saved.q": q}, d_layer),
        **{
            task: Turns({"q": q}, {"d_q": d_q})
            for task in (
                "scores_backward", "attention_backward", "grouped_backward", "backward_from_lse",
            )
        },
    }  # fmt: skip


FLIP = _either_way(np.logical_not)
AS_BIAS = Turn(lambda mask, _: np.where(mask, 0.0, -np.inf), lambda bias, _: np.equal(bias, 0))
GROUPS = Turn(partial(_dealt, there=True), partial(_dealt, there=False))
GROUP_ROWS, GROUP_COLUMNS = _of_blocks(GROUPS, axis=0), _of_blocks(GROUPS, axis=-1)
ROWS, COLUMNS, KV_COLUMNS = _alternating(0), _alternating(-1), _alternating(-1, _count_kv_heads)
TRANSPOSE = _either_way(lambda array: array.swapaxes(-1, -2))
PACKED = Turn(  # q, k, v and q, v, k
    *[_either_way(lambda array: np.concatenate([np.split(array, 3, axis=-1)[i] for i in (0, 2, 1)], axis=-1)).there] * 2
)  # fmt: skip

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
    "scores": "-> .", "make_mask": "-> .", "masked_attention": "mask", "scores_backward": "d_scores",
    "dropout_backward": "d_dropped keep -> .", "attention_backward": "weights",
    "grouped_backward": "weights", "multi_head_backward": "saved.weights",
}  # fmt: skip
CELLS = {
    **CELLS_OF_HEADS, "softmax": "scores mask -> .", "softmax_with_lse": "scores mask -> weights",
    "multi_head": "mask", "softmax_backward": "d_weights weights -> .", "backward_from_lse": "mask",
}  # fmt: skip
ONE_HEAD = {"one_query": "k v", "attention": "q k v -> .", "online_attention": "q k v -> ."}
W = "params.w_q params.w_k params.w_v params.w_o"
D_W = "d_params.w_q d_params.w_k d_params.w_v d_params.w_o"
MAPS = {
    "multi_head": W, "cross_attention": W, "decode_step": W, "linear_backward": "w -> d_w",
    "input_gradient": W, "multi_head_backward": f"{W} -> {D_W}",
}  # fmt: skip
ROWS_ARE_READ = {
    "softmax": "mask",
    "softmax_with_lse": "mask",
    "make_mask": "-> .",
    "multi_head": "mask",
    "masked_attention": "mask",
    "backward_from_lse": "mask",
}

# what texts say of shapes and code
AXES = r"\(B, (H\w*), (T\w*|T \+ 1), (d\w*)\)"  # of heads
OF_TOKENS = r"\(B, (T\w*|1), (D|kdim|H\*d|O|I)\)"
OF_MAP = r"\((D|kdim|I|H\*d\w*), (H\*d\w*|H_kv\*d|D|O)\)"
SPLIT = r"\.reshape\(B, T, H, d\)\.transpose\(0, 2, 1, 3\)"
DEALT = r"\.reshape\(B, T, d, H\)\.transpose\(0, 3, 1, 2\)"  # where heads alternate
SCORES, MIX = r"q @ k\.swapaxes\(-1, -2\)", r"weights @ v(?!\[)"
OF_GROUP, MIX_OF_GROUP = r"q\[:, h\] @ k\[:, g\]\.swapaxes\(-1, -2\)", r"weights @ v\[:, g\]"
OTHER_NAMES = {
    "row": "column",
    "rows": "columns",
    "column": "row",
    "columns": "rows",
    "Rows": "Columns",
    "columns,": "rows,",
}


def _exchanged(found: re.Match[str]) -> str:
    """Exchange rows and columns, except in a quoted title."""
    return OTHER_NAMES.get(found[0], found[0])


def _einsum(subscripts: str, *names: str) -> str:
    return f'np.einsum("{subscripts}", {", ".join(names)})'


def _of_layout(split: str, dealt: str, order: str, second: str, axis: int) -> Words:
    """Return the words of an order of axes: how to split, an index, a place, a number."""
    places = ", ".join(order)
    return {
        SPLIT: split,
        DEALT: dealt,
        r"heads\[b, h, t, c\]": f"heads[{places.lower().replace('d', 'c')}]",
        "Of B, H, T, d,": f"Of {places},",
        "the heads come second": f"the heads come {second}",
        "axis 1, where": f"axis {axis}, where",
    }


TABLE = [  # in the order in which they are applied, so that axes change places last
    Convention(
        "True = blocked",
        "In every mask, True means blocked: a query may attend where the mask is False, as in "
        "PyTorch's `nn.MultiheadAttention`.",
        frozenset({"mask"}),
        _at(FLIP, **ROWS_ARE_READ),
        {
            "True = may attend: the cell is visible": "True = blocked: the cell is hidden",
            "True = may attend": "True = blocked",
            r"np\.where\(mask, scores, -np\.inf\)": "np.where(mask, -np.inf, scores)",
            "True counts as 1": "False counts as 1",
            r"\(1 - mask\) \* -inf, and where the mask is True": "mask * -inf, and where the mask is False",
            "multiplied by the mask": "multiplied by the inverted mask",
            "the mask is multiplied into": "the inverted mask is multiplied into",
            "the mask is added to": "the inverted mask is added to",
            "combined with OR, so a cell is visible as soon as one mask": "combined so that a cell is visible as soon as one of them",
        },
        frozenset({"mask inverted"}),
    ),
    Convention(
        "0 and -inf",
        "Every mask is a float array to be added to the scores: 0 where a query may attend and "
        "-inf where it may not, as in Hugging Face's models and PyTorch's `nn.Transformer`.",
        frozenset({"mask"}),
        _at(AS_BIAS, **ROWS_ARE_READ),
        {
            "True = may attend: the cell is visible": "0 = may attend: the cell is visible; -inf = hidden",
            "True = may attend": "0 = may attend, -inf = hidden",
            r"(mask : .*)\bbool\b": r"\1float",
            r"np\.where\(mask, scores, -np\.inf\)": "scores + mask",
            "combined with OR, so a cell is visible as soon as one mask": "combined so that a cell is visible as soon as one of them",
            "True is read as blocked": "0 is read as blocked",
        },
        frozenset({
            "mask added to the scores", "mask multiplied into the scores", "0 times -inf",
            "powers times the mask", "powers times the mask, low rows become 0",
            "powers times the mask, except in rows that see nothing",
        }),
    ),
    Convention(
        "p = kept",
        "The number p is the probability that a weight is kept, not that it is dropped, as "
        "`keep_prob` was in TensorFlow 1.",
        frozenset({"dropout"}),
        _at(_either_way(lambda p: 1 - p), dropout_backward="p"),
        {
            r"keep / \(1 - p\)``: each weight was dropped with probability `p`, and the others were": "keep / p``: each weight was kept with probability `p`, and these were",
            "From 0 to below 1": "Above 0, up to 1",
            r"the factor 1 / \(1 - p\)": "the factor 1 / p",
            "multiplied by 1 - p": "multiplied by p",
            "divided by p, the share that was dropped, not by 1 - p": "divided by 1 - p, the share that was dropped, not by p",
        },
    ),
    Convention(
        "groups in turn",
        "The key/value heads are dealt out in turn: query head h reads key/value head h % H_kv, "
        "as in x-transformers.",
        frozenset({"groups"}),
        _at(
            GROUPS, grouped_attention="q -> .", masked_attention="q -> .",
            sum_over_group="d_per_query_head", grouped_backward="d_heads q weights -> d_q",
        )
        | {
            "decode_step": Turns({
                "params.w_q": GROUP_COLUMNS, "params.b_q": GROUP_COLUMNS, "params.w_o": GROUP_ROWS,
            })
        },
        {
            "``G = H // H_kv`` neighbouring query heads share a key head and a value head": "``G = H // H_kv`` query heads share a key head and a value head",
            "number ``h // G`` of both": "number ``h % H_kv`` of both",
            "head ``h // G``, where ``G = H // H_kv``": "head ``h % H_kv``",
            r"``g = h // \(H // H_kv\)``": "``g = h % H_kv``",
            r"``h // \(H // H_kv\)``": "``h % H_kv``",
            r"head h // G, with ``G = H // num_kv_heads``": "head ``h % num_kv_heads``",
            'the table of who reads what. Notebook 16, "Repeat, never tile"': "the table of who reads what. It and notebook 16 describe neighbours that share a head; in your variant heads h, h + H_kv, ... share one",
            "where neighbours share a head": "where heads h, h + H_kv, ... share a head",
            "changes only the first group": "changes only the query heads that read it",
        },
        frozenset({"groups tiled, not repeated", "gradients summed as if tiled"}),
    ),
    Convention(
        "heads alternate",
        "The columns of the heads alternate: of H heads, head h has columns h, h + H, h + 2*H and "
        "so on, as in SuperGlue.",
        frozenset({"columns"}),
        _at(COLUMNS, split_heads="x")
        | {"merge_heads": Turns({}, {"": _alternating(-1, lambda inputs: inputs["heads"].shape[1])})}
        | {
            task: Turns({
                **dict.fromkeys("params.w_q params.b_q params.w_k params.b_k params.w_v params.b_v".split(), COLUMNS),
                "params.w_o": ROWS,
            })
            for task in ("multi_head", "cross_attention")
        }
        | {
            "decode_step": Turns({
                "params.w_q": COLUMNS, "params.b_q": COLUMNS, "params.w_o": ROWS,
                **dict.fromkeys("params.w_k params.b_k params.w_v params.b_v".split(), KV_COLUMNS),
            }),
            "input_gradient": Turns(dict.fromkeys("params.w_q params.w_k params.w_v".split(), COLUMNS)),
            "multi_head_backward": Turns(
                {
                    **dict.fromkeys("params.w_q params.b_q params.w_k params.b_k params.w_v params.b_v saved.merged".split(), COLUMNS),
                    "params.w_o": ROWS,
                },
                {
                    **dict.fromkeys("d_params.w_q d_params.b_q d_params.w_k d_params.b_k d_params.w_v d_params.b_v".split(), COLUMNS),
                    "d_params.w_o": ROWS,
                },
            ),
        },
        {
            r"Head h gets columns ``h\*d`` to ``\(h \+ 1\)\*d - 1`` of every token": "Head h gets every H-th column of every token, starting with column h",
            r"x\[b, t, h\*d \+ c\]": "x[b, t, c*H + h]",
            "Head 0 has the first d columns, head 1 the next, and so on": "The columns of the heads alternate: column 0 of each head, then column 1, and so on",
            r"merged\[b, t, h\*d \+ c\]": "merged[b, t, c*H + h]",
            "Lay the heads of every token side by side": "Join the heads of every token, with columns that alternate",
            "Head h takes the h-th block of their columns, d_k wide for queries and keys and d_v for values,": "Head h takes every H-th of their columns, starting with column h, d_k of them for queries and keys and d_v for values,",
            r"The (H )?heads, side by side in their order, are": r"The columns of the \1heads alternate in the same way in",
            "head h has the h-th block of d columns": "head h has every H-th column, starting with column h (every H_kv-th of keys and values)",
            SPLIT: ".reshape(B, T, d, H).transpose(0, 3, 1, 2)",
        },
        frozenset({
            "heads interleaved when split", "heads interleaved when merged",
            "heads merged in reverse", "split without transpose", "merge without transpose",
        }),
    ),
    Convention(
        "packed as q, v, k",
        "The three blocks of columns of c_attn_w and of c_attn_b are queries, values, keys, in "
        "this order, as in CodeGen.",
        frozenset({"packing"}),
        _at(PACKED, from_gpt2="c_attn_w c_attn_b", to_gpt2="-> c_attn_w c_attn_b"),
        {
            "the attention params of GPT-2, as Hugging Face stores them": "attention params that are packed as in GPT-2, but in CodeGen's order",
            "as GPT-2 stores its attention": "as GPT-2 stores its attention, but in CodeGen's order",
            "GPT-2 computes": "The model computes",
            "GPT-2, as in Hugging Face, computes": "The model computes",
            "the next D the keys, the last D the values": "the next D the values, the last D the keys",
            "the order is q, k, v": "the order is q, v, k",
        },
        frozenset({"in the order q, v, k", "in the order k, q, v", "in the order v, k, q"}),
    ),
    Convention(
        "scores over d_k",
        "The scores are divided by d_k, not by its square root, as in muP.",
        frozenset({"scale"}),
        _of_scale(0.5),
        {
            "divided by the square root of d_k": "divided by d_k",
            r"sqrt\((d\w*)\)": r"\1",
            r"np\.sqrt\((q\.shape\[-1\])\)": r"\1",
            "by the root of a head's width": "by a head's width",
            "Eq. 1 of Vaswani et al. 2017": "Eq. 1 of Vaswani et al. 2017 (yours has d_k for its root)",
        },
        frozenset({"scale 1/sqrt(D) of the input"}),
        {"np.sqrt(q.shape[-1])": "q.shape[-1]"},
    ),
    Convention(
        "scores without scale",
        "The scores are the products of queries and keys, and are not divided by anything, as in "
        "T5 and GPT-Neo.",
        frozenset({"scale"}),
        _of_scale(-0.5),
        {
            ", divided by the square root of d_k": ", without any scale",
            r" / sqrt\(d\w*\)": "",
            r" / np\.sqrt\(q\.shape\[-1\]\)": "",
            "divided by d_k instead of its root": "divided by d_k",
            "before they are scaled": "too early",
            "Eq. 1 of Vaswani et al. 2017": "Eq. 1 of Vaswani et al. 2017 (yours has no square root)",
            "The scores are a matrix product with a number in front": "The scores are a matrix product; leave out the number in front",
        },
        frozenset({"scale twice in backward", "scale 1/sqrt(D) of the input"}),
        {"np.sqrt(q.shape[-1])": "1.0"},
    ),
    Convention(
        "params as (outputs, inputs)",
        "Every w is stored as (outputs, inputs), and so is its gradient: a linear map is "
        "x @ w.T + b, as in PyTorch's `nn.Linear`.",
        frozenset({"params"}),
        _at(TRANSPOSE, **MAPS),
        {
            OF_MAP: r"(\2, \1)",
            r"(\w+) @ (params\.)?(w\w*) \+": r"\1 @ \2\3.T +",
            "for each column of its ``w``": "for each row of its ``w``",
            "through w instead of w.T": "through w.T instead of w",
            r"(w_\w) is used transposed": r"\1 is used without its transpose",
            r"\(B, inputs, outputs\)": "(B, outputs, inputs)",
        },
    ),
    Convention(
        "heads after the tokens",
        "Heads come after the tokens: queries, keys and values of all heads are (B, T, H, d), as "
        "in FlashAttention and JAX.",
        frozenset({"layout"}),
        _at(_axes(0, 2, 1), **HEADS),
        {
            AXES: r"(B, \2, \1, \3)",
            SCORES: _einsum("bihc,bjhc->bhij", "q", "k"),
            MIX: _einsum("bhij,bjhc->bihc", "weights", "v"),
            OF_GROUP: "q[:, :, h] @ k[:, :, g].swapaxes(-1, -2)",
            MIX_OF_GROUP: "weights @ v[:, :, g]",
            **_of_layout(
                ".reshape(B, T, H, d)", ".reshape(B, T, d, H).swapaxes(2, 3)", "BTHd", "third", 2,
            ),
        },
        frozenset({
            "split without transpose", "heads left after the tokens", "merge without transpose",
            "heads before the batch", "heads not merged",
        }),
    ),
    Convention(
        "tokens first",
        "Tokens come first: inputs and outputs are (T, B, D), and queries, keys and values of all "
        "heads are (T, B, H, d), as in Megatron-LM.",
        frozenset({"layout"}),
        _joined(_at(_axes(2, 0, 1), **HEADS), _at(_axes(1, 0), **SEQUENCES)),
        {
            AXES: r"(\2, B, \1, \3)",
            OF_TOKENS: r"(\1, B, \2)",
            r"(x|merged)\[b, t, ": r"\1[t, b, ",
            SCORES: _einsum("ibhc,jbhc->bhij", "q", "k"),
            MIX: _einsum("bhij,jbhc->ibhc", "weights", "v"),
            OF_GROUP: _einsum("ibc,jbc->bij", "q[:, :, h]", "k[:, :, g]"),
            MIX_OF_GROUP: _einsum("bij,jbc->ibc", "weights", "v[:, :, g]"),
            **_of_layout(
                ".reshape(T, B, H, d)", ".reshape(T, B, d, H).swapaxes(2, 3)", "TBHd", "third", 2,
            ),
        },
        frozenset({
            "split without transpose", "heads left after the tokens", "merge without transpose",
            "heads before the batch", "heads not merged",
        }),
        same=frozenset({"linear_backward"}),
    ),
    Convention(
        "heads first",
        "Heads come first: queries, keys, values, scores and weights of all heads are "
        "(H, B, T, ...), as in the PyTorch code for \"Attention is all you need\" by jadore801120.",
        frozenset({"layout"}),
        _joined(_at(_axes(1, 0), **HEADS), _at(_axes(1, 0), **CELLS_OF_HEADS), _at(_axes(1, 0), backward_from_lse="lse")),
        {
            r"\(B, (H\w*|1), (T\w*|T \+ 1), (d\w*|T\w*)\)": r"(\1, B, \2, \3)",
            r"\(B, H, T_q\)": "(H, B, T_q)",
            r"scores\[b, h, i, j\]": "scores[h, b, i, j]",
            OF_GROUP: "q[h] @ k[g].swapaxes(-1, -2)",
            MIX_OF_GROUP: "weights @ v[g]",
            **_of_layout(
                ".reshape(B, T, H, d).transpose(2, 0, 1, 3)",
                ".reshape(B, T, d, H).transpose(3, 0, 1, 2)", "HBTd", "first", 0,
            ),
        },
        frozenset({
            "split without transpose", "heads left after the tokens", "merge without transpose",
            "heads before the batch", "heads not merged", "no axis for the heads",
            "mask's batch axis lined up with the heads",
        }),
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
        _at(TRANSPOSE) | _joined(*(_at(TRANSPOSE, **names) for names in (HEADS, SEQUENCES, CELLS, ONE_HEAD, MAPS))),
        {
            r'"[^"]*"|\b([Rr]ows?|columns?)\b': _exchanged,
            AXES: r"(B, \1, \3, \2)",
            OF_TOKENS: r"(B, \2, \1)",
            r"T_q, T_k\)": "T_k, T_q)",
            r"\((T_\w), (d_\w)\)": r"(\2, \1)",
            OF_MAP: r"(\2, \1)",
            r"(x|merged)\[b, t, ([^]]*)\]": r"\1[b, \2, t]",
            r"scores\[b, h, i, j\]": "scores[b, h, j, i]",
            "last axis": "last axis but one",
            "(heads,?|token) side by side": r"\1 one below the other",
            "d_k wide for": "d_k of them for",
            r"axis=-1\b": "axis=-2",
            r"(\w+) @ (params\.)?(w\w*) \+ ((?:params\.)?b\w*)": r"\2\3 @ \1 + \4[:, None]",
            r"softmax\(q k\^T(.*?)\) v": r"v softmax(k^T q\1)",
            r"\bq k\^T": "k^T q",
            r"\bk q\^T": "q^T k",
            SCORES: "k.swapaxes(-1, -2) @ q",
            MIX: "v @ weights",
            OF_GROUP: "k[:, g].swapaxes(-1, -2) @ q[:, h]",
            MIX_OF_GROUP: "v[:, g] @ weights",
            r"q\.shape\[-1\]": "q.shape[-2]",
            r"\(B, inputs, outputs\)": "(B, outputs, inputs)",
            **_of_layout(
                ".reshape(B, H, d, T)", ".reshape(B, d, H, T).swapaxes(1, 2)", "BHdT", "second", 1,
            ),
        },
        frozenset({
            "split without transpose", "heads left after the tokens", "merge without transpose",
            "heads before the batch", "heads not merged", "k reshaped, not transposed",
        }),
        same=frozenset({"dropout_backward", "sum_over_group"}),
    ),
]  # fmt: skip
CONVENTIONS = {convention.name: convention for convention in TABLE}
