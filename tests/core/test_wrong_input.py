"""What a user may get wrong: a typed error, one line, the argument, what was expected, what came."""

import inspect

import numpy as np
import pytest

import mha_numpy as mha
from mha_numpy.core import FullMultiHeadParams, MultiHeadParams, QKNormOptions, RopeOptions
from mha_numpy.errors import (
    ConfigError,
    DTypeError,
    MaskError,
    MhaError,
    ShapeError,
)

Q, K, V = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))
X, W = np.ones((2, 5, 12)), np.ones((12, 12))
PARAMS = MultiHeadParams(W, None, W, None, W, None, W, None)
FULL = FullMultiHeadParams(*PARAMS)
OUT, CACHE = mha.attention_forward(Q, K, V)
RAGGED = [[1.0], [1.0, 2.0]]


def attention(q=Q, k=K, v=V, **options):
    return mha.attention_forward(q, k, v, **options)


def multi_head(x_q=X, x_k=None, x_v=None, params=PARAMS, num_heads=4, **options):
    return mha.multi_head_attention_forward(
        x_q, x_k, x_v, params=params, num_heads=num_heads, **options
    )


def extra(**options):
    return multi_head(extra_k=W[:1], extra_v=W[:1], **options)


def turned(**options):
    return multi_head(rope=RopeOptions(rotary_dim=2), **options)


def decode(x=X, **options):
    return mha.multi_head_attention_decode(
        x, **{"kv_cache": mha.KVCache(), "params": PARAMS, "num_heads": 4, **options}
    )


def layer(**options):
    return mha.MultiHeadAttention(**{"embed_dim": 12, "num_heads": 4, **options})


CASES = [
    # attention: rank and sizes
    (lambda: attention(q=np.ones(8)), ShapeError, r"q: expected \(B, H, T_q, d_k\).*got \(8,\)"),
    (lambda: attention(q=np.ones((1,) * 5)), ShapeError, r"q: .*got \(1, 1, 1, 1, 1\)"),
    (lambda: attention(k=K[0]), ShapeError, r"k: expected \(B=2, H_kv, T_k, d_k=8\).*got \(3, 7, 8\)"),
    (lambda: attention(k=K[:1]), ShapeError, r"k: expected \(B=2.*q \(2, 6, 5, 8\); got \(1, 3, 7, 8\)"),
    (lambda: attention(k=K[..., :7]), ShapeError, r"k: .*d_k=8.*got \(2, 3, 7, 7\)"),
    (lambda: attention(k=np.ones((2, 4, 7, 8))), ShapeError, r"k: .*H_kv dividing H=6.*got \(2, 4"),
    (lambda: attention(k=np.ones((2, 0, 7, 8)), v=np.ones((2, 0, 7, 4))), ShapeError, r"k: .*got \(2, 0"),
    (lambda: attention(k=np.ones((2, 12, 7, 8)), v=np.ones((2, 12, 7, 4))), ShapeError, "dividing H=6"),
    (lambda: attention(v=V[:, :2]), ShapeError, r"v: expected \(B=2, H_kv=3, T_k=7, d_v\).*got \(2, 2"),
    (lambda: attention(v=V[:, :, :6]), ShapeError, r"v: .*T_k=7.*got \(2, 3, 6, 4\)"),
    (lambda: attention(q=Q[0], k=K[0, :1], v=V[0, :1]), ShapeError, r"k: expected \(B=6"),
    # attention: kinds
    (lambda: attention(q=None), DTypeError, "q: expected a float array; got None"),
    (lambda: attention(q="query"), DTypeError, "q: expected a float array; got 'query'"),
    (lambda: attention(k=K.astype(int)), DTypeError, r"k: .*int64; write k.astype\(np.float64\)"),
    (lambda: attention(k=K.astype(int).tolist()), DTypeError, r"k: .*; write np.array\(k, float\)"),
    (lambda: attention(v=V.astype(np.uint8)), DTypeError, "v: .*uint8"),
    (lambda: attention(v=V > 0), DTypeError, "v: .*bool; a bool array is a mask"),
    (lambda: attention(q=Q + 0j), DTypeError, "q: .*complex128; .*q.real"),
    (lambda: attention(q=Q.astype(object)), DTypeError, "q: .*of object"),
    (lambda: attention(q=RAGGED), DTypeError, r"q: expected a float array; got \[\[1.0\]"),
    (lambda: attention(k=np.array("k")), DTypeError, "k: expected a float array"),
    # attention: mask and bias
    (lambda: attention(mask=np.ones((5, 7), int)), MaskError, "mask: .*bool.*int64; .*mask == 1.*mask == 0"),
    (lambda: attention(mask=np.ones((5, 7))), MaskError, "mask: .*float64; .*bias=mask"),
    (lambda: attention(mask=np.ones((7, 5), bool)), MaskError, r"mask: .*T_q=5, T_k=7.*got \(7, 5\)"),
    (lambda: attention(mask=np.ones((2, 5, 7), bool)), MaskError, r"mask: .*H=6.*got \(2, 5, 7\)"),
    (lambda: attention(mask=np.ones((2, 3, 5, 7), bool)), MaskError, r"mask: .*got \(2, 3, 5, 7\)"),
    (lambda: attention(mask=np.ones((1,) * 5, bool)), MaskError, r"mask: .*got \(1, 1, 1, 1, 1\)"),
    (lambda: attention(mask="causal"), MaskError, "mask: expected a bool array.*got 'causal'"),
    (lambda: attention(mask=RAGGED), MaskError, "mask: expected a bool array"),
    (lambda: attention(bias=np.ones((5, 7), bool)), DTypeError, "bias: .*of bool; .*pass it as mask="),
    (lambda: attention(bias=np.ones((5, 7), int)), DTypeError, "bias: .*int64"),
    (lambda: attention(bias=np.ones((7, 5))), ShapeError, r"bias: .*T_q=5, T_k=7.*got \(7, 5\)"),
    (lambda: attention(dropout_mask=np.ones((6, 5))), ShapeError, r"dropout_mask: .*got \(6, 5\)"),
    (lambda: attention(dropout_mask=np.ones((5, 7), bool)), DTypeError, "dropout_mask: .*of bool"),
    (lambda: attention(mask=np.ones((2, 7), bool)), MaskError, r"mask\[:, None, None, :\]"),
    (lambda: attention(q=Q[:, 0], k=K[:, 0], v=V[:, 0], mask=np.ones((2, 7), bool)), MaskError, r"mask\[:, None, :\]"),
    (lambda: attention(mask=np.ones((2, 5, 7), bool)), MaskError, r"mask\[:, None, :, :\]"),
    (lambda: attention(*(x[:, :2] for x in (Q, K, V)), mask=np.ones((2, 5, 7), bool)), MaskError, r"mask: expected rank 4, because rank 3 .* B = H = 2; got \(2, 5, 7\); write"),
    (lambda: mha.softmax_forward(np.ones((2, 2, 5, 7)), mask=np.ones((2, 5, 7), bool)), MaskError, r"mask: .*write mask\[:, None\]"),
    (lambda: mha.MultiHeadAttention(4, 2)(np.ones((2, 3, 4)), mask=np.ones((2, 3, 3), bool)), MaskError, r"mask: .*write mask\[:, None\]"),
    (lambda: attention(k=Q, v=Q, mask=np.ones((6, 6), bool)), MaskError, r"if q, k and v are \(B, T, H, d\)"),
    (lambda: attention(k=np.ones((2, 4, 5, 8)), v=np.ones((2, 4, 5, 8))), ShapeError, r"\(B, T, H, d\), write q.swapaxes"),
    # arguments of other libraries
    (lambda: attention(attn_mask=None), ConfigError, "attn_mask: there is no such argument here; write mask=.*~attn_mask"),
    (lambda: attention(key_padding_mask=None), ConfigError, r"mask=~key_padding_mask\[:, None, None, :\]"),
    (lambda: attention(dropout_p=0.1), ConfigError, "dropout_p: .*dropout_mask="),
    (lambda: multi_head(need_weights=True), ConfigError, "need_weights: .*return_weights=True"),
    (lambda: layer(batch_first=True), ConfigError, r"batch_first: .*\(B, T, D\)"),
    (lambda: layer(dropout=0.1), ConfigError, "dropout: .*write dropout_p="),
    (lambda: layer(num_key_value_heads=2), ConfigError, "write num_kv_heads="),
    (lambda: layer()(X, attn_mask=None), ConfigError, "attn_mask: .*write mask="),
    (lambda: layer()(X, causal=True), ConfigError, "causal: there is no such argument here; did you mean 'is_causal'"),
    (lambda: layer()(X, zzzzzz=True), ConfigError, "zzzzzz: there is no such argument here$"),
    # attention: options
    (lambda: attention(is_causal=1), ConfigError, "is_causal: expected True or False; got 1"),
    (lambda: attention(is_causal=np.ones((5, 7), bool)), ConfigError, "is_causal: expected True or False"),
    (lambda: attention(q_offset=1.5), ConfigError, "q_offset: expected an int"),
    (lambda: attention(q_offset=None), ConfigError, "q_offset: .*got None"),
    (lambda: attention(q_offset=True), ConfigError, "q_offset: .*got True"),
    (lambda: attention(q_offset=np.zeros(3, int)), ShapeError, r"q_offset: .*\(B=2,\), as q; got \(3,\)"),
    (lambda: attention(q_offset=np.zeros((2, 1), int)), ConfigError, "q_offset: "),
    (lambda: attention(Q[0, 0], K[0, 0], V[0, 0], q_offset=np.array([1])), ShapeError, "no batch axis"),
    (lambda: attention(window=3), ConfigError, r"window: expected \(left, right\).*got 3"),
    (lambda: attention(window=(1, -1)), ConfigError, "window: expected an integer >= 0; got -1"),
    (lambda: attention(window=(1.0, 2)), ConfigError, "window: expected an integer; got 1.0"),
    (lambda: attention(softcap=0), ConfigError, "softcap: expected a number > 0; got 0"),
    (lambda: attention(softcap="2"), ConfigError, "softcap: expected a finite number; got '2'"),
    (lambda: attention(scale=np.inf), ConfigError, "scale: expected a finite number; got inf"),
    (lambda: attention(scale=np.ones(2)), ConfigError, "scale: expected a finite number"),
    (lambda: attention(scale=True), ConfigError, "scale: expected a finite number; got True"),
    (lambda: attention(head_gate=np.ones(3)), ShapeError, r"head_gate: expected \(H=6,\); got \(3,\)"),
    (lambda: attention(head_gate=np.ones((3, 6))), ShapeError, r"head_gate: expected \(B=2, H=6\)"),
    (lambda: attention(head_gate=np.ones(6, int)), DTypeError, "head_gate: .*int64"),
    (lambda: attention(Q[0, 0], K[0, 0], V[0, 0], head_gate=np.ones(6)), ShapeError, "head_gate: "),
    (lambda: attention(sink=np.ones(3)), ShapeError, r"sink: expected \(H=6,\); got \(3,\)"),
    (lambda: attention(sink=0.5), ShapeError, r"sink: expected \(B=2, H=6\); got \(\)"),
    (lambda: attention(Q[0, 0], K[0, 0], V[0, 0], sink=np.ones(6)), ShapeError, "sink: expected q of rank 4"),
    (lambda: attention(backend="gpu"), ConfigError, "backend: expected one of .*got 'gpu'"),
    (lambda: mha.scaled_dot_product_attention(Q, K[..., :3], V), ShapeError, "k: expected"),
    # attention: backward
    (lambda: mha.attention_backward(OUT, CACHE, d_lse=OUT), ShapeError, r"d_lse: expected \(B=2, H=6, T_q=5\); got \(2, 6, 5, 4\)"),
    (lambda: mha.merge_forward(OUT, CACHE.lse[:1]), ShapeError, r"lses: expected \(2, 6, 5\), as outs \(2, 6, 5, 4\); got"),
    (lambda: mha.merge_forward([], []), ShapeError, r"lses: expected \(P, ..., T_q\), as outs \(0,\); got \(0,\)"),
    (lambda: mha.merge_forward(OUT[:0], CACHE.lse[:0]), ShapeError, r"outs: expected at least one part; got \(0, 6"),
    (lambda: mha.merge_forward([OUT, OUT[:1]], CACHE.lse), ShapeError, r"outs\[1\]: expected \(2, 6, 5, 4\), as outs\[0\]; got \(1"),
    (lambda: mha.merge_forward([OUT, None], CACHE.lse), DTypeError, r"outs\[1\]: expected a float array; got None"),
    (lambda: mha.merge_backward(OUT, CACHE), ConfigError, "cache: expected .*MergeCache.* merge_forward"),
    (lambda: mha.merge_backward(OUT, mha.merge_forward([OUT], [CACHE.lse])[1], d_lse=OUT), ShapeError, r"d_lse: expected \(2, 6, 5\), as lse; got"),
    (lambda: mha.attention_backward(OUT[0], CACHE), ShapeError, r"d_out: expected \(B=2, H=6, T_q=5, d_v=4\)"),
    (lambda: mha.attention_backward(OUT[..., :3], CACHE), ShapeError, r"d_out: .*got \(2, 6, 5, 3\)"),
    (lambda: mha.attention_backward(None, CACHE), DTypeError, "d_out: .*got None"),
    (lambda: mha.attention_backward(OUT.astype(int), CACHE), DTypeError, "d_out: .*int64"),
    (lambda: mha.attention_backward(OUT, None), ConfigError, "cache: expected the AttentionCache of attention_forward; got None"),
    (lambda: mha.attention_stages((1, 2)), ConfigError, "cache: expected the AttentionCache"),
    (lambda: mha.softmax_backward(np.ones(2), CACHE), ConfigError, "cache: expected the SoftmaxCache"),
    (lambda: mha.softmax_jvp(np.ones(2), CACHE), ConfigError, "cache: expected the SoftmaxCache"),
    (lambda: mha.rope_jvp(np.ones((4, 8)), mha.rope_forward(np.ones((5, 8)))[1]), ShapeError, r"x_dot: expected \(5, 8\), as x; got \(4, 8\)"),
    (lambda: mha.linear_jvp({"y": X}, mha.linear_forward(X, W)[1]), ConfigError, r"tangents: expected names among \['x', 'w', 'b'\]; got 'y'"),
    (lambda: mha.merge_jvp({"outs": OUT}, mha.merge_forward([OUT], [CACHE.lse])[1]), ShapeError, r"outs_dot: expected \(1, 2, 6, 5, 4\), as outs; got \(2, 6, 5, 4\)"),
    (lambda: mha.attention_jvp({"k": Q}, CACHE), ShapeError, r"k_dot: expected \(2, 3, 7, 8\), as k; got \(2, 6, 5, 8\)"),
    (lambda: mha.attention_jvp({"bias": Q}, CACHE), ConfigError, "bias_dot: expected None, as forward had no bias; got a tangent"),
    (lambda: mha.attention_jvp({"q": Q.astype(int)}, CACHE), DTypeError, "q_dot: expected a float array; got .*int64"),
    (lambda: mha.attention_backward_jvp({}, OUT[:1], CACHE), ShapeError, r"d_out: expected \(2, 6, 5, 4\), as out; got \(1, 6, 5, 4\)"),
    (lambda: mha.attention_double_backward({"mask": Q}, OUT, CACHE), ConfigError, "d_grads: expected names among .*; got 'mask'"),
    (lambda: mha.multi_head_attention_jvp({"params": {"w_x": W}}, multi_head()[1]), ConfigError, "params: expected names among .*'w_q'.*; got 'w_x'"),
    (lambda: mha.linear_backward(np.ones(2), CACHE), ConfigError, "cache: expected the LinearCache"),
    (lambda: mha.rope_backward(np.ones(2), "x"), ConfigError, "cache: expected the RopeCache"),
    (lambda: mha.multi_head_attention_backward(X, CACHE), ConfigError, "cache: expected the MultiHeadCache"),
    (lambda: attention(q=np.ma.masked_array(Q, Q > 0)), DTypeError, "q: expected a plain array"),
    (lambda: attention(bias=RAGGED), DTypeError, "bias: expected a float array; got "),
    (lambda: attention(q_offset=RAGGED), ConfigError, "q_offset: expected an int"),
    (lambda: attention(q_offset=2**62), ConfigError, "q_offset: expected numbers up to"),
    (lambda: attention(q_offset=np.uint64(2**63)), ConfigError, "q_offset: expected numbers up to"),
    (lambda: attention(scale=10**400), ConfigError, "scale: expected a finite number"),
    (lambda: attention(*(x.astype(np.float32) for x in (Q, K, V)), softcap=1e39), ConfigError, r"softcap: expected 1\.4e-45 to 3\.4e\+38, as float32; got 1e\+39"),
    (lambda: attention(*(x.astype(np.float32) for x in (Q, K, V)), softcap=1e-50), ConfigError, "softcap: expected 1.4e-45"),
    (lambda: mha.padding_mask(RAGGED, 3), ConfigError, "lengths: "),
    (lambda: mha.padding_mask(np.arange(60), 3), ConfigError, "lengths: .*got 0 to 59"),
    (lambda: attention(Q[0, 0], K[0, 0], V[0, 0], is_causal=True, q_offset=np.arange(100)), ShapeError, "q_offset: "),
    # softmax and linear
    (lambda: mha.softmax_forward(np.float64(3)), ShapeError, r"scores: .*rank 1 to 4; got \(\)"),
    (lambda: mha.softmax_forward(np.ones((1,) * 5)), ShapeError, "scores: "),
    (lambda: mha.softmax_forward(np.ones(3), mask=np.ones(2, bool)), MaskError, r"mask: .*T_k=3.*got \(2,\)"),
    (lambda: mha.softmax_forward(np.ones(3), mask=[1, 0, 1]), MaskError, "mask: expected a bool array"),
    (lambda: mha.softmax_backward(np.ones(2), mha.softmax_forward(np.ones(3))[1]), ShapeError, r"d_weights: expected \(3,\), as weights; got \(2,\)"),
    (lambda: mha.linear_forward(X, np.ones((11, 3))), ShapeError, r"x: expected \(..., I=11\).*got \(2, 5, 12\)"),
    (lambda: mha.linear_forward(X, np.ones(12)), ShapeError, r"w: expected \(I, O\); got \(12,\)"),
    (lambda: mha.linear_forward(X, W, np.ones(11)), ShapeError, r"b: expected \(O=12,\).*got \(11,\)"),
    (lambda: mha.linear_forward(np.float64(1), W), ShapeError, "x: "),
    (lambda: mha.attention_backward(OUT, CACHE, backend="gpu"), ConfigError, "backend: expected one of .*; got 'gpu'"),
    (lambda: mha.backend("gpu").__enter__(), ConfigError, "backend: expected one of .*got 'gpu'"),
    (lambda: mha.linear_backward(np.ones((2, 5, 3)), mha.linear_forward(X, W)[1]), ShapeError, r"d_out: expected .*\(2, 5, 12\), as out; got \(2, 5, 3\)"),
    # heads
    (lambda: mha.split_heads(X, 5), ShapeError, r"x: .*num_heads=5.*got \(2, 5, 12\), and 12 / 5 leaves 2"),
    (lambda: mha.split_heads(X[0], 4), ShapeError, r"x: expected \(B, T, H\*d\); got \(5, 12\)"),
    (lambda: mha.split_heads(X, 0), ConfigError, "num_heads: expected an integer >= 1; got 0"),
    (lambda: mha.split_heads(X, 4.0), ConfigError, "num_heads: expected an integer; got 4.0"),
    (lambda: mha.merge_heads(X), ShapeError, r"heads: expected \(B, H, T, d\); got \(2, 5, 12\)"),
    # multi-head
    (lambda: multi_head(x_q=X[0]), ShapeError, r"x_q: expected \(B, T_q, D\); got \(5, 12\)"),
    (lambda: multi_head(x_k=X[:1]), ShapeError, r"x_k: expected \(B=2, T_k, kdim\) to match x_q"),
    (lambda: multi_head(x_k=X, x_v=X[:, :4]), ShapeError, r"x_v: expected \(B=2, T_k=5, vdim\)"),
    (lambda: multi_head(x_q=X.astype(int)), DTypeError, "x_q: .*int64"),
    (lambda: multi_head(num_heads=5), ShapeError, r"w_q: expected H=5 to divide its columns; got \(12, 12\)"),
    (lambda: multi_head(num_heads=None), ConfigError, "num_heads: expected an integer; got None"),
    (lambda: multi_head(num_kv_heads=3), ConfigError, "num_kv_heads: expected a divisor of num_heads=4; got 3"),
    (lambda: multi_head(num_kv_heads=2), ShapeError, r"w_k: expected \(kdim=12, H_kv\*d_k=6\).*got \(12, 12\)"),
    (lambda: multi_head(params=(W, W, W, W)), ConfigError, "params: expected MultiHeadParams; got tuple"),
    (lambda: multi_head(params=PARAMS._replace(w_q=W[:11])), ShapeError, r"w_q: expected \(D=12"),
    (lambda: multi_head(params=PARAMS._replace(w_o=W[:8])), ShapeError, r"w_o: expected \(H\*d_v=12, D_out\)"),
    (lambda: multi_head(params=PARAMS._replace(w_v=None)), DTypeError, "w_v: .*got None"),
    (lambda: multi_head(params=PARAMS._replace(b_q=np.ones(3))), ShapeError, r"b_q: expected \(H\*d_k=12,\)"),
    (lambda: multi_head(mask=np.ones((2, 5, 5), bool)), MaskError, r"mask: .*got \(2, 5, 5\)"),
    (lambda: multi_head(rope=RopeOptions(rotary_dim=5)), ConfigError, "rotary_dim: .*even number up to d=3"),
    (lambda: multi_head(rope=RopeOptions()), ConfigError, "rope: expected an even d_k.*got d_k=3"),
    (lambda: multi_head(rope=True), ConfigError, "rope: expected RopeOptions.*got True"),
    # around attention
    (lambda: multi_head(qk_norm=True), ConfigError, r"qk_norm: expected QKNormOptions\(...\) or None; got True"),
    (lambda: multi_head(qk_norm=QKNormOptions("all")), ConfigError, r"place: expected one of \('heads', 'projection', 'rotated'\); got 'all'"),
    (lambda: multi_head(qk_norm=QKNormOptions(eps=0)), ConfigError, "eps: expected a number > 0; got 0"),
    (lambda: multi_head(params=FULL._replace(gain_q=W[0, :3])), ConfigError, "gain_q: expected qk_norm= with it; got None"),
    (lambda: multi_head(qk_norm=QKNormOptions(), params=FULL._replace(gain_k=W[0])), ShapeError, r"gain_k: expected \(d_k=3,\) to match w_k; got \(12,\)"),
    (lambda: multi_head(qk_norm=QKNormOptions("projection"), params=FULL._replace(gain_q=W[0, :3])), ShapeError, r"gain_q: expected \(H\*d_k=12,\) to match w_q; got \(3,\)"),
    (lambda: multi_head(params=FULL._replace(b_gate=W[0])), ConfigError, "b_gate: expected w_gate= with it; got None"),
    (lambda: multi_head(params=FULL._replace(w_gate=W[:, :3])), ShapeError, r"w_gate: expected \(D=12, H\*d_v=12\) to match the inputs and heads; got \(12, 3\)"),
    (lambda: multi_head(params=FULL._replace(w_gate=W[:, :4], b_gate=W[0])), ShapeError, r"b_gate: expected \(H=4,\) to match w_gate; got \(12,\)"),
    (lambda: multi_head(positions=np.arange(5)), ConfigError, "positions: expected rope= with them"),
    (lambda: turned(positions=np.arange(4)), ShapeError, r"positions: expected \(T=5,\) or \(B=2, T=5\) to match x \(2, 5, 12\); got \(4,\)"),
    (lambda: turned(x_k=X, key_positions=np.arange(4)), ShapeError, r"key_positions: expected \(T=5,\) or .*; got \(4,\)"),
    (lambda: turned(positions=["a"] * 5), DTypeError, "positions: expected numbers"),
    # extra keys: what is said about tokens is checked against T_k tokens
    (lambda: multi_head(extra_k=W), DTypeError, "extra_v: expected a float array; got None"),
    (lambda: multi_head(extra_v=W), DTypeError, "extra_k: expected a float array; got None"),
    (lambda: multi_head(extra_k=W[:2, :9], extra_v=W[:2]), ShapeError, r"extra_k: expected \(E, H_kv\*d_k=12\) to match w_k; got \(2, 9\)"),
    (lambda: multi_head(extra_k=W[0], extra_v=W[:1]), ShapeError, r"extra_k: expected \(E, H_kv\*d_k=12\) to match w_k; got \(12,\)"),
    (lambda: multi_head(extra_k=W[:2], extra_v=W[:1]), ShapeError, r"extra_v: expected \(E=2, H_kv\*d_v=12\) to match w_v and extra_k; got \(1, 12\)"),
    (lambda: multi_head(extra_k=W[:1] > 0, extra_v=W[:1]), DTypeError, "extra_k: expected a float array"),
    (lambda: extra(mask=np.ones((5, 6), bool)), MaskError, r"mask: expected .*T_q=5, T_k=5\).*got \(5, 6\)"),
    (lambda: extra(mask=np.ones((5, 5))), MaskError, "mask: expected a bool array"),
    (lambda: extra(bias=np.ones((5, 6))), ShapeError, r"bias: expected .*T_q=5, T_k=5\).*got \(5, 6\)"),
    (lambda: extra(dropout_mask=np.ones((5, 5))), ShapeError, r"dropout_mask: expected .*T_q=5, T_k\+E=6\).*got \(5, 5\)"),
    (lambda: extra(dropout_mask=np.ones((5, 6), int)), DTypeError, "dropout_mask: .*int64"),
    (lambda: extra(is_causal=1), ConfigError, "is_causal: expected True or False; got 1"),
    (lambda: extra(window=3), ConfigError, r"window: expected \(left, right\).*got 3"),
    (lambda: extra(q_offset=np.zeros(3, int)), ShapeError, r"q_offset: .*\(B=2,\).*got \(3,\)"),
    (lambda: extra(attn_mask=None), ConfigError, "attn_mask: there is no such argument here"),
    (lambda: multi_head(add_bias_kv=True), ConfigError, "add_bias_kv: .*write add_bias_kv=, when a MultiHeadAttention is made"),
    (lambda: layer(add_zero_attn=1), ConfigError, "add_zero_attn: expected True or False; got 1"),
    (lambda: layer(add_bias_kv=None), ConfigError, "add_bias_kv: expected True or False; got None"),
    (lambda: multi_head(rope=RopeOptions(rotary_dim=2), q_offset=np.zeros(3, int)), ShapeError, r"q_offset: .*\(B=2,\).*got \(3,\)"),
    (lambda: mha.multi_head_attention_backward(X[0], multi_head()[1]), ShapeError, r"d_out: expected \(B=2, T_q=5, D_out=12\); got \(5, 12\)"),
    # decode
    (lambda: decode(kv_cache={}), ConfigError, "kv_cache: expected a KVCache; got dict"),
    (lambda: decode(q_offset=3), ConfigError, "q_offset: expected none"),
    (lambda: mha.KVCache().append(K[0], V), ShapeError, r"k: expected \(B, H_kv, T, d_k\); got \(3, 7, 8\)"),
    (lambda: mha.KVCache().append(K, V[:, :2]), ShapeError, r"v: expected \(B=2, H_kv=3, T=7, d_v\)"),
    (lambda: mha.KVCache().append(K.astype(int), V), DTypeError, "k: .*int64"),
    # positions
    (lambda: mha.document_ids(np.array([2, -1])), ConfigError, r"lengths: expected \(N,\)"),
    (lambda: mha.document_ids(np.array([2, 3]), T=4), ConfigError, "T: expected .* >= 5; got 4"),
    (lambda: mha.document_mask(np.ones(3)), ConfigError, r"ids: expected a \(T,\) or \(B, T\)"),
    (lambda: mha.document_positions(np.ones((1, 2, 3), int)), ConfigError, r"ids: expected \(T,\)"),
    (lambda: mha.positions_from_mask(np.ones((2, 3), int)), MaskError, "write mask == 1"),
    (lambda: mha.positions_from_mask(np.ones((1, 2, 3), bool)), MaskError, r"mask: expected \(T,"),
    (lambda: mha.rope_forward(np.ones(8)), ShapeError, r"x: expected \(B, H, T, d\)"),
    (lambda: mha.rope_forward(np.ones((5, 7))), ShapeError, "x: expected an even last axis.*d=7"),
    (lambda: mha.rope_forward(np.ones((5, 8)), rotary_dim=3), ConfigError, "rotary_dim: .*got 3"),
    (lambda: mha.rope_forward(np.ones((5, 8)), rotary_dim=10), ConfigError, "rotary_dim: .*up to d=8"),
    (lambda: mha.rope_forward(np.ones((5, 8)), base=-1.0), ConfigError, "base: expected a number > 0"),
    (lambda: mha.rope_forward(np.ones((5, 8)), interleaved="yes"), ConfigError, "interleaved: "),
    (lambda: mha.rope_forward(np.ones((5, 8)), positions=3), ShapeError, r"positions: .*\(T=5,\)"),
    (lambda: mha.rope_forward(np.ones((5, 8)), positions=np.arange(4)), ShapeError, r"positions: .*got \(4,\)"),
    (lambda: mha.rope_forward(np.ones((5, 8)), positions=["a"] * 5), DTypeError, "positions: "),
    (lambda: mha.rope_backward(np.ones((4, 8)), mha.rope_forward(np.ones((5, 8)))[1]), ShapeError, r"d_out: expected \(5, 8\), as out; got \(4, 8\)"),
    (lambda: mha.alibi_bias(0, 3), ConfigError, "H: expected an integer >= 1; got 0"),
    (lambda: mha.alibi_bias(2, -1), ConfigError, "T_q: "),
    (lambda: mha.alibi_bias(2, 3, q_offset=0.5), ConfigError, "q_offset: "),
    (lambda: mha.alibi_bias(2, 3, q_offset=2**70), ConfigError, "q_offset: expected numbers up to"),
    (lambda: mha.sinusoidal_positions(5, 0), ConfigError, "D: "),
    (lambda: mha.sinusoidal_positions(5, 4, base=0), ConfigError, "base: "),
    # masks
    (lambda: mha.causal_mask(-1), ConfigError, "T_q: expected an integer >= 0; got -1"),
    (lambda: mha.causal_mask(3, 2.5), ConfigError, "T_k: "),
    (lambda: mha.causal_mask(3, q_offset="end"), ConfigError, "q_offset: "),
    (lambda: mha.window_mask(3, window=(1,)), ConfigError, "window: "),
    (lambda: mha.padding_mask(np.array([1.0]), 3), ConfigError, r"lengths: .*got an array \(1,\) of float64"),
    (lambda: mha.padding_mask(np.array([4]), 3), ConfigError, "lengths: .*0 to T_k=3"),
    (lambda: mha.padding_mask(3, 3), ConfigError, "lengths: "),
    (lambda: mha.combine_masks(np.ones(3, bool), np.ones(3)), MaskError, r"masks\[1\]: .*float64"),
    (lambda: mha.combine_masks(np.ones(3, bool), np.ones(2, bool)), MaskError, r"masks\[1\]: .*got \(2,\)"),
    (lambda: mha.explain_mask(np.ones(3, bool)), MaskError, r"mask: .*got \(3,\)"),
    (lambda: mha.explain_mask(np.ones((3, 3))), MaskError, "mask: .*float64"),
    (lambda: mha.explain_mask(mha.causal_mask(3), query_labels=["a"]), ConfigError, "query_labels: .*T_q=3"),
    # layer
    (lambda: layer(num_heads=5), ConfigError, "num_heads: expected a divisor of embed_dim=12.*got 5"),
    (lambda: layer(num_kv_heads=3), ConfigError, "num_kv_heads: expected a divisor of num_heads=4"),
    (lambda: layer(embed_dim="12"), ConfigError, "embed_dim: expected an integer; got '12'"),
    (lambda: layer(head_dim=0), ConfigError, "head_dim: "),
    (lambda: layer(dropout_p=1.0), ConfigError, "dropout_p: expected 0 <= p < 1; got 1.0"),
    (lambda: layer(rope=True), ConfigError, "rope: expected RopeOptions"),
    (lambda: layer(bias=None), ConfigError, "bias: expected True or False; got None"),
    (lambda: layer(backend="cuda"), ConfigError, "backend: "),
    (lambda: layer()(X[..., :11]), ShapeError, r"query: expected \(B, T_q, D=12\).*got \(2, 5, 11\)"),
    (lambda: layer()(None), DTypeError, "query: .*got None"),
    (lambda: layer()(X, X[:1]), ShapeError, r"key: expected \(B=2, T_k, kdim=12\)"),
    (lambda: layer()(X, X, X[:, :4]), ShapeError, r"value: expected \(B=2, T_k=5, vdim=12\)"),
    (lambda: layer().backward(X), MhaError, "backward: expected a forward before it"),
    (lambda: layer().astype(int), DTypeError, "dtype: "),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CASES, ids=range(len(CASES)))
def test_a_typed_error_in_one_line(call, error, message):
    with pytest.raises(error, match=message) as raised:
        call()
    assert isinstance(raised.value, MhaError)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250


def test_there_are_many():
    assert len(CASES) >= 60


def test_shape_and_value_errors_are_also_the_builtin_ones():
    assert issubclass(ShapeError, ValueError)
    assert issubclass(MaskError, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(DTypeError, TypeError)


def test_every_public_function_is_tried():
    tried = inspect.getsource(inspect.getmodule(test_there_are_many))
    functions = [name for name in mha.__all__ if inspect.isfunction(getattr(mha, name))]
    untried = {name for name in functions if f"mha.{name}(" not in tried}
    own = {"compare", "gradcheck", "identify", "trace", "tree_mask", "tree_positions"}
    assert untried == own  # have tests of their own


@pytest.mark.usefixtures("backend")
class TestInputsAreLeftAlone:
    """Read-only arrays go in: a write anywhere would raise. For attention `results` looks."""

    @staticmethod
    def frozen(rng, *shape):
        array = rng.normal(size=shape)
        array.flags.writeable = False
        return array

    def test_multi_head(self, rng):
        params = MultiHeadParams(
            *(self.frozen(rng, *s) for _ in range(4) for s in ((12, 12), (12,)))
        )
        out, cache = mha.multi_head_attention_forward(
            self.frozen(rng, 2, 5, 12), params=params, num_heads=2, rope=RopeOptions()
        )
        mha.multi_head_attention_backward(self.frozen(rng, *out.shape), cache)
        mha.multi_head_attention_decode(
            self.frozen(rng, 2, 5, 12), kv_cache=mha.KVCache(), params=params, num_heads=2
        )

    def test_the_rest(self, rng):
        weights, cache = mha.softmax_forward(self.frozen(rng, 3, 4), mask=np.eye(3, 4, dtype=bool))
        mha.softmax_backward(self.frozen(rng, 3, 4), cache)
        out, cache = mha.linear_forward(
            self.frozen(rng, 3, 4), self.frozen(rng, 4, 2), self.frozen(rng, 2)
        )
        mha.linear_backward(self.frozen(rng, 3, 2), cache)
        out, cache = mha.rope_forward(self.frozen(rng, 3, 4))
        mha.rope_backward(self.frozen(rng, 3, 4), cache)

    def test_backward_twice_gives_the_same(self, rng):
        d_out = rng.normal(size=OUT.shape)
        first, second = (mha.attention_backward(d_out, CACHE) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))
