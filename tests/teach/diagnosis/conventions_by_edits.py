"""Conventions once more, each said by edits of the solutions, by the file that they are in."""

from mha_numpy.teach.diagnosis.bank import EDITS as MADE_BY

AFTER_TOKENS = {
    "split_heads": {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)"},
    "merge_heads": {"B, H, T, d = heads.shape\n    return heads.transpose(0, 2, 1, 3)": "B, T, H, d = heads.shape\n    return heads"},
}  # fmt: skip
# a way that owes nothing to arrays that are turned there and back; some are mistakes elsewhere
EDITS = {
    "True = blocked": MADE_BY["mask inverted"],
    "p = kept": MADE_BY["dropout: divided by p"],
    "0 and -inf": {
        "softmax_with_lse": {"axis = -1": "axis = -1\n    mask = None if mask is None else mask == 0"},
        "make_mask": {"return past & near & token": "return np.where(past & near & token, 0.0, -np.inf)"},
        "backward_from_lse": {"np.where(mask, scores - lse, -np.inf)": "np.where(np.isneginf(mask), -np.inf, scores - lse)"},
    },
    "heads alternate": {
        "split_heads": {"num_heads, d).transpose(0, 2, 1, 3)": "d, num_heads).transpose(0, 3, 1, 2)"},
        "merge_heads": {"heads.transpose(0, 2, 1, 3)": "heads.transpose(0, 2, 3, 1)"},
    },
    "groups in turn": MADE_BY["groups tiled, not repeated"] | MADE_BY["gradients summed as if tiled"],
    "packed as q, v, k": MADE_BY["in the order q, v, k"],
    "params as (outputs, inputs)": {
        "multi_head": {"x @ params.w_q + params": "x @ params.w_q.T + params", "x @ params.w_k + params": "x @ params.w_k.T + params", "x @ params.w_v + params": "x @ params.w_v.T + params", "x @ params.w_o + params": "x @ params.w_o.T + params"},
        "input_gradient": {"merge_heads(d_q) @ params.w_q.T": "merge_heads(d_q) @ params.w_q", "merge_heads(d_k) @ params.w_k.T": "merge_heads(d_k) @ params.w_k", "merge_heads(d_v) @ params.w_v.T": "merge_heads(d_v) @ params.w_v"},
        "linear_backward": {"return through_linear(d_out, x, w)": "d_x, d_w, d_b = through_linear(d_out, x, w.T)\n    return LinearGrads(d_x, d_w.T, d_b)"},
    },
    "scores over d_k": MADE_BY["scale 1/d_k"] | MADE_BY["scale twice in backward"] | {
        "backward_from_lse": {"np.sqrt(q.shape[-1])": "q.shape[-1]"},
    },
    "scores without scale": MADE_BY["scale missing"] | MADE_BY["scale left out of backward"] | MADE_BY["scale missing in the recomputed scores"],
    "tokens as columns": {
        "scores": {"return scale * q @ k.swapaxes(-1, -2)": "return np.swapaxes(k, -1, -2) @ q / np.sqrt(q.shape[-2])"},
        "softmax": {"return softmax_with_lse(scores, mask).weights": "return softmax_with_lse(scores.swapaxes(-1, -2), None if mask is None else mask.swapaxes(-1, -2)).weights.swapaxes(-1, -2)"},
        "make_mask": {"return past & near & token": "return (past & near & token).swapaxes(-1, -2)"},
        "softmax_backward": {"(weights * d_weights).sum(axis=-1, keepdims=True)": "(weights * d_weights).sum(axis=-2, keepdims=True)"},
        "split_heads": {"x.reshape(B, T, num_heads, d).transpose(0, 2, 1, 3)": "x.reshape(B, num_heads, T // num_heads, -1)"},
    },
    "heads after the tokens": AFTER_TOKENS,
    "heads first": {
        "split_heads": {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d).transpose(2, 0, 1, 3)"},
        "merge_heads": {"B, H, T, d = heads.shape\n    return heads.transpose(0, 2, 1, 3)": "H, B, T, d = heads.shape\n    return heads.transpose(1, 2, 0, 3)"},
    },
    "tokens first": AFTER_TOKENS,
}  # fmt: skip
