"""What a head takes from each token, and a layer without some of its heads."""

import numpy as np

from mha_numpy.teach.diagnosis.draws import draw_params
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece


def _draw_brought(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights, values and w_o: all sizes different, and T_q = T_k, D = H d_v."""
    probes = []
    for B, H, T_q, T_k, d_v, D in ((2, 3, 5, 7, 4, 10), (2, 3, 4, 4, 2, 6)):
        powers = rng.random((B, H, T_q, T_k))
        probes.append({
            "weights": powers / powers.sum(axis=-1, keepdims=True),
            "v": rng.normal(size=(B, H, T_k, d_v)),
            "w_o": rng.normal(size=(H * d_v, D)),
        })  # fmt: skip
    return probes


def _draw_layers(rng: np.random.Generator) -> list[Inputs]:
    """Draw params, and heads to remove: all sizes different, and all of the width D."""
    return [
        {
            "params": draw_params(rng, D, H * d_k, v_width=H * d_v),
            "num_heads": H,
            "heads": np.array(heads),
        }
        for D, H, d_k, d_v, heads in ((10, 3, 4, 5, [1]), (12, 4, 3, 3, [2, 0]))
    ]


PIECES = [
    Piece(
        "weights_times_norm",
        _draw_brought,
        result="brought",
        laws=[Law("no length is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
    ),
    Piece("prune_heads", _draw_layers),
]

# fmt: off
MISTAKES = [
    Mistake("length of v without w_o", "the lengths are those of v, but what a head writes is v times its rows of w_o",
            "v @ w_o.reshape(H, d_v, -1)", {"brought = v @ its_rows": "brought = v"}),
    Mistake("lengths along the queries", "row i is multiplied by a length of token i: the axis of the lengths is that of the keys",
            "lengths[:, :, None, :]", {"lengths[:, :, None, :]": "lengths[:, :, :, None]"}),
    Mistake("squared lengths", "the root is missing: the sum of squares is the length's square", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "(brought**2).sum(axis=-1)"}),
    Mistake("sum of absolute values for a length", "absolute values are summed instead of squares", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "np.abs(brought).sum(axis=-1)"}),
    Mistake("mean of squares for a length", "squares are averaged over the D features instead of summed",
            "np.linalg.norm(..., axis=-1)", {"(brought**2).sum(axis=-1)": "(brought**2).mean(axis=-1)"}),
    Mistake("largest feature for a length", "the largest absolute feature is taken for the length", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "np.abs(brought).max(axis=-1)"}),
    Mistake("rows of w_o dealt out", "every H-th row of w_o is taken for a head, but a head's rows stand together",
            "w_o.reshape(H, d_v, -1)", {"w_o.reshape(H, d_v, -1)": "w_o.reshape(d_v, H, -1).swapaxes(0, 1)"}),
    Mistake("rows of head 0 for all", "all heads are mapped by the rows of head 0", "w_o.reshape(H, d_v, -1), one block for each head",
            {"brought = v @ its_rows": "brought = v @ its_rows[0]"}),
    Mistake("w_o transposed for the lengths", "w_o is transposed first, but the rows of w_o belong to a head, not its columns", "w_o.reshape(H, d_v, -1)",
            {"w_o.reshape(H, d_v, -1)": "w_o.T.reshape(H, d_v, -1)"}),
    Mistake("shares of each row", "each row is divided by its sum, but the task asks for lengths, not for shares",
            "weights * lengths[:, :, None, :]",
            {"lengths[:, :, None, :] * weights":
             "weights * lengths[:, :, None, :] / (weights * lengths[:, :, None, :]).sum(axis=-1, keepdims=True)"}),
    Mistake("lengths without weights", "the weights are left out, so that all rows are the same", "weights * lengths[:, :, None, :]",
            {"lengths[:, :, None, :] * weights": "np.ones_like(weights) * lengths[:, :, None, :]"}),
    Mistake("weights without lengths", "the weights are returned as they are", "weights * lengths[:, :, None, :]",
            {"lengths[:, :, None, :] * weights": "weights.copy()"}),
    Mistake("lengths: mean over the heads", "each token has the mean of its lengths over all heads", "a length for each head",
            {"lengths[:, :, None, :] * weights": "weights * lengths.mean(axis=1, keepdims=True)[:, :, None, :]"}),

    Mistake("heads kept that should go", "the heads that should go are kept, and the others are removed", "np.isin(..., invert=True)",
            {"heads, invert=True)": "heads)"}),
    Mistake("every H-th column removed", "every H-th column is removed, but the columns of one head stand together",
            "np.repeat(stays, d_k), not np.tile",
            {"np.repeat(stays, w_q.shape[1] // num_heads)": "np.tile(stays, w_q.shape[1] // num_heads)",
             "np.repeat(stays, w_v.shape[1] // num_heads)": "np.tile(stays, w_v.shape[1] // num_heads)"}),
    Mistake("rows of w_q, w_k, w_v removed", "rows of w_q, w_k and w_v are removed, as if they were (outputs, inputs)",
            "w_q[:, stays], and so for w_k and w_v",
            {"w_q[:, of_qk]": "w_q[of_qk]", "w_k[:, of_qk]": "w_k[of_qk]", "w_v[:, of_v]": "w_v[of_v]"}),
    Mistake("columns of w_o removed", "columns of w_o are removed, but a head goes through the rows of w_o", "w_o[stays]",
            {"w_o[of_v]": "w_o[:, of_v]"}),
    Mistake("w_o left whole", "w_o keeps the rows of the heads that are gone", "w_o[stays]", {"w_o[of_v]": "w_o"}),
    Mistake("b_o cut, too", "b_o is cut, but it belongs to the D features of the output, not to heads", "b_o stays whole",
            {"w_o[of_v], b_o,": "w_o[of_v], b_o[of_v],"}),
    Mistake("biases left whole", "b_q, b_k and b_v keep the numbers of the heads that are gone", "b_q[stays], b_k[stays], b_v[stays]",
            {"b_q[of_qk]": "b_q", "b_k[of_qk]": "b_k", "b_v[of_v]": "b_v"}),
    Mistake("only w_o pruned", "only w_o is cut, so the heads that are gone would still be computed",
            "cut the columns of w_q, w_k, w_v and their biases, too",
            {"w_q[:, of_qk], b_q[of_qk]": "w_q, b_q", "w_k[:, of_qk], b_k[of_qk]": "w_k, b_k", "w_v[:, of_v], b_v[of_v]": "w_v, b_v"}),
    Mistake("only the queries pruned", "w_k and w_v stay whole, though no query reads these heads any more",
            "w_k and w_v lose the same heads",
            {"w_k[:, of_qk], b_k[of_qk]": "w_k, b_k", "w_v[:, of_v], b_v[of_v]": "w_v, b_v"}),
    Mistake("zeros instead of fewer", "the params of the heads are set to 0 and keep their shapes", "remove them: w_q[:, stays]",
            {"w_q[:, of_qk], b_q[of_qk]": "w_q * of_qk, b_q * of_qk", "w_k[:, of_qk], b_k[of_qk]": "w_k * of_qk, b_k * of_qk",
             "w_v[:, of_v], b_v[of_v]": "w_v * of_v, b_v * of_v", "w_o[of_v]": "w_o * of_v[:, None]"}),
    Mistake("the last heads removed", "as many heads are removed, but always the last ones", "np.isin(np.arange(num_heads), heads, invert=True)",
            {"np.isin(np.arange(num_heads), heads, invert=True)": "np.arange(num_heads) < num_heads - len(heads)"}),
    Mistake("heads counted from 1", "heads are counted from 1: head h is taken for head h - 1", "np.arange(num_heads)",
            {"np.isin(np.arange(num_heads), heads": "np.isin(np.arange(1, num_heads + 1), heads"}),
    Mistake("heads taken for columns", "head h is taken for column h, so single columns are removed", "np.repeat(stays, d_k)",
            {"np.repeat(stays, w_q.shape[1] // num_heads)": "np.isin(np.arange(w_q.shape[1]), heads, invert=True)",
             "np.repeat(stays, w_v.shape[1] // num_heads)": "np.isin(np.arange(w_v.shape[1]), heads, invert=True)"}),
    Mistake("one head removed of several", "only the first of the heads is removed", "all of heads",
            {"heads, invert=True)": "heads[:1], invert=True)"}),
]
# fmt: on
