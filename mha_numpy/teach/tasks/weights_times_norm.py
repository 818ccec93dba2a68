"""What a head takes."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task


def weights_times_norm(weights: Array, v: Array, w_o: Array) -> Array:
    """Return each weight times the length of what it brings (Kobayashi et al. 2020).

    Head h writes ``sum_j weights_ij (v_j w_o^h)`` into token i, where w_o^h is the h-th block of
    d_v rows of w_o. Return the length of each term: ``weights_ij |v_j w_o^h|``.

    Parameters
    ----------
    weights : (B, H, T_q, T_k)
    v : (B, H, T_k, d_v)
    w_o : (H*d_v, D)

    Returns
    -------
    brought : (B, H, T_q, T_k)
    """
    H, d_v = v.shape[1], v.shape[3]
    its_rows = w_o.reshape(H, d_v, -1)  # (H, d_v, D)
    brought = v @ its_rows  # (B, H, T_k, D)
    lengths = np.sqrt((brought**2).sum(axis=-1))  # (B, H, T_k)
    return lengths[:, :, None, :] * weights


def _draw_brought(rng: np.random.Generator) -> list[Inputs]:
    """Draw weights, values and w_o: all sizes different, and T_q = T_k, D = H d_v."""
    probes = []
    for B, H, T_q, T_k, d_v, D in (
        (2, 3, 5, 7, 4, 10),
        (2, 3, 4, 4, 2, 6),
        (1, 4, 6, 2, 3, 5),
        (3, 1, 1, 4, 2, 3),
    ):
        powers = rng.random((B, H, T_q, T_k))
        probes.append({
            "weights": powers / powers.sum(axis=-1, keepdims=True),
            "v": rng.normal(size=(B, H, T_k, d_v)),
            "w_o": rng.normal(size=(H * d_v, D)),
        })  # fmt: skip
    return probes


MISTAKES = [
    Mistake("length of v without w_o", "the lengths are those of v, but what a head writes is v times its rows of w_o",
            "v @ w_o.reshape(H, d_v, -1)", {"brought = v @ its_rows": "brought = v"}),
    Mistake("lengths along the queries", "row i is multiplied by the length of token i, but the axis of the lengths is that of the keys",
            "lengths[:, :, None, :]", {"lengths[:, :, None, :]": "lengths[:, :, :, None]"}),
    Mistake("squared lengths", "the root is missing, so the lengths are squared", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "(brought**2).sum(axis=-1)"}),
    Mistake("sum of absolute values for a length", "absolute values are summed instead of squares", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "np.abs(brought).sum(axis=-1)"}),
    Mistake("mean of squares for a length", "squares are averaged over the D features instead of summed",
            "np.linalg.norm(..., axis=-1)", {"(brought**2).sum(axis=-1)": "(brought**2).mean(axis=-1)"}),
    Mistake("largest feature for a length", "the largest absolute feature is used as the length", "np.linalg.norm(..., axis=-1)",
            {"np.sqrt((brought**2).sum(axis=-1))": "np.abs(brought).max(axis=-1)"}),
    Mistake("rows of w_o dealt out", "every H-th row of w_o is read as one head, but a head's rows are next to each other",
            "w_o.reshape(H, d_v, -1)", {"w_o.reshape(H, d_v, -1)": "w_o.reshape(d_v, H, -1).swapaxes(0, 1)"}),
    Mistake("rows of head 0 for all", "all heads are mapped through the rows of head 0", "w_o.reshape(H, d_v, -1), one block for each head",
            {"brought = v @ its_rows": "brought = v @ its_rows[0]"}),
    Mistake("w_o transposed for the lengths", "w_o is transposed first, but its rows belong to a head, not its columns", "w_o.reshape(H, d_v, -1)",
            {"w_o.reshape(H, d_v, -1)": "w_o.T.reshape(H, d_v, -1)"}),
    Mistake("shares of each row", "each row is divided by its sum, but the task asks for lengths, not for shares",
            "weights * lengths[:, :, None, :]", {"lengths[:, :, None, :] * weights":
             "weights * lengths[:, :, None, :] / (weights * lengths[:, :, None, :]).sum(axis=-1, keepdims=True)"}),
    Mistake("lengths without weights", "the weights are left out, so all rows are the same", "weights * lengths[:, :, None, :]",
            {"lengths[:, :, None, :] * weights": "np.ones_like(weights) * lengths[:, :, None, :]"}),
    Mistake("weights without lengths", "the weights are returned as they are", "weights * lengths[:, :, None, :]",
            {"lengths[:, :, None, :] * weights": "weights.copy()"}),
    Mistake("lengths: mean over the heads", "each token gets the mean of its lengths over all heads", "a length for each head",
            {"lengths[:, :, None, :] * weights": "weights * lengths.mean(axis=1, keepdims=True)[:, :, None, :]"}),
]  # fmt: skip

TASK = Task(
    weights_times_norm,
    place=300,
    difficulty=2,
    minutes=10,
    needs=("strongest-keys",),
    hints=Hints(
        where="A head writes the sum of its weights times v_j w_o^h. You need the length of each "
        'of these vectors: notebook 23, "Where it looks, and what it takes".',
        question="Take two heads with d_v = 3. Through which rows of w_o does head 1 write? One "
        "of its values is (0, 0, 0): what does that token bring if its weight is 0.9?",
        mistake="length of v without w_o",
        fix="weights * np.linalg.norm(v @ w_o.reshape(H, d_v, -1), axis=-1)[:, :, None, :]",
    ),
    draw=_draw_brought,
    laws=[Law("no length is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
    mistakes=MISTAKES,
)
