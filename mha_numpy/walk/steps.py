"""walk(): run one layer forward and backward on real input, and keep everything."""

from functools import partial
from pathlib import Path

import numpy as np

from mha_numpy.checking import gradcheck
from mha_numpy.checks import check_count
from mha_numpy.core import (
    MultiHeadParams,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from mha_numpy.errors import ConfigError, describe
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.tracing import trace
from mha_numpy.walk.files import read_input
from mha_numpy.walk.result import Walk
from mha_numpy.walk.tokens import embed, tokenize

DTYPES = ("float16", "float32", "float64")


def walk(
    text: str | None = None,
    *,
    file: str | Path | None = None,
    heads: int = 4,
    kv_heads: int | None = None,
    dim: int | None = None,
    causal: bool = False,
    cross: str | None = None,
    dtype: str = "float64",
    seed: int = 0,
) -> Walk:
    """Run multi-head attention on a sentence, forward and backward, and check every gradient.

    Parameters
    ----------
    text : str, optional
        The sentence; its tokens get vectors from `seed`.
    file : path, optional
        Instead of `text`: a .npy or .npz file with a (T, D) or (B, T, D) array of one's own.
    heads, kv_heads : int
        Query heads, and key/value heads if fewer.
    dim : int, optional
        D; default 16, or what the file has.
    causal : bool
        Let each token see only itself and those before it.
    cross : str, optional
        Another sentence that keys and values come from.
    dtype : {"float64", "float32", "float16"}
        Of the two passes that are shown; gradients are checked in float64.
    seed : int
        Seeds the vectors, the params and the upstream gradient.

    Returns
    -------
    Walk

    Raises
    ------
    ConfigError
        An argument has an impossible value; the message names it.

    Examples
    --------
    >>> seen = walk("to be or not to be", heads=2, dim=8)
    >>> seen.weights.shape, bool(seen.report)
    ((1, 2, 6, 6), True)
    """
    if (text is None) == (file is None):
        raise ConfigError("text: expected a sentence, or else --input FILE; one of the two")
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: expected one of {', '.join(DTYPES)}; got {describe(dtype)}")
    check_count("seed", seed, least=0)
    if file is not None:
        x_q = read_input(Path(file), dim)
        tokens = [f"t{t}" for t in range(x_q.shape[1])]
    else:
        tokens = tokenize(text or "")
        x_q = embed(tokens, 16 if dim is None else dim, seed=seed)[None]
    B, _, D = x_q.shape
    source_tokens = tokens if cross is None else tokenize(cross, name="cross")
    x_k = None if cross is None else np.stack([embed(source_tokens, D, seed=seed)] * B)
    layer = _layer(D, heads, kv_heads, seed)

    forward = partial(
        multi_head_attention_forward,
        num_heads=layer.num_heads, num_kv_heads=layer.num_kv_heads, is_causal=causal,
    )  # fmt: skip
    params = MultiHeadParams(**layer.params)
    inputs = {"x_q": x_q, "params": params}
    if x_k is not None:
        inputs = {"x_q": x_q, "x_k": x_k, "params": params}
    is_short = x_q.shape[1] <= 64  # else every forward pass takes long: check less of each array
    report = gradcheck(
        forward, multi_head_attention_backward, inputs, rng=seed,
        max_full=1024 if is_short else 16, samples=64 if is_short else 8, directions=4,
    )  # fmt: skip

    narrow = {name: array.astype(dtype) for name, array in layer.params.items()}
    d_out = np.random.default_rng(seed).normal(size=x_q.shape).astype(dtype)
    with trace() as recorded:
        _, cache = forward(
            x_q.astype(dtype),
            None if x_k is None else x_k.astype(dtype),
            params=MultiHeadParams(**narrow),
        )
        multi_head_attention_backward(d_out, cache)
    attention = cache.attention
    return Walk(
        layer, tokens, source_tokens, causal, seed, recorded, attention.weights,
        attention.inputs.visible, report,
    )  # fmt: skip


def _layer(D: int, heads: int, kv_heads: int | None, seed: int) -> MultiHeadAttention:
    """Return a layer with random biases too: zeros would hide mistakes in their gradients."""
    heads = check_count("heads", heads)
    kv_heads = heads if kv_heads is None else check_count("kv_heads", kv_heads)
    if D % heads:
        raise ConfigError(f"heads: expected a divisor of dim={D}; got {heads}")
    if heads % kv_heads:
        raise ConfigError(f"kv_heads: expected a divisor of heads={heads}; got {kv_heads}")
    rng = np.random.default_rng(seed)
    layer = MultiHeadAttention(D, heads, kv_heads, rng=rng)
    for name, array in layer.params.items():
        if name.startswith("b_"):
            layer.params[name] = 0.1 * rng.normal(size=array.shape)
    return layer
