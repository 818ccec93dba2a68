"""One input, three branches."""

import numpy as np

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import draw_params, normal
from mha_numpy.teach.task import Again, Hints, Inputs, Mistake, Slope, Task
from mha_numpy.teach.tasks.merge_heads import merge_heads
from mha_numpy.teach.tasks.split_heads import split_heads


def input_gradient(d_q: Array, d_k: Array, d_v: Array, params: MultiHeadParams) -> Array:
    """Return the gradient of self-attention's input, from those of its queries, keys and values.

    Forward computed all three from one x, (B, T, D), the queries as::

        q = (x @ params.w_q + params.b_q).reshape(B, T, H, d).transpose(0, 2, 1, 3)

    and in the same way k with w_k and b_k, and v with w_v and b_v.

    Parameters
    ----------
    d_q : (B, H, T, d)
    d_k : (B, H, T, d)
    d_v : (B, H, T, d)
    params : MultiHeadParams
        w_q, w_k and w_v are (D, H*d). It also has the biases b_q, b_k, b_v, and w_o and b_o.

    Returns
    -------
    d_x : (B, T, D)
    """
    from_q = merge_heads(d_q) @ params.w_q.T
    from_k = merge_heads(d_k) @ params.w_k.T
    from_v = merge_heads(d_v) @ params.w_v.T
    return from_q + from_k + from_v


def _draw_branches(rng: np.random.Generator) -> list[Inputs]:
    """Draw gradients of q, k and v: H*d other than D, all sizes but D equal, one head."""
    probes = []
    for (B, H, T, d), D in (((2, 3, 5, 4), 10), ((3, 3, 3, 3), 9), ((1, 1, 4, 2), 3)):
        arrays = normal(rng, **dict.fromkeys(("d_q", "d_k", "d_v"), (B, H, T, d)))
        probes.append(arrays | {"params": draw_params(rng, D, H * d)})
    return probes


def _slope_of_branches(inputs: Inputs) -> Slope:
    """Differentiate q, k and v with respect to the x that all three come from."""
    params, upstream = inputs["params"], (inputs["d_q"], inputs["d_k"], inputs["d_v"])
    (B, H, T, _), D = upstream[0].shape, params.w_q.shape[0]

    def forward(x: Array) -> Array:
        maps = (params.w_q, params.w_k, params.w_v)
        return np.concatenate([split_heads(x @ w, H).ravel() for w in maps])

    x = np.random.default_rng(0).normal(size=(B, T, D))
    return Slope(forward, {"x": x}, np.concatenate([d.ravel() for d in upstream]))


MISTAKES: list[Mistake | Again] = [
    *(Mistake(f"branch of {x} forgotten", f"x is used for q, k and v, but d_x lacks the share through {x}",
              "d_x sums all three branches", {f"from_{x} = ": f"from_{x} = 0 * "}) for x in "qkv"),
    *(Mistake(f"only the branch of {x}", f"x is used for q, k and v, but d_x has only the share through {x}",
              "d_x sums all three branches", {"return from_q + from_k + from_v": f"return from_{x}"}) for x in "qkv"),
    Mistake("mean of the branches", "d_x is the mean of what comes back through q, k and v",
            "d_x sums all three branches",
            {"return from_q + from_k + from_v": "return (from_q + from_k + from_v) / 3"}),
    Mistake("w_k and w_v swapped in backward", "d_k goes back through w_v, and d_v through w_k",
            "each goes back through its own w",
            {"@ params.w_k.T": "@ params.w_v.T", "@ params.w_v.T": "@ params.w_k.T"}),
    Mistake("w_q for all branches", "d_q, d_k and d_v all go back through w_q", "each goes back through its own w",
            {"@ params.w_k.T": "@ params.w_q.T", "@ params.w_v.T": "@ params.w_q.T"}),
    Again("d_x through w, not its transpose", {"@ params.w_q.T": "@ params.w_q", "@ params.w_k.T": "@ params.w_k", "@ params.w_v.T": "@ params.w_v"}),
    Mistake("d_q for all branches", "only d_q goes back, through all three matrices",
            "d_k goes through w_k, d_v through w_v",
            {"merge_heads(d_k)": "merge_heads(d_q)", "merge_heads(d_v)": "merge_heads(d_q)"}),
]  # fmt: skip

TASK = Task(
    input_gradient,
    place=180,
    difficulty=3,
    minutes=15,
    needs=("merge-heads", "linear-backward"),
    hints=Hints(
        where="In self-attention one x is read three times: docs/multi-head.md, Backward of split "
        'and merge; notebook 04, "One x, used three times".',
        question="y = 2 x and z = 5 x, and the loss grows with y at rate 10 and with z at rate 1. "
        "At what rate does it grow with x?",
        mistake="branch of v forgotten",
        fix="merge(d_q) @ params.w_q.T + merge(d_k) @ params.w_k.T + merge(d_v) @ "
        "params.w_v.T\n"
        "where merge(d) is:\n"
        "d.transpose(0, 2, 1, 3).reshape(B, T, H * d.shape[-1])",
    ),
    draw=_draw_branches,
    slope=_slope_of_branches,
    mistakes=MISTAKES,
)
