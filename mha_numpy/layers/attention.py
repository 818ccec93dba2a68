"""Multi-head attention as a layer: self, cross, grouped."""

from typing import Any, Unpack

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.calls import find_misfit
from mha_numpy.checks import (
    check_choice,
    check_count,
    check_flag,
    check_shape,
    check_share,
    count_or,
)
from mha_numpy.core import (
    FullMultiHeadParams,
    KVCache,
    QKNormOptions,
    RopeOptions,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
)
from mha_numpy.core.options import OPTIONS, AttentionOptions, takes_attention_options
from mha_numpy.core.qk_norm import GAIN_AXES, check_qk_norm
from mha_numpy.core.rope import check_rope
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, MhaError, ShapeError
from mha_numpy.layers.dropout import draw_dropout_mask
from mha_numpy.layers.layer import Layer, make_rng


class MultiHeadAttention(Layer):
    """``Concat(head_1, ..., head_H) w_o + b_o`` with its own params.

    Parameters
    ----------
    embed_dim : int
        D, width of the query input and of the output.
    num_heads : int
        H.
    num_kv_heads : int, optional
        H_kv, a divisor of H; default H. 1 is multi-query attention.
    head_dim : int, optional
        d_k, width of a head's queries and keys; default D // H, which must then divide.
    value_dim : int, optional
        d_v, width of a head's values; default `head_dim`.
    kdim, vdim : int, optional
        Widths of the key and of the value input; default D and `kdim`.
    bias : bool
        Whether the four projections have biases.
    rope : RopeOptions, optional
        Rotate queries and keys by their positions.
    qk_norm : QKNormOptions, optional
        Divide queries and keys by their root mean square, and multiply them by the params gain_q
        and gain_k, first 1.
    gated : bool or "heads"
        Whether each token gates what its heads found, by the params w_gate and, with `bias`,
        b_gate: True has a gate for each number, "heads" one for each head.
    sink : bool
        Whether the layer learns the option `sink`, a score for each head that takes weight and
        gives nothing; first 0.
    add_bias_kv : bool
        Whether the layer learns one more key and value, which belong to no token and which every
        query sees: the params extra_k (1, H_kv*d_k) and extra_v (1, H_kv*d_v).
    add_zero_attn : bool
        Whether to append a key and a value of zeros.
    dropout_p : float
        Share of weights to drop while ``layer.training``; 0 <= p < 1.
    backend : {"numpy", "loops", "numba"}, optional
        What computes the attention core, as `attention_forward` explains.
    rng : int or numpy Generator, optional
        Seeds params and dropout: the same seed draws the same. Default: fresh randomness.

    Notes
    -----
    Params are float64 and initialised as in PyTorch's nn.MultiheadAttention: w_q, w_k, w_v
    Xavier-uniform, w_o uniform within ``1 / sqrt(inputs)``, biases zero. But each of w_q, w_k, w_v
    is drawn by its own shape, where PyTorch packs three equal ones into one. extra_k and extra_v
    are Xavier-normal: their deviation is ``1 / sqrt(width)``; w_gate is Xavier-uniform.
    ``layer.astype(np.float32)`` narrows them. Source: Vaswani et al. 2017, section 3.2.2.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=4, num_kv_heads=2, rng=0)
    >>> layer
    MultiHeadAttention(embed_dim=8, num_heads=4, num_kv_heads=2 (grouped), 216 parameters)
    >>> x = np.ones((2, 5, 8))
    >>> out, weights = layer(x, is_causal=True, return_weights=True)
    >>> out.shape, weights.shape
    ((2, 5, 8), (2, 4, 5, 5))
    >>> d_query, d_key, d_value = layer.backward(np.ones_like(out))
    >>> d_query.shape, d_key, layer.grads["w_k"].shape
    ((2, 5, 8), None, (8, 4))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        rope: RopeOptions | None = None,
        qk_norm: QKNormOptions | None = None,
        gated: bool | str = False,
        sink: bool = False,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        dropout_p: float = 0.0,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim = check_count("embed_dim", embed_dim)
        self.num_heads = check_count("num_heads", num_heads)
        self.num_kv_heads = count_or("num_kv_heads", num_kv_heads, self.num_heads)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"num_kv_heads: expected a divisor of num_heads={num_heads}; got {num_kv_heads}"
            )
        if head_dim is None and self.embed_dim % self.num_heads:
            raise ConfigError(
                f"num_heads: expected a divisor of embed_dim={embed_dim}, or head_dim= given; "
                f"got {num_heads}"
            )
        self.head_dim = count_or("head_dim", head_dim, self.embed_dim // self.num_heads)
        self.value_dim = count_or("value_dim", value_dim, self.head_dim)
        self.kdim = count_or("kdim", kdim, self.embed_dim)
        self.vdim = count_or("vdim", vdim, self.kdim)
        if rope is not None:
            check_rope(rope, self.head_dim)
        if qk_norm is not None:
            check_qk_norm(qk_norm)
        self.rope, self.qk_norm, self.sink = rope, qk_norm, check_flag("sink", sink)
        is_word = isinstance(gated, str)
        self.gated = (
            check_choice("gated", gated, ["heads"]) if is_word else check_flag("gated", gated)
        )
        self.add_zero_attn = check_flag("add_zero_attn", add_zero_attn)
        self.dropout_p = check_share("dropout_p", dropout_p, symbol="p")
        self.backend = check_backend(backend)
        self.rng = make_rng(rng)
        self._init_params(check_flag("bias", bias), check_flag("add_bias_kv", add_bias_kv))
        self.head_gate: Array | None = None  # for every forward that is not given another
        self.d_options: dict[str, Array] = {}
        self._learns_sink = False  # in the last forward, which was given no other

    def _init_params(self, bias: bool, add_bias_kv: bool) -> None:
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        values, merged = self.num_kv_heads * self.value_dim, self.num_heads * self.value_dim
        shapes = {
            "q": (self.embed_dim, queries),
            "k": (self.kdim, keys),
            "v": (self.vdim, values),
            "o": (merged, self.embed_dim),
        }
        if self.gated:  # the last to be drawn
            shapes["gate"] = (self.embed_dim, self.num_heads if self.gated == "heads" else merged)
        for letter, (inputs, outputs) in shapes.items():
            bound = np.sqrt(1 / inputs) if letter == "o" else np.sqrt(6 / (inputs + outputs))
            self.params[f"w_{letter}"] = self.rng.uniform(-bound, bound, (inputs, outputs))
            if bias:
                self.params[f"b_{letter}"] = np.zeros(outputs)
        if add_bias_kv:
            for name, width in (("extra_k", keys), ("extra_v", values)):
                self.params[name] = self.rng.standard_normal((1, width)) / np.sqrt(width)
        if self.qk_norm is not None:
            widths = {"H*d_k": queries, "H_kv*d_k": keys, "d_k": self.head_dim}
            for letter, axis in zip("qk", GAIN_AXES[self.qk_norm.place], strict=True):
                self.params[f"gain_{letter}"] = np.ones(widths[axis])
        if self.sink:
            self.params["sink"] = np.zeros(self.num_heads)

    @takes_attention_options
    def forward(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        *,
        kv_cache: KVCache | None = None,
        return_weights: bool = False,
        positions: Array | None = None,
        key_positions: Array | None = None,
        **options: Unpack[AttentionOptions],
    ) -> Array | tuple[Array, Array]:
        """Attend from the query input to the key and value inputs.

        Parameters
        ----------
        query : (B, T_q, D) float array
        key : (B, T_k, kdim) float array, optional
            Default `query`: self-attention.
        value : (B, T_k, vdim) float array, optional
            Default `key`.
        kv_cache : KVCache, optional
            Append the keys and values of `key` and `value` (or `query`) and attend to all so far,
            without dropout and without backward.
        return_weights : bool
            Also return the (B, H, T_q, T_k) weights, per head and before dropout.
        positions, key_positions : (T_q,) and (T_k,), or (B, T_q) and (B, T_k), optional
            Of the tokens in `query` and `key`, for RoPE, as in `multi_head_attention_forward`.
        {names}
            As `attention_forward` explains them; by default the layer draws `dropout_mask`,
            `head_gate` is ``layer.head_gate``, and `sink` is the param if the layer has one.

        Returns
        -------
        out : (B, T_q, D) array
        weights : (B, H, T_q, T_k) array
            With one more column for each of add_bias_kv and add_zero_attn. Only with
            ``return_weights=True``; read-only, because backward may use the same memory.
        """
        self._cache = None
        if not options.keys() <= OPTIONS.keys():
            raise find_misfit("layer", self.forward, (query, key, value), options) or ConfigError
        sizes = {"D": self.embed_dim, "kdim": self.kdim, "vdim": self.vdim}
        inputs = {
            "query": (query, "B T_q D"),
            "key": (key, "B T_k kdim"),
            "value": (value, "B T_k vdim"),
        }
        for name, (array, axes) in inputs.items():
            if array is not None or name == "query":
                check_shape(name, as_float_array(name, array), axes, sizes, to_match="the layer")
        if key is None and self.kdim != self.embed_dim:
            raise ShapeError(f"key: expected (B, T_k, kdim={self.kdim}); got None")
        if value is None and self.vdim != self.kdim:
            raise ShapeError(f"value: expected (B, T_k, vdim={self.vdim}); got None")
        if options.get("head_gate") is None:
            options["head_gate"] = self.head_gate
        self._learns_sink = self.sink and options.get("sink") is None
        if self._learns_sink:
            options["sink"] = self.params["sink"]
        fields = FullMultiHeadParams._fields
        params = FullMultiHeadParams._make(self.params.get(name) for name in fields)
        own: dict[str, Any] = {
            "params": params, "num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads,
            "rope": self.rope, "qk_norm": self.qk_norm,
            "positions": positions, "key_positions": key_positions,
            "extra_k": self._extra("k"), "extra_v": self._extra("v"),
        }  # fmt: skip
        if kv_cache is not None:
            out, attention = multi_head_attention_decode(
                query, key, value, kv_cache=kv_cache, **own, **options
            )
        else:
            if options.get("dropout_mask") is None:
                options["dropout_mask"] = self._draw_dropout_mask(query, key)
            out, self._cache = multi_head_attention_forward(query, key, value, **own, **options)
            attention = self._cache.attention
        if not return_weights:
            return out
        weights = attention.weights.astype(out.dtype, copy=False)[...]
        weights.flags.writeable = False
        return out, weights

    def backward(self, d_out: Array) -> tuple[Array, Array | None, Array | None]:
        """Add to the params' gradients and return those of the inputs.

        Parameters
        ----------
        d_out : (B, T_q, D) float array

        Returns
        -------
        d_query, d_key, d_value
            None for an input that was not passed: its share is added to the input it defaulted to.
            The gradients of options, such as `bias` and `head_gate`, are in ``layer.d_options``
            until the next backward, under the names of the options that were passed.
        """
        grads = multi_head_attention_backward(d_out, self.forward_cache)
        of_options = {name: getattr(grads, f"d_{name}", None) for name in OPTIONS}
        self.d_options = {name: d for name, d in of_options.items() if d is not None}
        if self._learns_sink:
            self.accumulate("sink", self.d_options.pop("sink"))
        for name, gradient in grads.d_params._asdict().items():
            self.accumulate(name, gradient, copy=False)
        if grads.d_extra_k is not None and grads.d_extra_v is not None and "extra_k" in self.params:
            self.accumulate("extra_k", grads.d_extra_k[:1])  # without the row of zeros
            self.accumulate("extra_v", grads.d_extra_v[:1])
        return grads.d_x_q, grads.d_x_k, grads.d_x_v

    @property
    def weights(self) -> Array:
        """The weights of the last forward, before dropout: (B, H, T_q, T_k); read-only."""
        if self._cache is None:
            raise MhaError("weights: expected a forward before them, without kv_cache")
        weights = self._cache.attention.weights[...]
        weights.flags.writeable = False
        return weights

    def shown_options(self) -> list[str]:
        """Return "name=value" for each option that is not the default, and how heads share keys."""
        kind = "multi-query" if self.num_kv_heads == 1 else "grouped"
        as_by_default = {
            f"num_kv_heads={self.num_heads}", f"head_dim={self.embed_dim / self.num_heads:g}",
            f"value_dim={self.head_dim}", f"kdim={self.embed_dim}", f"vdim={self.kdim}",
        }  # fmt: skip
        return [
            f"{each} ({kind})" if each.startswith("num_kv_heads=") else each
            for each in super().shown_options()
            if each not in as_by_default
        ]

    def _extra(self, letter: str) -> Array | None:
        """Return the extra keys, or values: the learned one, then the zeros."""
        rows = [self.params[f"extra_{letter}"]] if "extra_k" in self.params else []
        if self.add_zero_attn:
            rows.append(np.zeros_like(self.params[f"w_{letter}"][:1]))
        return np.concatenate(rows) if rows else None

    def _draw_dropout_mask(self, query: Array, key: Array | None) -> Array | None:
        """Draw 0 or 1 / (1 - p) for each weight; None if nothing is dropped."""
        if not self.training or self.dropout_p == 0:
            return None
        B, T_q, _ = np.shape(query)
        T_k = T_q if key is None else np.shape(key)[1]
        E = ("extra_k" in self.params) + self.add_zero_attn
        shape = (B, self.num_heads, T_q, T_k + E)
        return draw_dropout_mask(shape, self.dropout_p, self.rng, np.asarray(query).dtype)
