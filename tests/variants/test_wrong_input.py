"""What a user may get wrong: a typed error that names the argument, what was expected, what came."""

import numpy as np
import pytest

from mha_numpy import KVCache, attention_forward
from mha_numpy.errors import ConfigError, DTypeError, MaskError, ShapeError
from mha_numpy.variants import (
    DifferentialParams,
    block_selection_backward,
    block_selection_forward,
    block_selection_jvp,
    differential_attention_backward,
    differential_attention_forward,
    differential_attention_jvp,
    latent_attention_backward,
    latent_attention_decode,
    latent_attention_forward,
    latent_attention_jvp,
)
from tests.variants.test_latent import H, draw

X, PARAMS = draw(np.random.default_rng(0))
Q, K, V = np.ones((2, 6, 5, 8)), np.ones((2, 3, 7, 8)), np.ones((2, 3, 7, 4))
LAMBDAS = DifferentialParams(*np.ones((4, 8)))


def latent(x=X, params=PARAMS, **options):
    return latent_attention_forward(x, params=params, num_heads=H, **options)


def changed(**arrays):
    return lambda: latent(params=PARAMS._replace(**arrays))


def decode(kv_cache, **options):
    return latent_attention_decode(X, params=PARAMS, num_heads=H, kv_cache=kv_cache, **options)


def differential(params=LAMBDAS, lambda_init=0.2, **changes):
    arrays = {"q1": Q, "k1": K, "q2": Q, "k2": K, "v": V}
    return differential_attention_forward(
        **arrays | changes, params=params, lambda_init=lambda_init
    )


def blocks(q=Q, k=K, v=V, block=2, top_k=2, **options):
    return block_selection_forward(q, k, v, block=block, top_k=top_k, **options)


CASES = [
    (lambda: latent(X[0]), ShapeError, r"x: expected \(B, T, D\); got \(5, 9\)"),
    (lambda: latent(X.astype(int)), DTypeError, "x: expected a float array"),
    (lambda: latent(params=tuple(PARAMS)), ConfigError, "params: expected LatentAttentionParams; got tuple"),
    (changed(q_gain=None), ConfigError, "params: expected both of w_q_down and q_gain, or None"),
    (changed(w_o=None), ConfigError, "params: expected an array as w_o; got None"),
    (changed(w_q_down=PARAMS.w_q_down[1:]), ShapeError, r"w_q_down: expected \(D=9, d_cq\)"),
    (changed(q_gain=PARAMS.kv_gain), ShapeError, r"q_gain: expected \(d_cq=10,\)"),
    (changed(kv_gain=np.ones(12)), ShapeError, r"w_kv_down: expected \(D, d_c \+ d_rope\) with d_c=12"),
    (changed(w_k_up=np.ones((7, 17))), ShapeError, r"w_k_up: expected H=3 to divide its columns"),
    (changed(w_v_up=np.ones((6, 24))), ShapeError, r"w_v_up: expected \(d_c=7, H\*d_v=24\)"),
    (changed(w_q=np.ones((10, 27))), ShapeError, r"w_q: expected \(d_cq=10, H\*d_k=30\)"),
    (changed(w_o=np.ones((3, 4))), ShapeError, r"w_o: expected \(H\*d_v=24, D_out\)"),
    (changed(w_kv_down=np.ones((9, 8)), w_q=np.ones((10, 21))), ConfigError, "rope: expected an even d_k"),
    (lambda: latent(rope=None), ConfigError, "rope: expected RopeOptions"),
    (lambda: latent(positions=np.arange(4)), ShapeError, r"positions: expected \(T=5,\)"),
    (lambda: latent(eps=0), ConfigError, "eps: expected a number > 0"),
    (lambda: latent(causal=True), ConfigError, "causal: there is no such argument here"),
    (lambda: latent_attention_backward(X, None), ConfigError, "cache: expected the LatentAttentionCache"),
    (lambda: latent_attention_backward(X, latent()[1]), ShapeError, r"d_out: .*D_out=11\)"),
    (lambda: latent_attention_jvp({}, None), ConfigError, "cache: expected the LatentAttentionCache"),
    (lambda: latent_attention_jvp({"params": {"w": X}}, latent()[1]), ConfigError, r"params: expected names among \['w_q_down'"),
    (lambda: latent_attention_jvp({"x": X[0]}, latent()[1]), ShapeError, r"x_dot: expected \(2, 5, 9\), as x; got \(5, 9\)"),
    (lambda: decode(None), ConfigError, "kv_cache: expected a KVCache; got NoneType"),
    (lambda: decode(KVCache(), q_offset=1), ConfigError, "q_offset: expected none"),
    (lambda: decode(KVCache(), absorb=1), ConfigError, "absorb: expected True or False"),
    (lambda: differential(params=tuple(LAMBDAS)), ConfigError, "params: expected DifferentialParams; got tuple"),
    (lambda: differential(q1=np.ones(3)), ShapeError, r"q1: expected \(B, H, T_q, d\).*got \(3,\)"),
    (lambda: differential(q2=Q[:, :, 1:]), ShapeError, r"q2: expected \(B=2, H=6, T_q=5, d_k=8\) to match q1"),
    (lambda: differential(k2=K[..., 1:]), ShapeError, r"k2: expected \(B=2, H_kv=3, T_k=7, d_k=8\)"),
    (lambda: differential(v=V[:, :, 1:]), ShapeError, r"v: expected \(B=2, H_kv=3, T_k=7, d_v\)"),
    (lambda: differential(params=LAMBDAS._replace(lambda_k2=np.ones(7))), ShapeError, r"lambda_k2: expected \(d=8,\)"),
    (lambda: differential(params=LAMBDAS._replace(lambda_k1=None)), DTypeError, "lambda_k1: expected a float array"),
    (lambda: differential(params=LAMBDAS._replace(gain=np.ones(7))), ShapeError, r"gain: expected \(d_v=4,\) to match v; got \(7,\)"),
    (lambda: differential(lambda_init="0.8"), ConfigError, "lambda_init: expected a finite number"),
    (lambda: differential_attention_backward(V, None), ConfigError, "cache: expected the DifferentialCache"),
    (lambda: differential_attention_backward(V, differential()[1]), ShapeError, r"d_out: expected \(2, 6, 5, 4\)"),
    (lambda: differential_attention_jvp({}, None), ConfigError, "cache: expected the DifferentialCache"),
    (lambda: differential_attention_jvp({"q": Q}, differential()[1]), ConfigError, r"tangents: expected names among \['q1'"),
    (lambda: differential_attention_jvp({"params": {"gain": V}}, differential()[1]), ConfigError, "gain_dot: expected None, as forward had no gain"),
    (lambda: blocks(block=0), ConfigError, "block: expected an integer >= 1"),
    (lambda: blocks(top_k=1.5), ConfigError, "top_k: expected an integer"),
    (lambda: blocks(k=K[..., 1:]), ShapeError, r"k: expected \(B=2, H_kv, T_k, d_k=8\)"),
    (lambda: blocks(mask=np.ones((5, 7))), MaskError, "mask: expected a bool array"),
    (lambda: blocks(is_casual=True), ConfigError, "is_casual: .*did you mean 'is_causal'"),
    (lambda: block_selection_backward(Q, None), ConfigError, "cache: expected the BlockSelectionCache"),
    (lambda: block_selection_jvp({}, attention_forward(Q, K, V)[1]), ConfigError, "cache: expected the BlockSelectionCache"),
    (lambda: block_selection_backward(Q, blocks()[1]), ShapeError, r"d_out: expected \(B=2, H=6, T_q=5, d_v=4\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), CASES)
def test_wrong_input(call, error, message):
    with pytest.raises(error, match=f"^{message}"):
        call()
