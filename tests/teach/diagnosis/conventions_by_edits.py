"""Conventions once more, each said by edits of the solutions, by the file that they are in."""

from mha_numpy.teach.diagnosis.bank import EDITS as MADE_BY

# a way that owes nothing to arrays that are turned there and back; some are mistakes elsewhere
EDITS = {
    "True = blocked": MADE_BY["mask inverted"],
    "p = kept": MADE_BY["dropout: divided by p"],
    "split from last to first": {
        "split_heads": {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)[:, :, ::-1].transpose(0, 2, 1, 3)"},
    },
    "merged from last to first": MADE_BY["heads merged in reverse"],
    "groups in turn": MADE_BY["groups tiled, not repeated"] | MADE_BY["gradients summed as if tiled"],
    "packed as v, k, q": MADE_BY["in the order v, k, q"],
    "params as (outputs, inputs)": {
        "multi_head": {"x @ params.w_q + params": "x @ params.w_q.T + params", "x @ params.w_k + params": "x @ params.w_k.T + params", "x @ params.w_v + params": "x @ params.w_v.T + params", "x @ params.w_o + params": "x @ params.w_o.T + params"},
        "input_gradient": {"merge_heads(d_q) @ params.w_q.T": "merge_heads(d_q) @ params.w_q", "merge_heads(d_k) @ params.w_k.T": "merge_heads(d_k) @ params.w_k", "merge_heads(d_v) @ params.w_v.T": "merge_heads(d_v) @ params.w_v"},
        "linear_backward": {"return through_linear(d_out, x, w)": "d_x, d_w, d_b = through_linear(d_out, x, w.T)\n    return LinearGrads(d_x, d_w.T, d_b)"},
    },
    "scores over d_k": MADE_BY["scale 1/d_k"],
    "direction of descent": {
        "dropout_backward": {"return d_dropped * keep": "return -d_dropped * keep"},
        "input_gradient": {"return from_q + from_k + from_v": "return -(from_q + from_k + from_v)"},
        "softmax_backward": {"return through_softmax(d_weights, weights, mean)": "return -through_softmax(d_weights, weights, mean)"},
        "scores_backward": {"return through_scores(d_scores, q, k)": "return through_scores(-d_scores, q, k)"},
        "linear_backward": {"return through_linear(d_out, x, w)": "return through_linear(-d_out, x, w)"},
        "attention_backward": {"return through_attention(d_heads, q, k, v, weights)": "return through_attention(-d_heads, q, k, v, weights)"},
        "backward_from_lse": {"return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))": "found = through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))\n    return InputGrads(*(-grad for grad in found))"},
    },
    "loss times 1024": {
        "dropout_backward": {"return d_dropped * keep": "return d_dropped / 1024 * keep"},
        "input_gradient": {"return from_q + from_k + from_v": "return (from_q + from_k + from_v) / 1024"},
        "softmax_backward": {"return through_softmax(d_weights, weights, mean)": "return through_softmax(d_weights, weights, mean) / 1024"},
        "scores_backward": {"return through_scores(d_scores, q, k)": "return through_scores(d_scores / 1024, q, k)"},
        "linear_backward": {"return through_linear(d_out, x, w)": "return through_linear(d_out / 1024, x, w)"},
        "attention_backward": {"return through_attention(d_heads, q, k, v, weights)": "return through_attention(d_heads / 1024, q, k, v, weights)"},
        "backward_from_lse": {"return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))": "return through_attention(d_heads / 1024, q, k, v, weights, delta(d_heads, heads) / 1024)"},
    },
    "keys as rows": {
        "scores": {"return scale * q @ k.swapaxes(-1, -2)": "return scale * k @ q.swapaxes(-1, -2)"},
        "softmax": {"return softmax_with_lse(scores, mask).weights": "return softmax_with_lse(scores.swapaxes(-1, -2), None if mask is None else mask.swapaxes(-1, -2)).weights.swapaxes(-1, -2)"},
        "make_mask": {"return past & near & token": "return (past & near & token).swapaxes(-1, -2)"},
        "scores_backward": {"scaled = d_scores /": "scaled = d_scores.swapaxes(-1, -2) /"},
        "softmax_backward": {"(weights * d_weights).sum(axis=-1, keepdims=True)": "(weights * d_weights).sum(axis=-2, keepdims=True)"},
    },
    "tokens as columns": {
        "attention": {"return attend(q, k, v).heads": "return attend(q.T, k.T, v.T).heads.T"},
        "one_query": {"return attend(q[None], k, v).heads[0]": "return attend(q[None], k.T, v.T).heads[0]"},
        "online_attention": {"T_q, T_k = len(q), len(k)": "q, k, v = q.T, k.T, v.T\n    T_q, T_k = len(q), len(k)", "return mixture / total": "return (mixture / total).T"},
    },
    "heads behind the tokens": {
        "split_heads": {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)"},
        "merge_heads": {"B, H, T, d = heads.shape\n    return heads.transpose(0, 2, 1, 3)": "B, T, H, d = heads.shape\n    return heads"},
    },
}  # fmt: skip
