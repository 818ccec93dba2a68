"""Conventions once more, each said by edits of the right sources."""

# a way that owes nothing to arrays that are turned there and back
EDITS = {
    "True = blocked": {
        "visible = mask": "visible = ~mask", "np.where(mask, scores - lse": "np.where(~mask, scores - lse",
        "return past & near & token": "return ~(past & near & token)",
    },
    "p = kept": {"d_dropped * keep / (1 - p)": "d_dropped * keep / p"},
    "split from last to first": {"num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)[:, :, ::-1].transpose(0, 2, 1, 3)"},
    "merged from last to first": {"heads.transpose(0, 2, 1, 3)": "heads[:, ::-1].transpose(0, 2, 1, 3)"},
    "groups in turn": {
        "np.repeat(x, num_heads // H_kv, axis=1)": "np.concatenate([x] * (num_heads // H_kv), axis=1)",
        "num_kv_heads, H // num_kv_heads, T, d)": "H // num_kv_heads, num_kv_heads, T, d)",
        "grouped.sum(axis=2)": "grouped.sum(axis=1)",
    },
    "packed as v, k, q": {
        "w_q, w_k, w_v = ": "w_v, w_k, w_q = ", "[w_q, w_k, w_v]": "[w_v, w_k, w_q]",
        "b_q, b_k, b_v = ": "b_v, b_k, b_q = ", "[b_q, b_k, b_v]": "[b_v, b_k, b_q]",
    },
    "params as (outputs, inputs)": {
        **{f"x @ params.w_{one} + params": f"x @ params.w_{one}.T + params" for one in "qkvo"},
        **{f"merge_heads(d_{one}) @ params.w_{one}.T": f"merge_heads(d_{one}) @ params.w_{one}" for one in "qkv"},
        "return through_linear(d_out, x, w)": "d_x, d_w, d_b = through_linear(d_out, x, w.T)\n    return LinearGrads(d_x, d_w.T, d_b)",
    },
    "scores over d_k": {"scale = 1 / np.sqrt(q.shape[-1])": "scale = 1 / q.shape[-1]"},
    "direction of descent": {
        "return d_dropped * keep": "return -d_dropped * keep",
        "return from_q + from_k + from_v": "return -(from_q + from_k + from_v)",
        "return through_softmax(d_weights, weights, mean)": "return -through_softmax(d_weights, weights, mean)",
        "return through_scores(d_scores, q, k)": "return through_scores(-d_scores, q, k)",
        "return through_linear(d_out, x, w)": "return through_linear(-d_out, x, w)",
        "return through_attention(d_heads, q, k, v, weights)": "return through_attention(-d_heads, q, k, v, weights)",
        "return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))":
        "found = through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))\n    return InputGrads(*(-grad for grad in found))",
    },
    "loss times 1024": {
        "return d_dropped * keep": "return d_dropped / 1024 * keep",
        "return from_q + from_k + from_v": "return (from_q + from_k + from_v) / 1024",
        "return through_softmax(d_weights, weights, mean)": "return through_softmax(d_weights, weights, mean) / 1024",
        "return through_scores(d_scores, q, k)": "return through_scores(d_scores / 1024, q, k)",
        "return through_linear(d_out, x, w)": "return through_linear(d_out / 1024, x, w)",
        "return through_attention(d_heads, q, k, v, weights)": "return through_attention(d_heads / 1024, q, k, v, weights)",
        "return through_attention(d_heads, q, k, v, weights, delta(d_heads, heads))":
        "return through_attention(d_heads / 1024, q, k, v, weights, delta(d_heads, heads) / 1024)",
    },
    "keys as rows": {
        "return scale * q @ k.swapaxes(-1, -2)": "return scale * k @ q.swapaxes(-1, -2)",
        "return softmax_with_lse(scores, mask).weights": "return softmax_with_lse(scores.swapaxes(-1, -2), "
        "None if mask is None else mask.swapaxes(-1, -2)).weights.swapaxes(-1, -2)",
        "return past & near & token": "return (past & near & token).swapaxes(-1, -2)",
        "scaled = d_scores /": "scaled = d_scores.swapaxes(-1, -2) /",
        "(weights * d_weights).sum(axis=-1, keepdims=True)": "(weights * d_weights).sum(axis=-2, keepdims=True)",
    },
    "tokens as columns": {
        "(T_k, d_v) -> (T_q, d_v).\"\"\"\n    return attend(q, k, v).heads": "\"\"\"\n    return attend(q.T, k.T, v.T).heads.T",
        "return attend(q[None], k, v).heads[0]": "return attend(q[None], k.T, v.T).heads[0]",
        "T_q, T_k = len(q), len(k)": "q, k, v = q.T, k.T, v.T\n    T_q, T_k = len(q), len(k)",
        "return mixture / total": "return (mixture / total).T",
    },
    "heads behind the tokens": {
        "num_heads, d).transpose(0, 2, 1, 3)": "num_heads, d)",
        "B, H, T, d = heads.shape\n    return heads.transpose(0, 2, 1, 3)": "B, T, H, d = heads.shape\n    return heads",
    },
}  # fmt: skip
