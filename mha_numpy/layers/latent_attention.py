"""Latent attention as a layer: keys and values of all heads from one latent per token."""

from typing import Any, NamedTuple, Unpack

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.calls import find_misfit
from mha_numpy.checks import check_count, check_number, check_shape, check_share
from mha_numpy.core import KVCache, RopeOptions
from mha_numpy.core.options import OPTIONS, AttentionOptions, takes_attention_options
from mha_numpy.core.rope import check_rope
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError
from mha_numpy.layers.dropout import draw_dropout_mask
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.variants.latent import (
    INTERLEAVED,
    latent_attention_backward,
    latent_attention_decode,
    latent_attention_forward,
)
from mha_numpy.variants.latent_params import LatentAttentionParams


class LatentOptions(NamedTuple):
    """The widths of `LatentAttention`, for blocks and models that are built of it."""

    latent_dim: int
    nope_dim: int
    rope_dim: int
    value_dim: int | None = None
    query_latent_dim: int | None = None


class LatentAttention(Layer):
    """`latent_attention_forward` with its own params.

    Parameters
    ----------
    embed_dim : int
        D, width of the input and of the output.
    num_heads : int
        H.
    latent_dim : int
        d_c, width of the latent that keys and values are made from.
    nope_dim, rope_dim : int
        d_nope and d_rope, widths of the parts of a head that are not rotated, and that are.
    value_dim : int, optional
        d_v, width of a head's values; default `nope_dim`.
    query_latent_dim : int, optional
        d_cq, width of the latent that queries are made from; default: they have none.
    rope : RopeOptions
        How to rotate; default by interleaved pairs.
    scale : float, optional
        Default ``1 / sqrt(nope_dim + rope_dim)``; a model with YaRN multiplies that by a factor.
    eps : float
        Of the norms of the latents.
    dropout_p : float
        Share of weights to drop while ``layer.training``; 0 <= p < 1.
    backend : {"numpy", "loops", "numba"}, optional
        What computes the attention core, as `attention_forward` explains.
    rng : int or numpy Generator, optional
        Seeds params and dropout: the same seed draws the same. Default: fresh randomness.

    Notes
    -----
    Matrices are Xavier-uniform, gains 1. Source: DeepSeek-AI 2024, *DeepSeek-V2*, section 2.1.
    Derivation: ``docs/latent.md``.

    Examples
    --------
    >>> layer = LatentAttention(16, 4, latent_dim=6, nope_dim=3, rope_dim=2, rng=0)
    >>> layer
    LatentAttention(embed_dim=16, num_heads=4, latent_dim=6, nope_dim=3, rope_dim=2, 790 parameters)
    >>> out = layer(np.ones((2, 5, 16)), is_causal=True)
    >>> layer.backward(np.ones_like(out)).shape, layer.grads["w_k_up"].shape
    ((2, 5, 16), (6, 12))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        latent_dim: int,
        nope_dim: int,
        rope_dim: int,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        rope: RopeOptions = INTERLEAVED,
        scale: float | None = None,
        eps: float = 1e-6,
        dropout_p: float = 0.0,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        D = self.embed_dim = check_count("embed_dim", embed_dim)
        H = self.num_heads = check_count("num_heads", num_heads)
        d_c = check_count("latent_dim", latent_dim)
        d_nope = check_count("nope_dim", nope_dim)
        d_rope = check_count("rope_dim", rope_dim)
        d_v = d_nope if value_dim is None else check_count("value_dim", value_dim)
        d_cq = D if query_latent_dim is None else check_count("query_latent_dim", query_latent_dim)
        check_rope(rope, d_rope)
        self.rope = rope
        self.scale = None if scale is None else check_number("scale", scale)
        self.eps = check_number("eps", eps, positive=True)
        self.dropout_p = check_share("dropout_p", dropout_p, symbol="p")
        self.backend = check_backend(backend)
        self.rng = make_rng(rng)
        self.d_options: dict[str, Array] = {}
        shapes: dict[str, tuple[int, ...]] = {
            "w_q_down": (D, d_cq), "q_gain": (d_cq,), "w_q": (d_cq, H * (d_nope + d_rope)),
            "w_kv_down": (D, d_c + d_rope), "kv_gain": (d_c,), "w_k_up": (d_c, H * d_nope),
            "w_v_up": (d_c, H * d_v), "w_o": (H * d_v, D),
        }  # fmt: skip
        for name, shape in shapes.items():
            if query_latent_dim is None and name in ("w_q_down", "q_gain"):
                continue
            bound = np.sqrt(6 / sum(shape))
            is_gain = len(shape) == 1
            self.params[name] = (
                np.ones(shape) if is_gain else self.rng.uniform(-bound, bound, shape)
            )

    @takes_attention_options
    def forward(
        self,
        x: Array,
        *,
        positions: Array | None = None,
        kv_cache: KVCache | None = None,
        absorb: bool = True,
        return_weights: bool = False,
        **options: Unpack[AttentionOptions],
    ) -> Array | tuple[Array, Array]:
        """Attend from each token to the tokens of `x`.

        Parameters
        ----------
        x : (B, T, D) float array
        positions : (T,) or (B, T) array of numbers, optional
            By which queries and keys are rotated; default: counted from the first token on.
        kv_cache : KVCache, optional
            Append the latents and rotated keys of `x` and attend to all so far, without dropout
            and without backward.
        absorb : bool
            With a KV cache: whether to attend to the latents themselves, as
            `latent_attention_decode` explains.
        return_weights : bool
            Also return the (B, H, T_q, T_k) weights, per head and before dropout.
        {names}
            As `attention_forward` explains them; by default the layer draws `dropout_mask`, and
            `scale` is ``layer.scale``.

        Returns
        -------
        out : (B, T, D) array
        weights : (B, H, T, T_k) array
            Only with ``return_weights=True``; read-only, because backward may use the same memory.
        """
        self._cache = None
        if not options.keys() <= OPTIONS.keys():
            raise find_misfit("layer", self.forward, (x,), options) or ConfigError
        x = as_float_array("x", x)
        check_shape("x", x, "B T D", {"D": self.embed_dim}, to_match="the layer")
        if options.get("scale") is None:
            options["scale"] = self.scale
        own: dict[str, Any] = {
            "params": LatentAttentionParams._make(
                self.params.get(name) for name in LatentAttentionParams._fields
            ),
            "num_heads": self.num_heads, "rope": self.rope, "eps": self.eps,
            "positions": positions,
        }  # fmt: skip
        if kv_cache is not None:
            out, attention = latent_attention_decode(
                x, kv_cache=kv_cache, absorb=absorb, **own, **options
            )
        else:
            if options.get("dropout_mask") is None and self.training and self.dropout_p:
                shape = (x.shape[0], self.num_heads, x.shape[1], x.shape[1])
                options["dropout_mask"] = draw_dropout_mask(
                    shape, self.dropout_p, self.rng, x.dtype
                )
            out, self._cache = latent_attention_forward(x, **own, **options)
            attention = self._cache.attention
        if not return_weights:
            return out
        weights = attention.weights.astype(out.dtype, copy=False)[...]
        weights.flags.writeable = False
        return out, weights

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`.

        Those of options are in ``layer.d_options`` until the next backward.
        """
        grads = latent_attention_backward(d_out, self.forward_cache)
        of_options = {name: getattr(grads, f"d_{name}", None) for name in OPTIONS}
        self.d_options = {name: d for name, d in of_options.items() if d is not None}
        for name, gradient in grads.d_params._asdict().items():
            self.accumulate(name, gradient, copy=False)
        return grads.d_x
