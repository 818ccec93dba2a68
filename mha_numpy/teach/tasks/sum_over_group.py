"""What a shared head collects."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import normal
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Slope, Task


def sum_over_group(d_per_query_head: Array, num_kv_heads: int) -> Array:
    """Return the gradient of each key/value head, summed over its query heads.

    Forward let query head h read key/value head h // G, with ``G = H // num_kv_heads``. Backward
    has computed, for each query head, the gradient of the keys (or values) that it read.

    Parameters
    ----------
    d_per_query_head : (B, H, T, d)
    num_kv_heads : int
        H_kv, a divisor of H; 1 and H are possible.

    Returns
    -------
    d_shared : (B, H_kv, T, d)
    """
    B, H, T, d = d_per_query_head.shape
    grouped = d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d)
    return grouped.sum(axis=2)


def _slope_of_sharing(inputs: Inputs) -> Slope:
    d_out, H_kv = inputs["d_per_query_head"], inputs["num_kv_heads"]
    B, H, T, d = d_out.shape
    shared = np.random.default_rng(0).normal(size=(B, H_kv, T, d))
    return Slope(lambda shared: shared.repeat(H // H_kv, axis=1), {"shared": shared}, d_out)


MISTAKES = [
    Mistake("only the first of the group", "a shared head gets only the gradient of the first query head of its group",
            "sum over the group", {"grouped.sum(axis=2)": "grouped[:, :, 0]"}),
    Mistake("only the last of the group", "a shared head gets only the gradient of the last query head of its group",
            "sum over the group", {"grouped.sum(axis=2)": "grouped[:, :, -1]"}),
    Mistake("mean over the group", "a shared head gets the mean over its group instead of the sum",
            "sum over the group", {"grouped.sum(axis=2)": "grouped.mean(axis=2)"}),
    Mistake("group not summed", "the gradients of shared heads still have H heads: the sum over each group is left out",
            "reshape to (B, H_kv, G, T, d), sum axis 2", {"grouped.sum(axis=2)": "d_per_query_head"}),
    Mistake("gradients summed as if tiled",
            "gradients are summed over heads h, h + H_kv, ..., as if heads were tiled",
            "reshape to (B, H_kv, G, T, d), sum axis 2",
            {"(B, num_kv_heads, H // num_kv_heads, T, d)": "(B, H // num_kv_heads, num_kv_heads, T, d).swapaxes(1, 2)"}),
    Mistake("summed over the groups, not within",
            "gradients are summed over the groups, which leaves G heads instead of H_kv",
            "reshape to (B, H_kv, G, T, d), sum axis 2", {"grouped.sum(axis=2)": "grouped.sum(axis=1)"}),
]  # fmt: skip

TASK = Task(
    sum_over_group,
    place=200,
    difficulty=1,
    minutes=5,
    needs=("grouped-attention",),
    hints=Hints(
        where="Look at the head axis, axis 1, where neighbours share a head: docs/grouped.md, "
        'Backward; notebook 16, "Backward: what was shared is summed".',
        question="With four query heads and two key/value heads, which query heads read key/value "
        "head 0? Their gradients are 2 and 5: what is the gradient of the head that both read?",
        mistake="gradients summed as if tiled",
        fix="d_per_query_head.reshape(B, num_kv_heads, H // num_kv_heads, T, d).sum(axis=2)",
    ),
    draw=lambda rng: [  # 3 groups of 2, 2 of 3, one of all, and of 1 each
        normal(rng, d_per_query_head=shape) | {"num_kv_heads": H_kv}
        for shape, H_kv in (
            ((2, 6, 5, 4), 3),
            ((3, 6, 5, 2), 2),
            ((1, 4, 2, 3), 1),
            ((4, 3, 1, 5), 3),
        )
    ],
    laws=[
        Law(
            "the sum over all heads stays the same",
            lambda inputs, arrays: arrays[""].sum(axis=1) - inputs["d_per_query_head"].sum(axis=1),
        )
    ],
    slope=_slope_of_sharing,
    mistakes=MISTAKES,
)
