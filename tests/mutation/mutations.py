"""Known mistakes, each as an edit of the package's own source."""

from typing import NamedTuple

from mha_numpy.teach.task import Edits


class Mutation(NamedTuple):
    """A mistake in folder/file, as edits of what stands there exactly once."""

    mistake: str
    file: str
    edits: Edits
    folder: str = "core"

    @property
    def path(self) -> str:
        """Return where the file stands in the package."""
        return f"{self.folder}/{self.file}"


SCALE = "inputs.scale = 1 / math.sqrt(q.shape[-1] or 1)"
ROW_SUM = "row_mean = (weights * d_weights).sum(axis=-1, keepdims=True)"
D_SCORES = "d_scores = weights * (d_weights - row_mean)"
MASKED = "masked = scores if mask is None else np.where(mask, scores, -np.inf)"
D_Q = "d_q = scale * shared_matmul(d_scores, k, visible)"
D_K = "d_k = scale * summed_matmul(d_scores.swapaxes(-1, -2), q, leading, visible_T)"
D_V = "summed_matmul(dropped.swapaxes(-1, -2), d_heads, leading, visible_T)"
D_W = "d_w = x.reshape(rows, w.shape[0]).T @ d_out_rows"
D_B = "d_b = d_out_rows.sum(axis=0) if has_bias else None"
GROUP_SUM = "group_heads(product, leading[1]).sum(axis=2)"
TOTAL = "powers.sum(axis=-1, keepdims=True)"

MUTATIONS = [
    # forward
    Mutation("no scale", "options.py", {SCALE: 'inputs.scale = 1.0'}),
    Mutation("1/d_k", "options.py", {SCALE: 'inputs.scale = 1 / (q.shape[-1] or 1)'}),
    Mutation("times root d_k", "options.py", {SCALE: 'inputs.scale = math.sqrt(q.shape[-1] or 1)'}),
    Mutation("softmax over queries", "softmax.py", {TOTAL: "powers.sum(axis=-2, keepdims=True)"}),
    Mutation("softmax over the matrix", "softmax.py", {TOTAL: "powers.sum(axis=(-2, -1), keepdims=True)"}),
    Mutation(
        "split by reshape without transpose", "shapes.py",
        {"return by_token.swapaxes(1, 2)  # (B, H, T, d)": "return by_token.reshape(B, num_heads, T, -1)"},
    ),
    Mutation(
        "heads interleaved when split", "shapes.py",
        {"by_token = x.reshape(B, T, num_heads, width // num_heads)":
        "by_token = x.reshape(B, T, width // num_heads, num_heads).swapaxes(2, 3)"},
    ),
    Mutation(
        "merged without transpose", "shapes.py",
        {"return by_token.reshape(B, T, H * d)": "return heads.reshape(B, T, H * d)"},
    ),
    Mutation(
        "heads merged in another order", "shapes.py",
        {"return by_token.reshape(B, T, H * d)": "return by_token[:, :, ::-1].reshape(B, T, H * d)"},
    ),
    Mutation("w transposed", "linear.py", {"product = x @ w  #": "product = x @ w.T  #"}),
    Mutation(
        "k reshaped, not transposed", "attention.py",
        {"scores = scale * shared_matmul(q, k.swapaxes(-1, -2))":
        "scores = scale * shared_matmul(q, k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]))"},
    ),
    Mutation(
        "values projected from the keys' input", "multihead.py",
        {"(x_v, params.w_v,": "(x_k, params.w_v,"},
    ),
    Mutation(
        "cross-attention ignores its source", "multihead.py",
        {"(x_k, params.w_k,": "(x_q, params.w_k,"},
    ),
    Mutation("causal, strict", "masks.py", {"key <= query + right": "key < query + right"}),
    Mutation("causal, leaks one key", "masks.py", {"key <= query + right": "key <= query + right + 1"}),
    Mutation("causal, wrong triangle", "masks.py", {"key <= query + right": "key >= query + right"}),
    Mutation(
        "bottom-right for top-left", "masks.py",
        {"query = np.arange(T_q)[:, None] +": "query = np.arange(T_q)[:, None] + T_k - T_q +"},
    ),
    Mutation("window exclusive", "masks.py", {"key >= query - left": "key > query - left"}),
    Mutation("mask inverted", "options.py", {"return check_mask(": "return ~check_mask("}),
    Mutation("is_causal drops the mask", "masks.py", {"masks.append(in_window[:, 0] if in_window.ndim > rank else in_window)":
             "masks = [in_window[:, 0] if in_window.ndim > rank else in_window]"}),
    Mutation("is_causal drops the window", "options.py", {"inputs.window = (left, 0)": "inputs.window = (None, 0)"}),
    Mutation("the window drops is_causal", "options.py", {
             "left, _ = inputs.window or (None, None)": "left, right = inputs.window or (None, 0)",
             "inputs.window = (left, 0)": "inputs.window = (left, right or 0)"}),
    Mutation("options left out", "options.py", {"if value is not option.default:": "if value is option.default:"}),
    Mutation("mask after softmax", "softmax.py", {MASKED: "masked = scores"}),
    Mutation("mask multiplied in", "softmax.py", {MASKED: "masked = scores if mask is None else scores * mask"}),
    Mutation("-1e9 for -inf", "softmax.py", {MASKED:
             "masked = scores if mask is None else np.where(mask, scores, -1e9)"}),
    Mutation("additive -10", "softmax.py", {MASKED:
             "masked = scores if mask is None else np.where(mask, scores, scores - 10)"}),
    Mutation("NaN in a row that sees nothing", "softmax.py",
             {"shift = np.where(sees_any, largest, 0)": "shift = largest"}),
    Mutation("no maximum subtracted", "softmax.py",
             {"shift = np.where(sees_any, largest, 0)": "shift = 0"}),
    Mutation("a sink that weighs nothing", "softmax.py", {"total = total + np.exp(sink - shift)": "pass"}),
    Mutation("a sink not among the largest", "softmax.py", {"largest = np.maximum(largest, sink.real)": "pass"}),
    Mutation("a sink unseen where nothing else is seen", "softmax.py", {"sees_any = sees_any | (sink != -np.inf)": "pass"}),
    Mutation("a part that saw nothing is mixed in", "merge.py", {"only_visible(shares[..., None] * outs, (lses != -np.inf)[..., None])": "(shares[..., None] * outs)"}),
    Mutation("parts averaged", "merge.py", {".sum(axis=0)\n    return out, lse, shares": ".mean(axis=0)\n    return out, lse, shares"}),
    Mutation("one global maximum", "softmax.py", {"masked.real.max(axis=-1, keepdims=True,":
             "masked.real.max(keepdims=True,"}),
    Mutation("lse without the maximum", "softmax.py", {"largest + np.log(total)": "np.log(total)"}),
    Mutation("groups tiled, not repeated", "grouped.py",
             {"return x.reshape(B, num_kv_heads, H // num_kv_heads, *rest)":
             "return x.reshape(B, H // num_kv_heads, num_kv_heads, *rest).swapaxes(1, 2)"}),
    Mutation("bias of the projection left out", "linear.py",
             {"return product if b is None else product + b": "return product"}),
    Mutation("output projection left out", "multihead.py",
             {"out, project_out = linear_forward(merged, params.w_o, params.b_o)":
             "out, project_out = merged, linear_forward(merged, params.w_o, params.b_o)[1]"}),
    Mutation("softcap left out", "attention.py",
             {"capped = scores if softcap is None else": "capped = scores if True else"}),
    Mutation("0 * NaN instead of a selection", "masks.py",
             {"np.where(visible, cells, 0)": "cells * visible"}),
    Mutation("poison through hidden cells", "grouped.py", {"if finite.all():": "if True:"}),
    Mutation("float32 inside", "../dtypes.py", {"is_half = dtype.itemsize": "is_half = dtype.itemsize == 8 or dtype.itemsize"}),
    Mutation("NaN through a hidden cell of the dropout mask", "attention.py",
             {"only_visible(weights * dropout_mask, visible)": "weights * dropout_mask"}),
    Mutation("NaN through the gate of a row that sees nothing", "attention.py",
             {"only_visible(heads * head_gate[..., None, None], sees_any)": "heads * head_gate[..., None, None]"}),
    # backward
    Mutation("scale left out of d_q", "attention.py", {D_Q: D_Q.replace("scale * ", "")}),
    Mutation("scale left out of d_k", "attention.py", {D_K: D_K.replace("scale * ", "")}),
    Mutation("scale twice", "attention.py", {D_Q: D_Q.replace("scale *", "scale**2 *")}),
    Mutation("sign of d_k", "attention.py", {D_K: D_K.replace("scale *", "-scale *")}),
    Mutation("row-sum term left out", "softmax.py", {D_SCORES: "d_scores = weights * d_weights"}),
    Mutation("only the diagonal of the Jacobian", "softmax.py", {D_SCORES:
             "d_scores = weights * (1 - weights) * d_weights"}),
    Mutation("d_lse forgotten", "softmax.py", {"row_mean = row_mean - d_lse[..., None]": "pass"}),
    Mutation("d_lse's sign", "softmax.py", {"row_mean = row_mean - d_lse": "row_mean = row_mean + d_lse"}),
    Mutation("d_sink's sign", "attention.py", {"sum_to_shape(-np.einsum": "sum_to_shape(np.einsum"}),
    Mutation("d_sink without d_lse", "attention.py", {"row_mean if d_lse is None else row_mean - d_lse": "row_mean"}),
    Mutation("d_outs without their shares", "merge.py", {"d_outs = shares[..., None] * d_out": "d_outs = 0 * shares[..., None] + d_out"}),
    Mutation("d_lses without d_lse", "merge.py", {"(d_shares, shares, seen, d_lse)": "(d_shares, shares, seen)"}),
    Mutation("row sum over queries", "softmax.py", {ROW_SUM: ROW_SUM.replace("-1", "-2")}),
    Mutation("row sum unweighted", "softmax.py", {ROW_SUM: "row_mean = d_weights.sum(axis=-1, keepdims=True)"}),
    Mutation("factor p left out", "softmax.py", {D_SCORES: "d_scores = d_weights - row_mean"}),
    Mutation("weights not transposed", "attention.py", {D_V: D_V.replace("dropped.swapaxes(-1, -2)", "dropped")}),
    Mutation("d_scores not transposed", "attention.py", {D_K: D_K.replace("d_scores.swapaxes(-1, -2)", "d_scores")}),
    Mutation("d_q and d_k swapped", "attention.py", {"d_scores, d_q, d_k, d_v, d_bias": "d_scores, d_k, d_q, d_v, d_bias"}),
    Mutation("group: mean, not sum", "grouped.py", {GROUP_SUM: GROUP_SUM.replace("sum", "mean")}),
    Mutation("group: first head alone", "grouped.py", {GROUP_SUM: "group_heads(product, leading[1])[:, :, 0]"}),
    Mutation("d_w from the last sequence only", "linear.py", {D_W: "d_w = x[-1:].reshape(-1, w.shape[0]).T"
             " @ d_out[-1:].reshape(-1, w.shape[1])"}),
    Mutation("d_w: mean over rows", "linear.py", {D_W: D_W + " / max(rows, 1)"}),
    Mutation("d_w transposed", "linear.py", {D_W: D_W.replace("= ", "= (") + ").T"}),
    Mutation("d_x by w, not by its transpose", "linear.py", {"d_x = d_out @ w.T": "d_x = d_out @ w"}),
    Mutation("d_b over the batch only", "linear.py", {D_B: "d_b = d_out.sum(axis=0) if has_bias else None"}),
    Mutation("d_b: mean", "linear.py", {D_B: D_B.replace("sum", "mean")}),
    Mutation("d_b: zero", "linear.py", {D_B: "d_b = 0 * w[0] if has_bias else None"}),
    Mutation("one branch of self-attention", "multihead.py", {"d_x_q = d_x_q + d_x_k": "d_x_q = d_x_q"}),
    Mutation("extra keys before the tokens", "extra_keys.py",
             {"np.concatenate([heads, extra_heads]": "np.concatenate([extra_heads, heads]"}),
    Mutation("extra keys hidden", "extra_keys.py", {"T_k, E, filling=True)": "T_k, E, filling=False)"}),
    Mutation("extra keys biased", "extra_keys.py", {"T_k, E, filling=0)": "T_k, E, filling=1)"}),
    Mutation("extra keys, d: mean", "extra_keys.py",
             {"merge_heads(d_extra_heads).sum(axis=0)": "merge_heads(d_extra_heads).mean(axis=0)"}),
    Mutation("value branch forgotten", "multihead.py", {"d_x_k = d_x_k + d_x_v": "d_x_k = d_x_k"}),
    Mutation("output projection skipped", "multihead.py", {"d_heads = split_heads(d_merged,":
             "d_heads = split_heads(d_out,"}),
    Mutation("d_out divided by B", "multihead.py", {"linear_backward(d_out, cache.project_out)":
             "linear_backward(d_out / len(d_out), cache.project_out)"}),
    Mutation("dropout forgotten", "attention.py", {"d_weights = d_dropped if dropout_mask is None else":
             "d_weights = d_dropped if True else"}),
    Mutation("softcap's slope left out", "attention.py", {"(1 - (capped / softcap) ** 2)": "1"}),
    Mutation("softcap's slope without division", "attention.py", {"(1 - (capped / softcap) ** 2)": "(1 - capped**2)"}),
    Mutation("bias gradient: mean over broadcast axes", "shapes.py",
             {"d_big.sum(axis=summed,": "d_big.mean(axis=summed,"}),
    Mutation("gate's gradient from the gate's output", "attention.py", {"only_visible(d_gated * heads,": "only_visible(d_heads * heads,"}),
    Mutation("gate's gradient with NaN from a row that sees nothing", "attention.py",
             {"only_visible(d_gated * heads, sees_any)": "d_gated * heads"}),
    Mutation("gate forgotten in backward", "attention.py", {"d_heads = d_gated * head_gate[..., None, None]": "d_heads = d_gated"}),
    # positions and cache
    Mutation("rope: backward turns forward", "rope.py", {"_rotate(d_out, cos, -sin,":
             "_rotate(d_out, cos, sin,"}),
    Mutation("rope: one sign", "rope.py", {"x[..., second] * cos + x[..., first] * sin":
             "x[..., second] * cos - x[..., first] * sin"}),
    Mutation("rope: changes its input", "rope.py", {"out = x.copy()": "out = x"}),
    Mutation("rope: decode starts at 0", "multihead.py", {"k_at = past + np.arange(k.shape[2])":
             "k_at = np.arange(k.shape[2])"}),
    Mutation("decode forgets the offset", "multihead.py", {'options["q_offset"] = kv_cache.place(T_new)': "pass"}),
    Mutation("rope: attention factor forgotten", "rope.py", {"(attention_factor * f(angles))": "f(angles)"}),
    Mutation("rope: length of the first sequence", "rope.py", {"np.fmax.reduce(at, axis=None, initial=-1)":
             "np.fmax.reduce(np.atleast_2d(at)[0], axis=None, initial=-1)"}),
    Mutation("dynamic: another power", "rope_scaling.py", {"max(frequencies.size - 1, 1)": "max(frequencies.size, 1)"}),
    Mutation("dynamic: shorter texts too", "rope_scaling.py", {"max(length, self.original_length) / self.original_length":
             "length / self.original_length"}),
    Mutation("YaRN: ramp turned round", "rope_scaling.py", {"_keep(1 - np.clip(ramp, 0, 1),": "_keep(np.clip(ramp, 0, 1),"}),
    Mutation("YaRN: never whole pairs", "rope_scaling.py", {"if self.truncate:": "if False:"}),
    Mutation("LongRoPE: long from the original length on", "rope_scaling.py",
             {"length > self.original_length": "length >= self.original_length"}),
    Mutation("Llama 3: no smooth middle", "rope_scaling.py", {"np.clip((turns - low) / (high - low), 0, 1)": "(turns > low) * 1.0"}),
    Mutation("scaled: the rest multiplied", "rope_scaling.py", {"(1 - share) / factor": "(1 - share) * factor"}),
    Mutation("documents: padding sees padding", "masks.py", {" & (ids >= 0)[..., None]": ""}),
    Mutation("positions: from the padding on", "positions.py", {"np.maximum(np.cumsum(mask, axis=-1) - 1, 0)":
             "np.maximum(np.cumsum(mask, axis=-1), 0)"}),
    Mutation("documents: positions go on", "positions.py", {"np.tril(mask, -1).sum(axis=-1)": "np.tril(mask | True, -1).sum(axis=-1)"}),
    Mutation("cache narrows a wider dtype", "kv_cache.py", {"if length <= capacity and dtype == part.dtype:":
             "if length <= capacity:"}),
    # around attention
    Mutation("heads normed after the rotation", "multihead.py", {
             '    if place == "heads":\n        q, k,': '    if place == "rotated":\n        q, k,',
             '    if place == "rotated":\n        q, k,': '    if place == "heads":\n        q, k,'}),
    Mutation("keys normed by the gain of queries", "qk_norm.py", {"rms_norm_forward(k, gain_k,": "rms_norm_forward(k, gain_q,"}),
    Mutation("a gate of each head tiled", "output_gate.py", {"return gate, merged * gate.repeat(spread, axis=-1)":
             "return gate, merged * np.tile(gate, spread)"}),
    Mutation("slope of the gate's sigmoid forgotten", "output_gate.py", {"d_gate * gate * (1 - gate)": "d_gate * gate"}),
    Mutation("the gate has no share in its input's gradient", "multihead.py", {"= d_x_q + d_x_gate,": "= d_x_q + 0,"}),
    Mutation("keys at the places in the array", "multihead_params.py", {"if key_positions is None and x_k is x_q:": "if False:"}),
    # kinds of KV cache
    Mutation("rolling: places of the text", "../multihead.py", {"        past = 0\n": ""}, "core/caches"),
    Mutation("rolling: the query beyond the cache", "rolling.py", {"return min(self._length, max(": "return max(self._length, max("}, "core/caches"),
    Mutation("rolling: forgets a sink", "rolling.py", {"*range(self.sinks + 1, self._length)": "*range(self.sinks, self._length - 1)"}, "core/caches"),
    Mutation("rolling: many at once", "rolling.py", {"if most < T:": "if False:"}, "core/caches"),
    Mutation("cache: tokens kept in any order", "../kv_cache.py", {"part[:, :, index], part.shape[2]": "part[:, :, np.sort(index)[::-1]], part.shape[2]"}, "core/caches"),
    Mutation("paged: written into a shared block", "paged.py", {"if left[block] > 1:": "if False:"}, "core/caches"),
    Mutation("paged: all beams copy", "paged.py", {"                left[block] -= 1\n": ""}, "core/caches"),
    Mutation("paged: a copy without what was in it", "paged.py", {"part[own] = part[table[copied, last]]": "pass"}, "core/caches"),
    Mutation("paged: blocks never freed", "paged.py", {"((table, 1), (self._table, -1))": "((table, 1),)"}, "core/caches"),
    Mutation("paged: failure keeps its blocks", "paged.py", {"            self._use(table)\n            self._length": "            self._length"}, "core/caches"),
    Mutation("paged: heads and slots mixed", "paged.py", {"part[self._table].swapaxes(1, 2)": "part[self._table].swapaxes(1, 3)"}, "core/caches"),
    Mutation("int8: truncated, not rounded", "int8.py", {"np.rint(": "np.trunc("}, "core/caches"),
    Mutation("int8: 128 levels", "int8.py", {"LEVELS = 127": "LEVELS = 128"}, "core/caches"),
    Mutation("int8: a bound without the values", "int8.py", {"(above * v_step).sum(": "(0 * v_step).sum("}, "core/caches"),
    Mutation("int8: a bound of the mean error", "int8.py", {"np.abs(q).sum(axis=-1": "np.abs(q).mean(axis=-1"}, "core/caches"),
    Mutation("int8: a bound that forgets the sum", "int8.py", {"above / (above + least - below) - p": "above - p"}, "core/caches"),
    Mutation("tree: siblings seen", "tree.py", {"mask[token] |= mask[parent]": "mask[token, : parent + 1] = True"}, "core/caches"),
    Mutation("tree: place in the list for depth", "tree.py", {"return tree_mask(parents, past).sum(axis=-1) - 1": "return past + np.arange(len(parents))"}, "core/caches"),
    Mutation("tree: a child of any accepted token", "tree.py", {"parents[token] == path[-1] and": "parents[token] in path and"}, "core/caches"),
    Mutation("relative bias: one cell of each bucket", "relative_bias.py", {"np.add.at(d_table, buckets, d_bias.transpose(1, 2, 0))":
             "d_table[buckets] = d_bias.transpose(1, 2, 0)"}),
    Mutation("relative bias: ways swapped", "relative_bias.py", {"np.where(distance > 0,": "np.where(distance < 0,"}),
    Mutation("relative bias: no bucket is the last", "relative_bias.py", {"np.minimum(far, num_buckets - 1)": "far"}),
    # the door to the kernels
    Mutation("left and right swapped", "kernel_calls.py", {"offsets, left, right,": "offsets, right, left,"}),
    Mutation("unbounded means nothing at all", "kernel_calls.py", {"OPEN = 2 * LARGEST": "OPEN = 0"}),
    Mutation("one offset for all sequences", "kernel_calls.py", {"offsets = offsets if offsets.ndim else offsets[None]":
             "offsets = offsets.reshape(-1)[:1]"}),
    Mutation("dropout mask and bias swapped", "kernel_calls.py", {"inputs.bias, inputs.dropout_mask": "inputs.dropout_mask, inputs.bias"}),
    Mutation("a kernel's bias gradient not summed", "kernel_calls.py", {"sum_to_shape(d_biased, bias.shape)": "d_biased"}),
    Mutation("a kernel given what it does not cover", "../backends.py", {" if dtype in COVERED else None": "", "(x.dtype is not dtype and x.dtype != dtype) or ": ""}),
    Mutation("a kernel given empty axes", "../backends.py", {" or x.size == 0": ""}),
    Mutation("forward's backend whatever backward asks for", "attention.py",
             {"own_backend if backend is None else chosen_backend(backend)": "own_backend"}),
    # layers
    Mutation("residual: nothing flows past", "residual.py", {"return d_skip, *d_others": "return d_x, *d_others"}, "layers"),
    Mutation("residual: dropout of the sum", "residual.py", {"added = self.dropout(self.post_norm(found) if self.post_norm else found)": "added = self.post_norm(found) if self.post_norm else found",
             "total = add(x, added)": "total = self.dropout(add(x, added))"}, "layers"),
    Mutation("kept numbers not enlarged", "dropout.py", {"(kept / (1 - p))": "kept"}, "layers"),
    Mutation("memory's mask forgotten", "transformer_blocks.py", {"x, memory, mask=memory_mask": "x, memory"}, "layers"),
    Mutation("gradients replaced, not added", "layer.py", {"self.grads[name] = stored + gradient": "self.grads[name] = gradient"}, "layers"),
    # what stands around attention
    Mutation("pair: float16 inside", "../core/pair.py", {"inner = compute_dtype(dtype)": "inner = dtype"}, "layers"),
    Mutation("pair: a gradient in the dtype of the computation", "../core/pair.py", {"else d.astype(cache.dtype, copy=False)": "else d"}, "layers"),
    Mutation("pair: a gradient of any shape", "../core/pair.py", {"if d_out.shape != shape:": "if False:"}, "layers"),
    Mutation("centred over tokens", "norms.py", {"centred = x - x.mean(axis=-1": "centred = x - x.mean(axis=0"}, "layers"),
    Mutation("variance divided by D - 1", "norms.py", {"np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)":
             "np.sqrt((centred**2).sum(axis=-1, keepdims=True) / (x.shape[-1] - 1 or 1) + eps)"}, "layers"),
    Mutation("eps beside the root", "norms.py", {"np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)":
             "(np.sqrt((centred**2).mean(axis=-1, keepdims=True)) + eps)"}, "layers"),
    Mutation("the deviation held constant", "norms.py", {"inverse_std * (d_x_hat - by_std)": "inverse_std * d_x_hat"}, "layers"),
    Mutation("the mean held constant", "norms.py", {"d_x = d_centred - d_centred.mean(axis=-1, keepdims=True)": "d_x = d_centred"}, "layers"),
    Mutation("gain forgotten in backward", "norms.py", {"    d_x_hat = d_out * gain\n\n    # 2. x_hat = centred * inv": "    d_x_hat = d_out\n\n    # 2. x_hat = centred * inv"}, "layers"),
    Mutation("root mean square: a sum for the mean", "../core/rms_norm.py", {"by_rms = x_hat * (d_x_hat * x_hat).mean(axis=-1": "by_rms = x_hat * (d_x_hat * x_hat).sum(axis=-1"}, "layers"),
    Mutation("params: mean over tokens", "../core/rms_norm.py", {"return per_token.sum(axis=": "return per_token.mean(axis="}, "layers"),
    Mutation("relu: a gradient at 0", "activations.py", {"np.where(x.real <= 0, 0, d_out)": "np.where(x.real < 0, 0, d_out)"}, "layers"),
    Mutation("gelu: its share held constant", "activations.py", {"return d_x + d_share * slope": "return d_x"}, "layers"),
    Mutation("gelu: the density not scaled", "activations.py", {"/ math.sqrt(8)": "/ 2"}, "layers"),
    Mutation("swiglu: slope of sigmoid for that of silu", "activations.py", {"d_gate = d_gate + d_share * share * (1 - share)":
             "d_gate = d_share * share * (1 - share)"}, "layers"),
    Mutation("geglu: the gate gets its own gradient unmultiplied", "activations.py", {"    d_gelu = d_out * x\n": "    d_gelu = d_out\n"}, "layers"),
    Mutation("dropout: backward drops nothing", "dropout.py", {"return d_out * dropout_mask": "return d_out"}, "layers"),
    Mutation("embedding: one token of each id", "embedding.py", {"d_table[rows] = np.add.reduceat(d_out_rows[order], first, axis=0)": "d_table[ids] = d_out_rows"}, "layers"),
    Mutation("positions: backward without offset", "embedding.py", {"d_table[rows] = d_rows": "d_table[: len(d_rows)] = d_rows"}, "layers"),
    Mutation("positions: one token of each", "embedding.py", {"np.add.at(d_table, rows, d_rows)": "d_table[rows] = d_rows"}, "layers"),
    Mutation("cross-entropy: nothing subtracted", "cross_entropy.py", {"shifted = logits - logits.real.max(axis=-1, keepdims=True)": "shifted = logits"}, "layers"),
    Mutation("cross-entropy: the mean counts ignored tokens", "cross_entropy.py", {"max(int(counted.sum()), 1)": "max(counted.size, 1)"}, "layers"),
    Mutation("cross-entropy: smoothing shared by the others", "cross_entropy.py", {"+ label_smoothing / V": "+ (1 - at_target) * label_smoothing / max(V - 1, 1)"}, "layers"),
    Mutation("cross-entropy: NaN from an ignored token", "cross_entropy.py", {"np.where(counted[..., None], d_logits, 0)": "counted[..., None] * d_logits"}, "layers"),
    Mutation("cross-entropy: a mean whose gradient is a sum's", "cross_entropy.py", {"d_loss * share, counted": "d_loss, counted"}, "layers"),
    Mutation("feed-forward: gradient by the gate alone", "feed_forward.py", {"d_x = d_x + d_x_gate": "d_x = d_x_gate"}, "layers"),
    Mutation("experts: the later of equal ones", "experts.py", {"np.argsort(-router_logits.real, axis=-1, kind=\"stable\")[..., :num_chosen]":
             "np.argsort(router_logits.real, axis=-1, kind=\"stable\")[..., ::-1][..., :num_chosen]"}, "layers"),
    Mutation("experts: shares of all", "experts.py", {"_, _, shares = softmax_steps(chosen_logits, None)":
             "shares = np.take_along_axis(softmax_steps(router_logits, None)[2], chosen, axis=-1)"}, "layers"),
    Mutation("experts: the gate clipped below, too", "experts.py", {"gate_clipped = np.where(gate.real > limit, limit, gate)":
             "gate_clipped = np.where(abs(gate.real) > limit, limit * np.sign(gate.real), gate)"}, "layers"),
    Mutation("experts: a gradient through the clip", "experts.py", {"d_hidden = np.where(abs(hidden) > limit, 0,": "d_hidden = np.where(abs(hidden) > np.inf, 0,"}, "layers"),
    Mutation("experts: shares held constant", "experts.py", {"d_x = d_x_router + (d": "d_x = (d"}, "layers"),
    Mutation("gated delta: gate and heads swapped", "gated_delta.py", {"swiglu_forward(gate, normed)": "swiglu_forward(normed, gate)"}, "layers"),
    Mutation("gated delta: keys of a group tiled", "gated_delta.py", {'step("k", k.repeat(group, axis=1),': 'step("k", np.tile(k, (1, group, 1, 1)),'}, "layers"),
    Mutation("gated delta: padding is read", "gated_delta.py", {"masked = np.where(mask[..., None], x, 0)": "masked = x"}, "layers"),
    Mutation("gated delta: padding gets a gradient", "gated_delta.py", {'d_all_x = np.where(caches["mask"][..., None], d_x, 0)': "d_all_x = d_x"}, "layers"),
    Mutation("a model's state: the length of one call", "gated_delta.py", {"[conv.copy(), memory.copy()], self._length + T": "[conv.copy(), memory.copy()], T"}, "layers"),
    Mutation("gated delta: slope of softplus left out", "gated_delta.py", {"d_x = d_time * beta_steps(shifted)": "d_x = d_time"}, "layers"),
    Mutation("gated delta: a length of root d_k", "gated_delta.py", {"unit, eps = np.full(d_k, d_k**-0.5, x.dtype)": "unit, eps = np.ones(d_k, x.dtype)"}, "layers"),
    # forward mode and second derivatives
    Mutation("jvp: the keys at rest", "attention_jvp.py", {"scale * (by_q + by_k)": "scale * by_q"}),
    Mutation("jvp: not scaled", "attention_jvp.py", {"scale * (by_q + by_k)": "(by_q + by_k)"}),
    Mutation("jvp: softcap's slope left out", "attention_jvp.py", {"scores_dot * (1 - (capped / inputs.softcap) ** 2)": "scores_dot"}),
    Mutation("jvp: the values at rest", "attention_jvp.py", {'by_weights + shared_matmul(dropped, dots["v"], visible)': "by_weights"}),
    Mutation("jvp: the sink moves no weight", "attention_jvp.py", {"weights_dot - weights * by_sink[..., None]": "weights_dot"}),
    Mutation("jvp: NaN through a hidden cell", "attention_jvp.py", {"only_visible(scale * (by_q + by_k), visible)": "scale * (by_q + by_k)",
             "softmax_steps_jvp(biased_dot, weights, visible)": "softmax_steps_jvp(biased_dot, weights, None)"}),
    Mutation("jvp: the head gate at rest", "attention_jvp.py", {"heads_dot * head_gate[..., None, None] + heads * gate_dot[..., None, None]":
             "heads_dot * head_gate[..., None, None]"}),
    Mutation("jvp: a sink of -inf moves", "attention_jvp.py", {'np.where(inputs.sink == -np.inf, 0, dots["sink"])': 'dots["sink"]'}),
    Mutation("jvp of softmax: mean left out", "softmax.py", {"weights * (scores_dot - row_mean)": "weights * scores_dot"}),
    Mutation("jvp of linear: w at rest", "linear.py", {"product_dot = x_dot @ w + x @ w_dot": "product_dot = x_dot @ w"}),
    Mutation("jvp of rope: turned back", "rope.py", {"_rotate(x_dot, cos, sin, interleaved)": "_rotate(x_dot, cos, -sin, interleaved)"}),
    Mutation("jvp of a merge: shares at rest", "merge.py", {"shares_dot[..., None] * outs + shares[..., None] * outs_dot": "shares[..., None] * outs_dot"}),
    Mutation("jvp of multi-head: a given key input stands still", "multihead.py", {'dots["x_k"] if x_k_given else x_q_dot': "x_q_dot"}),
    Mutation("second order: the weights at rest", "attention_second_order.py", {"by_weights = forward.weights_dot * (d_weights - row_mean[..., None])": "by_weights = 0 * d_weights"}),
    Mutation("second order: the mean at rest", "attention_second_order.py", {"(d_weights_dot - row_mean_dot[..., None])": "d_weights_dot"}),
    Mutation("second order: softcap's slope at rest", "attention_second_order.py", {"d_biased_dot * slope + backward.d_biased * slope_dot": "d_biased_dot * slope"}),
    Mutation("second order: d_k without the queries", "attention_second_order.py", {'d_k_dot = scale * (by_scores + summed_matmul(d_scores_T, dots["q"], leading, visible_T))': "d_k_dot = scale * by_scores"}),
    Mutation("second order: sink's weight at rest", "attention_second_order.py", {"(weight_dot * row_mean + weight * row_mean_dot)": "(weight * row_mean_dot)"}),
    # variants
    Mutation("linear: the query reads before the token writes", "linear_attention.py", {"out[..., [t], :] = scale * (q_t @ states[-1])": "out[..., [t], :] = scale * (q_t @ states[-2])"}, "variants"),
    Mutation("linear: the key reads what has not faded", "linear_attention.py", {"(v_t - k_t @ kept)\n\n": "(v_t - k_t @ states[-1])\n\n"}, "variants"),
    Mutation("linear: decay after writing", "linear_attention.py", {"kept = decay[..., [t], :].swapaxes(-1, -2) * states[-1]": "kept = 1 * states[-1]",
             "states.append(kept + k_t.swapaxes(-1, -2) @ u_t)": "states.append(decay[..., [t], :].swapaxes(-1, -2) * (kept + k_t.swapaxes(-1, -2) @ u_t))"}, "variants"),
    Mutation("linear: a group's state gets one head's gradient", "linear_attention.py", {"(q_t.swapaxes(-1, -2) @ d_out_t).sum(axis=-3, keepdims=True)": "(q_t.swapaxes(-1, -2) @ d_out_t)[..., :1, :, :]"}, "variants"),
    Mutation("linear: the key's question has no gradient", "linear_attention.py", {"d_kept = d_kept - k_t.swapaxes(-1, -2) @ d_v_t": "d_kept = d_kept - 0"}, "variants"),
    Mutation("linear: the last state's gradient is dropped", "linear_attention.py", {"_in_rows(q, k, v, log_decay, beta, d_final_state)": "_in_rows(q, k, v, log_decay, beta, None)"}, "variants"),
    Mutation("linear: 1/d_k", "linear_attention.py", {"1 / math.sqrt(q.shape[-1] or 1)": "1 / (q.shape[-1] or 1)"}, "variants"),
    Mutation("chunks: a token sees itself in the system", "linear_chunks.py", {"seen = np.tril(match(k_c, k_c, left), -1)\n            d_written": "seen = match(k_c, k_c, left)\n            d_written"}, "variants"),
    Mutation("chunks: the query does not see its own token", "linear_chunks.py", {"scores = match(q_c, k_c, left)  #": "scores = np.tril(match(q_c, k_c, left), -1)  #"}, "variants"),
    Mutation("chunks: decay from the start of the text", "linear_chunks.py", {"left = fade(decay[..., at, :])\n\n": "left = fade(decay[..., : at.stop, :])\n        left = left._replace(from_start=left.from_start[..., at, :])\n\n"}, "variants"),
    Mutation("chunks: shares as quotients", "linear_chunks.py", {"between = np.cumprod(np.where(later, decay[..., :, None, :], 1), axis=-3)":
             "total = np.cumprod(decay, axis=-2)\n    between = np.where(later, total[..., :, None, :] / total[..., None, :, :], 1)"}, "variants"),
    Mutation("chunks: written tokens do not fade", "linear_chunks.py", {"writes = (k_c * left.to_end)": "writes = k_c"}, "variants"),
    Mutation("chunks: not the transposed system", "linear_chunks.py", {"d_written = solve_unit_lower_transposed(": "d_written = solve_unit_lower("}, "variants"),
    Mutation("chunks: decay's gradient without the next state", "linear_chunks.py", {"d_fading[..., -1, :] += ": "d_fading[..., -1, :] += 0 * "}, "variants"),
    Mutation("chunks: NaN of a later token", "linear_chunks.py", {"matmul_visible(scores, u_c, np.tri(scores.shape[-1], dtype=bool))": "scores @ u_c"}, "variants"),
    Mutation("convolution: turned over", "causal_conv.py", {"sum(w[j] * padded": "sum(w[-1 - j] * padded"}, "variants"),
    Mutation("convolution: the state after the tokens", "causal_conv.py", {"padded = np.concatenate([state, x], axis=-2)  #": "padded = np.concatenate([x, state], axis=-2)  #"}, "variants"),
    Mutation("convolution: slope of silu", "causal_conv.py", {"d_out * share * (1 + conv * (1 - share))\n\n": "d_out * share * (1 - share)\n\n"}, "variants"),
    Mutation("convolution: the last state's gradient is dropped", "causal_conv.py", {"d_padded[..., T:, :] += d_final_state": "pass"}, "variants"),
    Mutation("latent: not normed", "latent.py", {"kept = np.concatenate([latent[:, None], k_rope], axis=-1)": "kept = np.concatenate([kv_latent[:, None], k_rope], axis=-1)"}, "variants"),
    Mutation("latent: rotated part first in a head", "latent.py", {"q_nope, q_flat = np.split(q_unrotated, [d_nope], axis=-1)":
             "q_flat, q_nope = np.split(q_unrotated, [d_rope], axis=-1)"}, "variants"),
    Mutation("latent: decode starts at 0", "latent.py", {"positions = past + np.arange(x.shape[1])": "positions = np.arange(x.shape[1])"}, "variants"),
    Mutation("latent: absorbed with the scale of its own width", "latent.py", {"if options.get(\"scale\") is None:": "if False:"}, "variants"),
    Mutation("latent: absorbed with the scale of the part that is not rotated", "latent.py", {"q_nope.shape[-1] + q_rope.shape[-1] or 1": "q_nope.shape[-1] or 1"}, "variants"),
    Mutation("latent: absorbed, heads across columns", "latent.py", {"params.w_k_up.reshape(d_c, H, -1).transpose(1, 2, 0)": "params.w_k_up.reshape(d_c, -1, H).transpose(2, 1, 0)"}, "variants"),
    Mutation("latent: rotated key's gradient from the first head", "latent.py", {"d_k_shared.sum(axis=1, keepdims=True)": "d_k_shared[:, :1]"}, "variants"),
    Mutation("latent: no gradient from the keys", "latent.py", {"d_latents = d_latents_k + d_latents_v": "d_latents = d_latents_v"}, "variants"),
    Mutation("latent: no gradient through the queries", "latent.py", {"d_x = d_x_q + d_x_kv": "d_x = d_x_kv"}, "variants"),
    Mutation("latent: rotated key's gradient not turned back", "latent.py", {"d_k_flat = rope_backward(d_k_rope, cache.rotate_k).d_x": "d_k_flat = d_k_rope"}, "variants"),
    Mutation("differential: added", "differential.py", {"out_1 - share * out_2\n\n": "out_1 + share * out_2\n\n"}, "variants"),
    Mutation("differential: lambda_init left out", "differential.py", {"power_2 + lambda_init\n": "power_2\n"}, "variants"),
    Mutation("differential: not scaled back", "differential.py", {"out = (1 - lambda_init) * normed\n    constant": "out = 1 * normed\n    constant"}, "variants"),
    Mutation("differential: not scaled back in backward", "differential.py", {"d_normed = (1 - cache.lambda_init) * d_out": "d_normed = 1 * d_out"}, "variants"),
    Mutation("differential: one sign for both powers", "differential.py", {"d_share * power_1, -d_share * power_2": "d_share * power_1, d_share * power_2"}, "variants"),
    Mutation("differential: share's gradient from the first", "differential.py", {"d_share = -(d_difference * out_2).sum()": "d_share = (d_difference * out_2).sum()"}, "variants"),
    Mutation("differential: values from the first attention alone", "differential.py", {"d_v = first.d_v + second.d_v": "d_v = first.d_v"}, "variants"),
    Mutation("differential: options' gradients from one attention", "differential.py", {"else one + other\n": "else one\n"}, "variants"),
    Mutation("blocks: their own one has no place of its own", "block_selection.py", {"~own, ~candidates), axis=-1)\n    chosen": "~candidates), axis=-1)\n    chosen"}, "variants"),
    Mutation("blocks: the future is a candidate", "block_selection.py", {"    if visible is not None:\n": "    if False:\n"}, "variants"),
    Mutation("blocks: the worst", "block_selection.py", {"order = np.lexsort((-block_scores.real": "order = np.lexsort((block_scores.real"}, "variants"),
    Mutation("blocks: a sum for the mean", "block_selection.py", {"np.add.reduceat(k, starts, axis=-2) / lengths": "np.add.reduceat(k, starts, axis=-2)"}, "variants"),
    Mutation("blocks: own block without the offset", "block_selection.py", {"(np.arange(T_q)[:, None] + offset) // block": "np.arange(T_q)[:, None] // block"}, "variants"),
    Mutation("blocks: the mask forgotten", "block_selection.py", {"cells if inputs.mask is None else cells & inputs.mask": "cells"}, "variants"),
    Mutation("blocks: one more than top_k", "block_selection.py", {"(np.argsort(order, axis=-1) < top_k)": "(np.argsort(order, axis=-1) <= top_k)"}, "variants"),
]  # fmt: skip
