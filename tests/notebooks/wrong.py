"""Wrong answers to the exercises of notebooks: each a mistake, made by edits of a right answer."""

OTHER_WAY = """\
half = d_out.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = np.split(d_out, 2, axis=-1)
    turned = first * cos - second * sin, second * cos + first * sin  # turns on instead of back
    return np.concatenate(turned, axis=-1)"""
NO_TRANSPOSE = """\
def split_heads(x, num_heads):
        return x.reshape(len(x), num_heads, x.shape[1], -1)

    q = split_heads("""
WRONG = {
    "00": {"strongest-keys": ("queries taken for keys", {"axis=-1": "axis=1"})},
    "01": {"one-query": ("scale missing", {" / np.sqrt(len(q))": ""})},
    "02": {"attention": ("softmax over queries", {
        "scores.max(axis=-1, keepdims=True)": "scores.max(axis=0)",
        "powers.sum(axis=-1, keepdims=True)": "powers.sum(axis=0)",
    })},
    "03": {"multi-head": ("merge without transpose", {
        "merge_heads(heads)": "heads.reshape(len(x), x.shape[1], -1)",
    })},
    "04": {"input-gradient": ("branch of v forgotten", {", (d_v, params.w_v)": ""})},
    "05": {"museum-softmax-axis": ("scale missing", {" / np.sqrt(q.shape[-1])": ""})},
    "06": {
        "scores": ("scale missing", {
            "q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])": "q @ k.swapaxes(-1, -2)",
        }),
        "scores-backward": ("scale left out of backward", {
            "d_scores / np.sqrt(q.shape[-1])": "d_scores",
        }),
    },
    "07": {"softmax-with-lse": ("one maximum for all", {
        "np.where(sees_any, masked.max(axis=-1, keepdims=True), 0)": "masked.max()",
    })},
    "08": {"masks": ("q_offset ignored", {" + q_offset": ""})},
    "09": {
        "split-heads": ("split without transpose", {
            "T, num_heads, width // num_heads).transpose(0, 2, 1, 3)":
            "num_heads, T, width // num_heads)",
        }),
        "merge-heads": ("merge without transpose", {
            "heads.transpose(0, 2, 1, 3).reshape": "heads.reshape",
        }),
    },
    "10": {"head-importance": ("absolute value after the mean", {
        "np.abs(of_each).mean(axis=0)": "np.abs(of_each.mean(axis=0))",
    })},
    "11": {"softmax-backward": ("row sum over queries", {"axis=-1": "axis=-2"})},
    "12": {"attention-backward": ("diagonal of the Jacobian alone", {
        "weights * (d_weights - row_mean)": "weights * (1 - weights) * d_weights",
    })},
    "13": {"dropout-backward": ("dropout not undone by 1/(1-p)", {" / (1 - p)": ""})},
    "14": {"linear-backward": ("d_w: mean over the batch", {
        '"bti,bto->io", x, d_out)': '"bti,bto->io", x, d_out) / len(x)',
    })},
    "15": {"cross-attention": ("split without transpose", {"q = split_heads(": NO_TRANSPOSE})},
    "16": {
        "grouped-attention": ("groups tiled, not repeated", {
            "H_kv, H // H_kv, T_q": "H // H_kv, H_kv, T_q",
            "k[:, :, None]": "k[:, None]",
            "v[:, :, None]": "v[:, None]",
        }),
        "sum-over-group": ("gradients summed as if tiled", {
            "num_kv_heads, H // num_kv_heads, T_k, d).sum(axis=2)":
            "H // num_kv_heads, num_kv_heads, T_k, d).sum(axis=1)",
        }),
    },
    "17": {"decode-step": ("decoded as position 0", {
        "k.swapaxes": "k[:, :, :1].swapaxes", "keepdims=True) @ v": "keepdims=True) @ v[:, :, :1]",
    })},
    "18": {"embedding-backward": ("the last of equal tokens counts", {
        "np.add.at(d_table, ids, d_out)": "d_table[ids] += d_out",
    })},
    "19": {
        "rope": ("pairs interleaved", {
            "x[..., :half], x[..., half:]": "x[..., ::2], x[..., 1::2]",
            "np.concatenate(turned, axis=-1)": "np.stack(turned, axis=-1).reshape(x.shape)",
        }),
        "rope-backward": ("gradient turned forward", {
            "return my_rope(d_out, -positions, base)": OTHER_WAY,
        }),
    },
    "20": {"adam-step": ("corrected means kept", {
        "mean_hat, square_hat = mean": "mean_hat, square_hat = mean, square = mean",
    })},
    "21": {"cross-entropy-backward": ("ignored tokens keep their softmax", {
        "counted * (probs": "(probs",
    })},
    "22": {"train-steps": ("gradients not zeroed", {
        "losses = []": "losses, d_table, d_w, d_b = [], np.zeros_like(table), 0, 0",
        "d_x, d_table = d_logits @ w.T, np.zeros_like(table)": "d_x = d_logits @ w.T",
        "d_w = np": "d_b = d_b + d_logits.sum(axis=(0, 1))\n        d_w = d_w + np",
        "learning_rate * d_logits.sum(axis=(0, 1))": "learning_rate * d_b",
    })},
    "23": {"weights-times-norm": ("length of v without w_o", {"v @ rows_of_head": "v"})},
    "24": {"prune-heads": ("columns of w_o removed", {"w_o[of_v]": "w_o[:, of_v]"})},
    "25": {"cost-table": ("H for H_kv in the KV cache", {"B * H_kv * T * d": "B * H * T * d"})},
    "26": {"online-attention": ("old mixture not rescaled", {
        "head * factor + powers": "head + powers",
    })},
    "27": {
        "from-gpt2": ("every w transposed", {
            "(w_q, b_q, w_k, b_k, w_v, b_v, c_proj_w, c_proj_b)":
            "(w_q.T, b_q, w_k.T, b_k, w_v.T, b_v, c_proj_w.T, c_proj_b)",
        }),
        "to-gpt2": ("every w transposed", {
            "[params.w_q, params.w_k, params.w_v]": "[params.w_q.T, params.w_k.T, params.w_v.T]",
            "params.w_o,": "params.w_o.T,",
        }),
    },
    "28": {"museum-nan-row": ("NaN in a row that sees nothing", {
        "np.where(np.isinf(largest), 0, largest)": "largest",
    })},
    "29": {"head-gates": ("gate gradient: mean over the batch", {
        '->h", d_gated, heads)': '->bh", d_gated, heads).mean(axis=0)',
    })},
}  # fmt: skip
