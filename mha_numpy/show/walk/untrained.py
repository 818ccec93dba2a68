"""A sentence or an array of yours, and a layer with random params."""

from pathlib import Path

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.walk.files import read_input
from mha_numpy.show.walk.result import Setting
from mha_numpy.show.walk.tokens import embed, tokenize

NOTE = "Random params: nothing here is trained."


def random_setting(
    text: str | None,
    *,
    file: str | Path | None,
    heads: int | None,
    kv_heads: int | None,
    dim: int | None,
    causal: bool,
    cross: str | None,
    seed: int,
) -> Setting:
    """Draw a vector for each token, and the params of a layer, as `walk` explains."""
    if file is not None:
        x_q = read_input(Path(file), dim)
        tokens = [f"t{t}" for t in range(x_q.shape[1])]
    else:
        tokens = tokenize(text or "")
        x_q = embed(tokens, 16 if dim is None else dim, seed=seed)[None]
    B, _, D = x_q.shape
    inputs, source_tokens = {"x_q": x_q}, tokens
    if cross is not None:
        source_tokens = tokenize(cross, name="cross")
        inputs["x_k"] = np.stack([embed(source_tokens, D, seed=seed)] * B)
    return Setting(
        layer=_random_layer(D, 4 if heads is None else heads, kv_heads, seed),
        inputs=inputs,
        tokens=tokens,
        source_tokens=source_tokens,
        is_cross=cross is not None,
        is_causal=causal,
        seed=seed,
        about=(
            f"Random, not trained: the vectors of words, the params and the upstream gradient are "
            f"drawn with seed {seed}. They show how attention works, not what it learns."
        ),
        note=NOTE,
    )


def _random_layer(D: int, heads: int, kv_heads: int | None, seed: int) -> MultiHeadAttention:
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
