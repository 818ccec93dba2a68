"""What docstrings, comments and names promise, and what they only seem to promise."""

import re

import pytest

from mha_numpy.identifying.family import SETTINGS
from mha_numpy.identifying.family.inputs import ORDERS
from mha_numpy.identifying.judging.promises import _rules, find_promises
from mha_numpy.identifying.reporting.rows import _meanings

HALF = [
    f"{row}: fine | float16 | float16, computed in a wider dtype | float32 | float64"
    for row in ("half_masked", "float16")
]
IN_HEADS = " | ".join(f"{order} in each head" for order in ORDERS)
SEES, HIDES = "true = visible", "true = blocked"

# (signature, docstring, what is promised: "setting argument: a value | another")
PROMISING = [
    ("f(q, k, v, pad_mask)",
     "As in PyTorch's layer: pad_mask is True at the padded positions, which are ignored.",
     ["mask pad_mask: true = blocked"]),
    ("f(q, k, v)", "q is changed in place. Not a pure function.", ["inputs: changed"]),
    ("f(q, k, v, bias)", "logits = query . key / sqrt(depth) + bias",
     ["bias bias: added after the scale", "scale: 1/sqrt(d)"]),
    ("f(q, k, v, bias)", "softmax((q @ k^T + bias) / sqrt(d)) v",
     ["bias bias: added before the scale", "normaliser: softmax", "scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "The logits are divided by sqrt of the head width.", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v, w)", "w=1 means that a token sees only itself.", ["window_given w: w-1 before"]),
    ("f(q, k, v)", "In the precision of its inputs.", ["sums: float64"]),
    ("f(q, k, v, w)", "A token sees itself and the w - 1 tokens before it.",
     ["window_given w: w-1 before"]),
    ("f(q, k, v)", "If all keys of a batch entry are padding, its output is zero.",
     ["blind: zeros"]),
    ("f(q, k, v)", "Query head i reads kv head i / n_rep.", ["grouping: repeat"]),
    ("f(q, k, v)", "Query heads 0..n-1 share kv head 0.", ["grouping: repeat"]),
    ("f(q, k, v)", "Works in the dtype of its inputs (float32, float16).",
     [*HALF, "sums: float64"]),
    ("f(x, pad_mask)", "pad_mask follows PyTorch: (B, S), True marks padding.",
     [f"mask pad_mask: {HIDES}"]),
    ("f(x, mask)", "With NumPy's mask semantics (1 = attend, 0 = ignore).", [f"mask mask: {SEES}"]),
    ("f(x, w)", "w: (heads, 3, size, width)", []),
    ("f(x, w)", "w has rows (heads, 3, size).", [f"packing: {IN_HEADS}"]),
    ("f(q, k, v)", "The equivalent of torch.repeat_interleave(x, 1, n).", ["grouping: repeat"]),
    ("f(q, k, v)", "The last query sees every key, the one before it all except the last.",
     ["alignment: bottom right"]),
    ("f(q, k, v)", "A hidden key must get weight 0.", ["softcap_at: before the bias"]),
    ("f(q, k, v)", "Made for float16.", HALF),
    ("f(x)", "For inputs of shape (batch, seq_len, embed_dim).", ["order: batch first"]),
    ("f(x)", "x is (T, B, D).", ["order: tokens first"]),
    ("f(q, k, v)", "The result is written over q.", ["inputs: changed"]),
    ("f(q, k, v)", "Returns (output, weights): the weights are of all heads.",
     ["returned: output, weights"]),
    ("f(q, k, v, pad)", "Args:\n    pad: True marks tokens to be ignored\nAttention is averaged.",
     [f"mask pad: {HIDES}"]),
    ("f(q, k, v)", "Returns:\n    out: (T, d)\n    weights: (T, S)",
     ["returned: output, weights"]),
    ("f(q, k, v)", "Returns a tuple (attention output, attention weights).",
     ["returned: output, weights"]),
    ("f(x, w_o)", "w_o is stored transposed.", ["orientation: mixed"]),
    ("f(q, k, v, half_width)", "At most half_width neighbours on either side.",
     ["window_given half_width: w both"]),
    ("f(q, k, v)", "This overwrites q.", ["inputs: changed"]),
    ("f(q, k, v)", "All flat. Causal. kv head g serves the query heads g*H/G ... (g+1)*H/G - 1.",
     ["causal: past and itself", "grouping: repeat"]),
    # masks: by name
    ("attend(q, k, v, visible)", "Softmax attention.", [f"mask visible: {SEES}"]),
    ("attend(q, k, v, keep_mask=None)", "", [f"mask keep_mask: {SEES}"]),
    ("attend(q, k, v, allowedKeys=None)", "", [f"mask allowedKeys: {SEES}"]),
    ("attend(q, k, v, blocked)", "q (T, d), blocked (T, T)", [f"mask blocked: {HIDES}"]),
    ("attend(x, is_pad)", "", [f"mask is_pad: {HIDES}"]),
    ("attend(q, k, v, valid=None)", "valid: True where a key is padding.",
     [f"mask valid: {HIDES}"]),
    # masks: numpydoc, Google, Sphinx, plain
    ("sdpa(q, k, v, mask=None)",
     "Attention.\n\nParameters\n----------\nq, k, v : ndarray (B, H, T, d)\nmask : ndarray of"
     " bool\n    True where a query may attend to a key.\n\nReturns\n-------\nout",
     [f"mask mask: {SEES}"]),
    ("sdpa(q, k, v, mask=None)",
     "Args:\n    q: queries\n    mask: Boolean tensor. Positions with True are"
     " ignored.\n\nReturns:\n    True if all is well.", [f"mask mask: {HIDES}"]),
    ("sdpa(q, k, v, mask=None)",
     ":param q: queries\n:param mask: 1 for tokens that are **not masked**, 0 for tokens that"
     " are **masked**.\n:return: the output", [f"mask mask: {SEES}"]),
    ("mha(query, key, value, attn_mask=None)",
     "attn_mask: True means that the corresponding position is not allowed to attend.",
     [f"mask attn_mask: {HIDES}"]),
    ("mha(query, key, value, key_padding_mask=None)",
     "Args:\n  key_padding_mask: For a binary mask, a ``True`` value indicates that the\n   "
     " corresponding ``key`` value will be ignored for the purpose of attention.",
     [f"mask key_padding_mask: {HIDES}"]),
    ("mha(query, value, key=None, attention_mask=None)",
     "attention_mask: a boolean mask of shape (B, T, S), that prevents attention to certain\n   "
     " positions, 1 indicates attention and 0 indicates no attention.",
     [f"mask attention_mask: {SEES}"]),
    ("attn(src, src_pad)", "src (B, S, D), src_pad (B, S) with 1.0 for padding and 0.0 for tokens",
     ["order: batch first", f"mask src_pad: {HIDES}"]),
    ("attn(x, mask)", "mask (T, T): True = key is not visible", [f"mask mask: {HIDES}"]),
    ("attn(x, mask)", "x (T, D)\nmask (T, T), positions where mask == 0 are masked out",
     [f"mask mask: {SEES}"]),
    ("attn(x, m)", "`m` is (T, T); False hides a key.", [f"mask m: {SEES}"]),
    ("attn(x, pad)", "`pad` is (batch, time), 1 for a token and 0 for padding.",
     [f"mask pad: {SEES}"]),
    ("attn(a, b, ctx_mask)", "a asks b. ctx_mask (b, m): True = this token of the context is real.",
     [f"mask ctx_mask: {SEES}"]),
    ("attn(x, mask)", "Self-attention, mask[b, i, j] True: i must not look at j.",
     [f"mask mask: {HIDES}"]),
    # scale
    ("f(q, k, v)", "The scores are divided by sqrt(d_head).", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "Scores are divided by the square root of the head size.", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "Dot products scaled by 1 / sqrt(d_k), then softmax.", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "softmax(Q K^T / sqrt(d_k)) V", ["scale: 1/sqrt(d)", "normaliser: softmax"]),
    ("f(q, k, v)", "Computes softmax(QKᵀ/√dₖ)·V.", ["scale: 1/sqrt(d)", "normaliser: softmax"]),
    ("f(q, k, v)", ".. math:: \\mathrm{softmax}\\left(\\frac{QK^T}{\\sqrt{d_k}}\\right) V",
     ["scale: 1/sqrt(d)", "normaliser: softmax"]),
    ("f(x, w, h)", "d = D / h; softmax(q k' / sqrt(d)) v",
     ["scale: 1/sqrt(d)", "normaliser: softmax"]),
    ("f(q, k, v)", "T5: the dot products are not scaled.", ["scale: 1"]),
    ("f(q, k, v)", "Attention with 1/d scaling (muP).", ["scale: 1/d"]),
    ("f(q, k, v, scale=None)", "scale: factor of the scores, 1/sqrt(d) if not given",
     ["scale scale: 1/sqrt(d)", "scale_given scale: times | times, and 1/sqrt(d)"]),
    # bias
    ("f(q, k, v, bias)", "bias (H, T, S) is added to the scaled scores.",
     ["bias bias: added after the scale"]),
    ("f(q, k, v, pos)", "softmax(q k' / sqrt(d) + pos) v",
     ["bias: added after the scale", "normaliser: softmax", "scale: 1/sqrt(d)"]),
    ("f(q, k, v, rel)", "rel is added before the scaling.", ["bias: added before the scale"]),
    # groups, rotation
    ("gqa(q, k, v)", "query head h reads key/value head h // (H // H_kv)", ["grouping: repeat"]),
    ("gqa(q, k, v)", "Consecutive query heads share one kv head.", ["grouping: repeat"]),
    ("gqa(q, k, v)", "With 8 query heads and 2 kv heads, heads 0-3 use kv head 0.",
     ["grouping: repeat"]),
    ("gqa(q, k, v)", "Head h uses kv head h % n_kv.", ["grouping: tile"]),
    ("rope(x)", "Self-attention, q and k rotated in halves (NeoX style).", ["rotation: halves"]),
    ("rope(x)", "RoPE turns features 2i and 2i+1 together.", ["rotation: pairs"]),
    ("rope(x)", "Rotary: feature i turns with feature i + d/2.", ["rotation: halves"]),
    # causal, alignment, window
    ("causal_attention(x)", "", ["causal: past and itself"]),
    ("CausalSelfAttention(x)", "As in GPT.", ["causal: past and itself"]),
    ("f(x)", "Causal multi-head self-attention.", ["causal: past and itself"]),
    ("f(x)", "Position t attends to the positions 0, 1, ..., t.", ["causal: past and itself"]),
    ("f(x)", "A token sees itself and the tokens before it.", ["causal: past and itself"]),
    ("f(x)", "Token i never sees itself, only the tokens strictly before it.", ["causal: past"]),
    ("f(q, k, v, is_causal=False)", "is_causal: query i sees keys 0..i",
     ["causal is_causal: past and itself", "alignment is_causal: top left"]),
    ("f(q, k, v)", "Causal, the last query sits on the last key.",
     ["alignment: bottom right", "causal: past and itself"]),
    ("f(q, k, v, causal=True)", "causal: the mask is aligned to the bottom right corner",
     ["alignment causal: bottom right", "causal causal: past and itself"]),
    ("f(q, k, v)", "Query i sees keys 0 .. S - T + i.",
     ["alignment: bottom right", "causal: past and itself"]),
    ("f(q, k, v, w)", "Each query sees at most w keys, its own included.",
     ["window_given w: w-1 before"]),
    ("f(q, k, v, window)", "attends to `window` keys: itself and the window - 1 before it",
     ["window_given window: w-1 before"]),
    ("f(x, window)", "Token t sees itself and the `window` tokens before it.",
     ["window_given window: w before"]),
    ("f(x, radius)", "Sees keys at most radius steps away, on both sides.",
     ["window_given radius: w both"]),
    # rows that see nothing
    ("f(q, k, v, mask)", "Rows that see nothing give zeros.", ["blind: zeros"]),
    ("f(q, k, v, mask)", "Fully masked rows are zero, not NaN.", ["blind: zeros"]),
    ("f(q, k, v, mask)", "A query without any visible key comes out as NaN.", ["blind: nan"]),
    ("f(q, k, v, lens)", "lens: number of valid keys, may be 0: such rows give zeros",
     ["blind: zeros", "lengths lens: j < n"]),
    ("f(q, k, v, mask)", "A query with nothing to see averages everything.",
     ["blind: mean of all values"]),
    # numbers
    ("f(q, k, v)", "Numerically stable.", ["large_scores: fine"]),
    ("stable_softmax(x)", "", ["large_scores: fine"]),
    ("f(q, k, v)", "Inputs may be float16.", HALF),
    ("f(q, k, v)", "Use it with float32, bfloat16 or float16.", HALF),
    ("f(q, k, v)", "A pure function: no argument is changed.", ["inputs: unchanged"]),
    ("f(q, k, v)", "Does not modify its inputs.", ["inputs: unchanged"]),
    ("f(q, k, v, n)", "n (B,): keys per row. What stands in the padding may be NaN.",
     ["hidden_nan: no effect"]),
    ("f(q, k, v, mask)", "The weights of each query sum to one.", ["hide: -inf"]),
    ("f(q, k, v)", "Softmax over the keys.", ["softmax_axis: keys"]),
    ("f(x, p, rng)", "Inverted dropout on the weights, only during training.",
     ["dropout_when: in train() | if True | if False | with a rate", "dropout_scale: 1/(1-p)"]),
    ("f(x, p, rng)", "Dropout is for training only.",
     ["dropout_when: in train() | if True | if False | with a rate"]),
    ("f(q, k, v)", "Works in the dtype of q, half precision included.", HALF),
    ("f(q, k, v)", "Any floating dtype, float16 as well.", HALF),
    ("f(q, k, v, pad)", "Queries that are left without a key return zeros.", ["blind: zeros"]),
    ("f(q, k, v, bias)", "bias is added to the scaled dot products as it is.",
     ["bias bias: added after the scale"]),
    ("f(x, w)", "Token i attends to the w tokens before it and to itself.",
     ["window_given w: w before"]),
    ("f(x, w)", "A query sees the last w keys, its own among them.",
     ["window_given w: w-1 before"]),
    ("f(q, k)", "Consecutive query heads form a group.", ["grouping: repeat"]),
    ("f(x, sees_all)", "A step never looks at later steps.", ["causal: past and itself"]),
    ("f(x, w)", "At most w previous tokens in addition to itself.", ["window_given w: w before"]),
    ("f(x, w)", "Token i attends to tokens i-w+1 ... i.", ["window_given w: w-1 before"]),
    ("f(q, k)", "The queries are the last positions.", ["alignment: bottom right"]),
    ("f(q, k)", "RoFormer: pairs (2i, 2i+1) of q and k are rotated.", ["rotation: pairs"]),
    ("f(q, m)", "If a row is fully masked, its output is zero instead of NaN.", ["blind: zeros"]),
    ("f(q, mask)", "mask: positions where mask is zero are masked out", [f"mask mask: {SEES}"]),
    # projections
    ("f(x, w_qkv)", "The columns of w_qkv are query | key | value.", ["packing: qkv"]),
    ("f(x, W)", "W packs the keys first, in the order k, q, v.", ["packing: kqv"]),
    ("f(x, w, h)", "Head i works on features i*d .. (i+1)*d.", ["split: columns"]),
    ("f(x, w, w_o)", "out = heads @ w_o", ["w_o: applied"]),
    ("f(x, w, Wo)", "Heads are concatenated and go through Wo.", ["w_o: applied"]),
    ("f(tgt, src)", "The keys and the values come from src.", ["exchanged:  | k v"]),
    ("f(q, kv, pad)", "No token attends to padding.", ["rows_by: keys | both"]),
    # other words for the same
    ("f(q, k, v)", "scores / sqrt(d), then the cap", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "Here s is q.k / sqrt(d_head) - slope * distance.", ["scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "weights = softmax(S / sqrt(d_k))", ["normaliser: softmax", "scale: 1/sqrt(d)"]),
    ("f(q, k, v, tau)", "Scores times tau.", ["scale_given tau: times | times, and 1/sqrt(d)"]),
    ("f(q, k, v, tau)", "tau: what the scores are divided by",
     ["scale_given tau: divided by | divided by, and 1/sqrt(d)"]),
    ("f(q, k, v, b)", "softmax((q k^T + b) / sqrt(d)) v",
     ["bias: added before the scale", "normaliser: softmax", "scale: 1/sqrt(d)"]),
    ("f(q, k, v)", "Query heads g*r .. g*r+r-1 read key/value head g.", ["grouping: repeat"]),
    ("f(q, k, v)", "The kv heads are dealt out in turn.", ["grouping: tile"]),
    ("f(x)", "A token sees everything in the cache, and the new tokens up to itself.",
     ["alignment: bottom right", "causal: past and itself"]),
    ("f(x)", "A new token sees all old tokens, itself, and the new tokens before it.",
     ["alignment: bottom right", "causal: past and itself"]),
    ("f(q, k, v)", "Aligned at the top left.", ["alignment: top left"]),
    ("f(q, k, v)", "The last query and the last key stand at the same place.",
     ["alignment: bottom right"]),
    ("f(q, k, v)", "The last query sees every key, the one before all but the last.",
     ["alignment: bottom right"]),
    ("f(q, k, v)", "The maximum is subtracted for numerical stability.", ["large_scores: fine"]),
    ("f(q, k, v)", "Half precision is computed in float32.",
     [*HALF, "float16: float16, computed in a wider dtype | float32"]),
    ("f(q, k, v)", "The inputs are untouched.", ["inputs: unchanged"]),
    ("f(x, p)", "Dropout zeroes weights and divides the others by (1 - p).",
     ["dropout_scale: 1/(1-p)"]),
    ("f(x, w, h)", "Columns of head i are i*d .. (i+1)*d.", ["split: columns"]),
    ("f(x, lens)", "lens: (B,) how many rows of the memory are real", ["lengths lens: j < n"]),
    ("f(x, lens)", "lens [B] valid keys", ["lengths lens: j < n"]),
    ("f(x, n_valid)", "The first n_valid keys are used.", ["lengths n_valid: j < n"]),
    ("f(x, lens)", "The cache holds tokens 0 .. lens[b] - 1.", ["lengths lens: j < n"]),
    ("f(q, k, v)", "Fully masked rows are the mean of all values.", ["blind: mean of all values"]),
]  # fmt: skip

NOTHING = [
    # masks
    ("f(q, k, v, mask)", "mask: boolean array of shape (B, H, T, S)"),
    ("f(q, k, v, mask)", "mask: floats added to the scores, 0 = visible, -inf = hidden"),
    ("f(q, k, v, mask)", "mask: additive; 0 where one may look, -1e9 elsewhere"),
    ("f(q, k, v, mask)", "mask: True or False for each cell, see `make_visible`."),
    ("f(q, k, v, mask)", "In torch True = blocked, here it is the other way round."),
    ("f(q, k, v, mask)", "mask: old versions used True = blocked"),
    ("f(q, k, v, mask)", "mask: should True be visible? To be decided."),
    ("f(q, k, v, mask)", "mask: bool\n\n>>> f(q, q, q, mask)  # True = visible"),
    ("f(q, k, v, mask, invert=False)", "mask: True = visible unless invert, then True = blocked"),
    ("f(q, k, v, mask, keep_weights=False)",
     "keep_weights: True keeps the visible weights for backward"),
    ("f(q, k, v, use_mask=True)", "use_mask: True hides the future from all queries"),
    ("f(hidden_states, pad, key_padding_mask=None)", "hidden_states (B, T, D), pad (B, T)"),
    ("f(x, attention_mask, block_size=4, keep_prob=0.9)", "Attention by blocks."),
    ("f(x, hidden, block, keepdims=True, drop_mask=None)", "Kept in float32."),
    ("f(q, k, v, mask)", "mask: 1-D or 2-D, visible in the plot if debug is True"),
    ("f(q, k, v, mask)", "mask: True at places that are masked or visible, by `mode`."),
    ("f(x, mask_prob)", "mask_prob: the share of the axis (between 0 and 1) which will be masked"),
    ("f(x, to_blocked_mask, is_index_masked, is_decoder)", "Block sparse attention."),
    # scale, bias
    ("f(q, k, v)", "q has to be divided by sqrt(d_k) already."),
    ("f(q, k, v)", "Without the usual division of the scores by sqrt(d)?"),
    ("f(q, k, v)", "Returns scores; divide them by sqrt(d_k) yourself."),
    ("f(q, k, v, scale)", "scale: a number. The usual scale is 1/sqrt(d)."),
    ("f(x, w, n_head)", "x (B, T, d) -> softmax of q k' over sqrt(d)"),
    ("f(q, k, v, bias)", "bias: added to the scores"),
    ("f(q, k, v)", "Scaled dot-product attention."),
    ("f(q, k, v, sqrt_d)", "The scores are not scaled if sqrt_d is None."),
    ("f(q, k, v)", "Same as sdpa, but with scores divided by sqrt(d) when it is asked."),
    ("f(q, k, v)", "Variants with scores / sqrt(d) exist elsewhere."),
    ("f(x)", "In the decoder a token sees itself and the tokens before it."),
    ("f(q, k, v)", "scores / sqrt(d) is what BERT does."),
    # groups, rotation
    ("f(q, k, v)", "Grouped: k and v are repeated to the number of query heads."),
    ("f(q, k, v)", "T // (H // G) rows of one head, h % 2 == 0 only."),
    ("f(q, k, v)", "Rotary positions, in halves or in pairs by `style`."),
    ("f(x)", "RoPE on the first half of the features."),
    ("f(x)", "The sequence is split in halves, pairs of tokens are merged."),
    # causal, window
    ("non_causal_attention(x)", ""),
    ("causal_attention(q, k, v, mask)", "mask (T, T)"),
    ("causal_conv1d(x)", ""),
    ("ForCausalLM(x)", ""),
    ("f(x)", "The convolution in front of attention is always causal."),
    ("f(q, k, v, causal_mask)", "causal_mask (T, T)"),
    ("f(q, k, v, q_offset)", "A q_offset of 0 is aligned at the top left."),
    ("f(q, k, v, mask)", "The mask has to be causal."),
    ("f(x)", "Unlike causal attention, each token sees all tokens."),
    ("f(x)", "Like the CausalSelfAttention of nanoGPT, without its mask."),
    ("f(x)", "For causal use, see `g`."),
    ("f(x, steps)", "Token i is drawn from tokens 0..i of the vocabulary list."),
    ("f(q, k, v, window)", "window: size of the local window, in keys"),
    ("f(q, k, v, window)", "Sliding window attention; window keys are visible."),
    ("f(q, k, v, window)", "window: keys before the query that it may see"),
    ("f(x)", "Prints the bottom right corner of the weights."),
    ("f(q, k, v)", "The last query is returned with the last key for the cache."),
    # rows that see nothing
    ("f(q, k, v, mask)", "Weights of hidden keys are zero."),
    ("f(q, k, v, mask)", "Each row has to see a key, rows that see nothing are undefined."),
    ("f(q, k, v, mask)", "Do not expect zeros for rows that see nothing."),
    ("f(q, k, v, mask)", "Rows that see nothing gave NaN before version 2, or zeros."),
    ("f(q, k, v, mask)", "Do not assume that fully masked rows give zeros."),
    ("f(q, k, v, mask)", "Don't hope that fully masked rows give zeros."),
    ("f(x, n)", "The buffer starts with zeros, nothing is visible in it."),
    # numbers
    ("f(q, k, v, eps)", "eps: added to the sum for numerical stability"),
    ("f(q, k, v)", "Not numerically stable, for teaching only."),
    ("unstable_softmax(x)", ""),
    ("f(q, k, v)", "TODO: make it numerically stable"),
    ("f(q, k, v)", "float16 is not supported."),
    ("f(q, k, v)", "Overflows for float16 inputs; float32 may be used."),
    ("f(q, k, v)", "A pure NumPy function."),
    ("f(x, p)", "p: dropout probability, as in training"),
    ("f(x, p)", "Dropout is applied in training and in evaluation."),
    ("f(x, p)", "No dropout; training only differs in the loss."),
    ("f(q, k, v)", "The weights need not sum to one."),
    ("f(q, k, v)", "Slots compete: the weights sum to one over the queries."),
    ("f(q, k, v)", "Before dropout the weights sum to one."),
    ("f(x)", "Normalise the top-k weights so that the weights sum to 1 per token."),
    ("f(q, k, v)", "Softmax in float32 for stability."),
    ("f(q, k, v)", "Only accepts float16."),
    ("f(q, k, v)", "Scores are kept even in hidden cells, but no gradient may be NaN."),
    # projections
    ("f(x, c_attn)", "c_attn has 3 D columns and makes query, key and value of a token at once"),
    ("f(q, k, v)", "q, k, v: (B, H, T, d), in this order"),
    ("f(x, w_qkv)", "w_qkv: the packed projection of q, k and v"),
    ("f(x, w, wo=None)", "There is no output projection if wo is None."),
    ("f(x, lens)", "lens: index of the last valid key of each row"),
    ("f(x, w)", "Averaging over heads is left to the caller."),
    ("f(x, ctx=None)", "The keys and values come from ctx, or from x if it is None."),
]  # fmt: skip


def promised(signature: str, docstring: str, source: str = "") -> list[str]:
    name, inside = re.fullmatch(r"(\w+)\((.*)\)", signature).groups()
    arguments = re.findall(r"(\w+)(?:=[^,]*)?(?:, |$)", inside)
    return sorted(
        f"{p.setting}{' ' + p.argument if p.argument else ''}: {' | '.join(p.values)}"
        for p in find_promises(name, docstring, arguments, source)
    )


@pytest.mark.parametrize(("signature", "docstring", "expected"), PROMISING)
def test_finds_what_is_promised(signature, docstring, expected):
    assert promised(signature, docstring) == sorted(expected)


@pytest.mark.parametrize(("signature", "docstring"), NOTHING)
def test_finds_no_promise_where_there_is_none(signature, docstring):
    assert {*promised(signature, docstring)} <= {"order: batch first"}  # which shapes do say


OPENINGS = """
Unlike here | TODO | FIXME | It would be that | One could say | Perhaps it should be that |
Yourself, see to it that | The caller sees to it that | It depends, | Unless asked, | Whether |
Do not assume that | Don't think that | In older code | In version 1 | Previously | Already |
It has to be that | You have to see that | It must be that | One needs to see that |
It is the other way, | Instead, | Like the original, | Similar to others, | In torch, | As usual,
| If asked, | Either | From f or from g, | Or else | Without overflow, the | In no case are |
Not the | Non- | Never are | Without limits | It cannot be that | Nothing says that
"""


@pytest.mark.parametrize("opening", [o.strip() for o in OPENINGS.split("|")])
def test_doubts_what_is_not_said_plainly(opening):
    assert promised("f(q, k, v)", f"{opening} scores are divided by sqrt(d_k).") == []


def test_reads_comments():
    source = """
def attend(
    q, k,
    mask=None,  # True -> hide
):
    # query heads are dealt out
    # in turn: head h uses kv head h % G
    s = q @ k.T  # a token sees itself and the past
    return softmax(s)

def softmax(x):
    'Numerically stable softmax.'
"""
    assert promised("attend(q, k, mask)", "", source) == [
        "causal: past and itself", "grouping: tile", "large_scores: fine", f"mask mask: {HIDES}"
    ]  # fmt: skip
    assert promised("attend(q)", "", "def attend(q:") == []  # no Python


def test_contradictions_are_no_promise():
    assert promised("f(q, mask)", "mask: True = visible\n\nmask: True = hidden") == []
    assert promised("f(q)", "Head h uses kv head h % G. Neighbouring heads share a head.") == []


def test_quotes_the_words():
    text = "Attention with grouped heads: head h reads kv head h // G, and the scale is as usual"
    assert [p.quote for p in find_promises("f", f"{text[:57]}.", ["q"], "")] == [
        "head h reads kv head h // G"
    ]


def test_promises_only_values_of_rows():
    for setting, values, _ in _rules():
        assert {*values} & {*map(str, SETTINGS.get(setting, _meanings()[setting]))}
