"""The way back through a layer: linear maps, branches, all of it."""

import numpy as np

from mha_numpy.core import MultiHeadParams, multi_head_attention_forward, split_heads
from mha_numpy.dtypes import Array
from mha_numpy.teach.diagnosis.draws import causal_mask, draw_params, draw_self
from mha_numpy.teach.diagnosis.mistake import Mistake, for_each
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Slope
from mha_numpy.teach.diagnosis.right.layer import run_layer


def _draw_linear(rng: np.random.Generator) -> list[Inputs]:
    """Draw a rectangular map and a square one."""
    shapes = ((3, 4, 5, 6), (2, 4, 5, 5))
    return [
        {"d_out": rng.normal(size=(B, T, m)), "x": rng.normal(size=(B, T, n)),
         "w": rng.normal(size=(n, m))}
        for B, T, n, m in shapes
    ]  # fmt: skip


def _draw_branches(rng: np.random.Generator) -> list[Inputs]:
    """Draw gradients of q, k and v: H*d other than D, and all sizes but D equal."""
    probes = []
    for (B, H, T, d), D in (((2, 3, 5, 4), 10), ((3, 3, 3, 3), 9)):
        d_q, d_k, d_v = rng.normal(size=(3, B, H, T, d))
        params = draw_params(rng, D, H * d)
        probes.append({"d_q": d_q, "d_k": d_k, "d_v": d_v, "params": params})
    return probes


def _draw_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw what the layer's backward gets; in the second, row 0 sees nothing."""
    probes = []
    for first, inputs in enumerate(draw_self(rng, value_dim=4)[:2]):
        x, params, num_heads, _ = inputs.values()
        mask = causal_mask(x.shape[1], x.shape[1], first=first)
        out, saved = run_layer(x, x, params, num_heads, mask)
        probes.append({"d_out": rng.normal(size=out.shape), "params": params, "saved": saved})
    return probes


def _slope_of_linear(inputs: Inputs) -> Slope:
    """Differentiate the map, with a bias of 0."""
    x, w = inputs["x"], inputs["w"]
    at = {"x": x, "w": w, "b": np.zeros(w.shape[1])}
    return Slope(lambda x, w, b: x @ w + b, at, inputs["d_out"])


def _slope_of_branches(inputs: Inputs) -> Slope:
    """Differentiate q, k and v by the x that all three are made of."""
    params, upstream = inputs["params"], (inputs["d_q"], inputs["d_k"], inputs["d_v"])
    (B, H, T, _), D = upstream[0].shape, params.w_q.shape[0]

    def forward(x: Array) -> Array:
        maps = (params.w_q, params.w_k, params.w_v)
        return np.concatenate([split_heads(x @ w, H).ravel() for w in maps])

    x = np.random.default_rng(0).normal(size=(B, T, D))
    return Slope(forward, {"x": x}, np.concatenate([d.ravel() for d in upstream]))


def _slope_of_layer(inputs: Inputs) -> Slope:
    """Differentiate the layer by its input and all params."""
    saved = inputs["saved"]

    def forward(x: Array, params: MultiHeadParams) -> tuple[Array, object]:
        H, mask = saved.q.shape[1], saved.weights > 0
        return multi_head_attention_forward(x, params=params, num_heads=H, mask=mask)

    return Slope(forward, {"x": saved.x, "params": inputs["params"]}, inputs["d_out"])


PIECES = [
    Piece(
        "linear_backward",
        _draw_linear,
        laws=[
            Law(
                "d_x * x and d_w * w have the same sum",
                lambda inputs, arrays: np.asarray(
                    (arrays["d_x"] * inputs["x"]).sum() - (arrays["d_w"] * inputs["w"]).sum()
                ),
            )
        ],
        slope=_slope_of_linear,
    ),
    Piece("input_gradient", _draw_branches, result="d_x", slope=_slope_of_branches),
    Piece(
        "multi_head_backward",
        _draw_backward,
        laws=[
            Law(
                "d_b_k is 0, as a bias of the keys adds one number to all scores of a row",
                lambda _, arrays: arrays["d_params.b_k"],
            )
        ],
        slope=_slope_of_layer,
    ),
]


# fmt: off
MISTAKES = [
    Mistake("d_x by w, not its transpose", "the gradient goes back through w where w.T belongs", "d_out @ w.T",
            {"d_out @ w.T": "d_out @ w", **{f"@ params.w_{letter}.T": f"@ params.w_{letter}" for letter in "qkv"}}),
    Mistake("d_w of the last sequence alone", "d_w is computed from the last sequence alone", "sum over the batch",
            {"@ d_out).sum(axis=0)": "@ d_out)[-1]"}),
    Mistake("d_w not summed over the batch", "d_w is (B, inputs, outputs): its sum over the batch is left out",
            "sum over the batch", {"@ d_out).sum(axis=0)": "@ d_out)"}),
    Mistake("d_w: mean over the batch", "d_w is the mean over the batch instead of the sum", "sum over the batch",
            {"@ d_out).sum(axis=0)": "@ d_out).mean(axis=0)"}),
    Mistake("d_w: mean over batch and tokens", "d_w is a mean over batch and tokens", "sum over both",
            {"@ d_out).sum(axis=0)": "@ d_out).mean(axis=0) / x.shape[1]"}),
    Mistake("d_w transposed", "d_w is transposed", "x.T @ d_out, (inputs, outputs)",
            {"@ d_out).sum(axis=0)": "@ d_out).sum(axis=0).T"}),
    Mistake("d_b of the last sequence alone", "d_b is computed from the last sequence alone", "sum over the batch",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out[-1].sum(axis=0)"}),
    Mistake("d_b of the last token alone", "d_b is computed from the last tokens alone", "sum over the tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out[:, -1].sum(axis=0)"}),
    Mistake("d_b: mean", "d_b is a mean over batch and tokens", "sum over both",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.mean(axis=(0, 1))"}),
    Mistake("d_b: mean over the batch", "d_b is the mean over the batch instead of the sum", "sum over the batch",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.mean(axis=0).sum(axis=0)"}),
    Mistake("d_b: zero", "d_b is 0", "d_out.sum(axis=(0, 1))",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = np.zeros(d_out.shape[-1])"}),
    Mistake("d_b over one axis", "d_b is summed over the batch alone", "sum over batch and tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.sum(axis=0)"}),
    Mistake("d_b over the tokens alone", "d_b is summed over the tokens alone", "sum over batch and tokens",
            {"d_b = d_out.sum(axis=(0, 1))": "d_b = d_out.sum(axis=1)"}),
    Mistake("d_w_o from the output", "d_w_o is computed from the layer's output instead of merged", "merged.T @ d_out",
            {"through_linear(d_out, saved.merged, params.w_o)":
             "through_linear(d_out, saved.merged, params.w_o)\n    d_w_o = through_linear(d_out, project_o(saved.merged, params), params.w_o).d_w"}),
    Mistake("output projection skipped in backward", "d_merged is d_out: the output projection is skipped",
            "d_out @ w_o.T", {"split_heads(d_merged,": "split_heads(d_out,"}),
    Mistake("params of k from d_q", "d_w_k and d_b_k are computed from d_q", "d_w_k from d_k",
            {"merge_heads(d_k), saved.x": "merge_heads(d_q), saved.x"}),
    *for_each([*"qkv"], "branch of ? forgotten",
            "x is used for q, k and v, and the share through ? is missing in d_x", "d_x sums all three branches",
            {"from_? = ": "from_? = 0 * "}),
    *for_each([*"qkv"], "branch of ? alone", "x is used for q, k and v, and d_x has the share through ? alone",
            "d_x sums all three branches", {"return from_q + from_k + from_v": "return from_?"}),
    Mistake("mean of the branches", "d_x is the mean of what comes back through q, k and v",
            "d_x sums all three branches",
            {"return from_q + from_k + from_v": "return (from_q + from_k + from_v) / 3"}),
    Mistake("w_k and w_v swapped in backward", "d_k goes back through w_v, and d_v through w_k",
            "each goes back through its own w",
            {"@ params.w_k.T": "@ params.w_v.T", "@ params.w_v.T": "@ params.w_k.T"}),
    Mistake("w_q for all branches", "d_q, d_k and d_v all go back through w_q", "each goes back through its own w",
            {"@ params.w_k.T": "@ params.w_q.T", "@ params.w_v.T": "@ params.w_q.T"}),
]
# fmt: on
