"""The blocks of transformers: encoder, decoder, and decoder that also reads an encoder."""

from typing import Any

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_choice, check_flag, check_number
from mha_numpy.core import KVCache, QKNormOptions, RopeOptions
from mha_numpy.core.masks import Window, check_window
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, MaskError, describe
from mha_numpy.layers.attention import MultiHeadAttention
from mha_numpy.layers.experts import ExpertOptions, MixtureOfExperts
from mha_numpy.layers.feed_forward import FeedForward
from mha_numpy.layers.gated_delta import DeltaOptions, GatedDeltaNet
from mha_numpy.layers.latent_attention import LatentAttention, LatentOptions
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.layers.norms import LayerNorm, RMSNorm
from mha_numpy.layers.residual import Residual
from mha_numpy.steps import step

NORMS = {"layer": LayerNorm, "rms": RMSNorm}


def make_norm(
    embed_dim: int,
    *,
    norm: str = "layer",
    eps: float | None = None,
    bias: bool = True,
    **_: Any,
) -> Layer:
    """Return the normalisation that a block's options ask for, or raise a ConfigError."""
    options: dict[str, Any] = {} if eps is None else {"eps": eps}
    if check_choice("norm", norm, NORMS) == "layer":
        options["bias"] = bias  # which an RMS norm does not have
    return NORMS[norm](embed_dim, **options)


def _latent_attention(
    embed_dim: int,
    num_heads: int,
    latent: LatentOptions,
    rope: RopeOptions | None,
    heads: dict[str, Any],
) -> LatentAttention:
    """Return latent attention, or raise a ConfigError for options that it does not have."""
    if not isinstance(latent, LatentOptions):
        raise ConfigError(f"latent: expected LatentOptions(...) or None; got {describe(latent)}")
    for name in ("num_kv_heads", "head_dim", "qk_norm", "gated", "sink"):
        if heads[name]:
            raise ConfigError(f"{name}: expected none with latent=; got {describe(heads[name])}")
    own: dict[str, Any] = {} if rope is None else {"rope": rope}
    return LatentAttention(
        embed_dim, num_heads, **latent._asdict(), **own,
        dropout_p=heads["dropout_p"], rng=heads["rng"],
    )  # fmt: skip


def _of_tokens(mask: Any, x: Array) -> Any:
    """Return a mask of the keys (B, 1, 1, T_k) as one of the tokens in `x`, (B, T)."""
    if mask is None or np.ndim(mask) != 4:
        return mask
    if np.shape(mask)[1:3] != (1, 1):
        raise MaskError(
            "mask: expected (B, 1, 1, T_k), which tokens there are, because a GatedDeltaNet has "
            f"no pairs of query and key; got {np.shape(mask)}"
        )
    T = x.shape[1]
    step("key_mask", mask, "B 1 1 T_k")
    return step("token_mask", np.asarray(mask)[:, 0, 0, -T:], "B T", f"key_mask[:, 0, 0][:, {-T}:]")


class TransformerBlock(Layer):
    """Self-attention, cross-attention where there is a memory, feed-forward: each a residual.

    Build one of its kinds: `EncoderBlock`, `DecoderBlock`, `EncoderDecoderBlock`.

    Parameters
    ----------
    embed_dim : int
        D.
    num_heads : int
        H.
    hidden_dim : int, optional
        F, width of the feed-forward network; default 4 D.
    num_kv_heads : int, optional
        H_kv; default H.
    head_dim : int, optional
        d_k and d_v; default D // H.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu", "geglu_tanh"}
    norm : {"layer", "rms"}
    eps : float, optional
        Of the norms; default 1e-5 for "layer", 1e-6 for "rms".
    norm_first : bool
        Pre-norm; False is post-norm, as in the first transformer. After pre-norm blocks a model
        needs one more norm.
    post_norms : bool
        Whether what attention and the feed-forward network give is normalised before it is added:
        beside the pre-norms, as in Gemma 2 and 3, or with ``norm_first=False`` as the only norms,
        as in OLMo 2, whose blocks need one more norm after them, too.
    bias : bool
        Whether the linear maps and layer norms have biases.
    rope : RopeOptions, optional
        Rotate queries and keys of self-attention by their positions.
    window : (int or None, int or None), optional
        How far self-attention sees to the left and to the right.
    qk_norm, gated, sink
        Of each attention layer: norms of queries and keys, a gate of the output, a learned sink;
        as `MultiHeadAttention` explains them.
    latent : LatentOptions, optional
        Make self-attention a `LatentAttention` of these widths, which has its own heads and no
        biases.
    delta : DeltaOptions, optional
        Put a `GatedDeltaNet` in the place of self-attention, in a `DecoderBlock`; the options of
        attention are not for it.
    experts : ExpertOptions, optional
        Make the feed-forward network a `MixtureOfExperts`, each of width F, which has its own
        activation and always biases.
    softcap, scale : float, optional
        Of each attention layer, as `attention_forward` explains them.
    dropout_p : float
        Share of attention weights, and of each residual's output, to drop while training.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds params and dropout: the same seed draws the same. Default: fresh randomness.

    Notes
    -----
    Sources: Vaswani et al. 2017, section 3.1; pre-norm: Xiong et al. 2020, section 3.

    Examples
    --------
    >>> block = DecoderBlock(8, num_heads=2)
    >>> out = block(np.ones((2, 5, 8)))
    >>> out.shape, block.backward(np.ones_like(out)).shape
    ((2, 5, 8), (2, 5, 8))
    """

    is_causal = False  # whether a token sees only itself and what is before
    reads_memory = False  # whether it attends to another sequence, too

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        hidden_dim: int | None = None,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        activation: str = "gelu",
        norm: str = "layer",
        eps: float | None = None,
        norm_first: bool = True,
        post_norms: bool = False,
        bias: bool = True,
        rope: RopeOptions | None = None,
        window: Window | None = None,
        qk_norm: QKNormOptions | None = None,
        gated: bool | str = False,
        sink: bool = False,
        latent: LatentOptions | None = None,
        delta: DeltaOptions | None = None,
        experts: ExpertOptions | None = None,
        softcap: float | None = None,
        scale: float | None = None,
        dropout_p: float = 0.0,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        rng = make_rng(rng)
        shared: dict[str, Any] = {"bias": bias, "rng": rng}
        heads: dict[str, Any] = {
            "num_kv_heads": num_kv_heads, "head_dim": head_dim, "dropout_p": dropout_p,
            "qk_norm": qk_norm, "gated": gated, "sink": sink, **shared,
        }  # fmt: skip

        def residual(layer: Layer) -> Residual:
            def own_norm() -> Layer:
                return make_norm(embed_dim, norm=norm, eps=eps, bias=bias)

            return Residual(
                layer, own_norm() if norm_first or not post_norms else None,
                post_norm=own_norm() if post_norms else None,
                norm_first=norm_first, dropout_p=dropout_p, rng=rng,
            )  # fmt: skip

        self.backend = check_backend(backend)
        self.window = None if window is None else check_window(window)
        self.post_norms = check_flag("post_norms", post_norms)
        self.softcap = None if softcap is None else check_number("softcap", softcap, positive=True)
        self.scale = None if scale is None else check_number("scale", scale)
        if delta is not None:
            attention: Layer = self._delta(embed_dim, delta, eps, rng)
        elif latent is None:
            attention = MultiHeadAttention(embed_dim, num_heads, rope=rope, **heads)
        else:
            attention = _latent_attention(embed_dim, num_heads, latent, rope, heads)
        self.attention = residual(attention)
        if self.reads_memory:
            self.cross_attention = residual(MultiHeadAttention(embed_dim, num_heads, **heads))
        if experts is None:
            network: Layer = FeedForward(embed_dim, hidden_dim, activation=activation, **shared)
        elif isinstance(experts, ExpertOptions):
            network = MixtureOfExperts(embed_dim, hidden_dim, **experts._asdict(), rng=rng)
        else:
            raise ConfigError(
                f"experts: expected ExpertOptions(...) or None; got {describe(experts)}"
            )
        self.feed_forward = residual(network)

    def _delta(
        self, embed_dim: int, delta: Any, eps: float | None, rng: np.random.Generator
    ) -> GatedDeltaNet:
        """Return the mixer in the place of attention, or raise a ConfigError."""
        if not isinstance(delta, DeltaOptions):
            raise ConfigError(f"delta: expected DeltaOptions(...) or None; got {describe(delta)}")
        if not self.is_causal or self.reads_memory:
            raise ConfigError(
                "delta: expected none, because it reads from left to right, as a DecoderBlock "
                f"does; got it in a {type(self).__name__}"
            )
        options: dict[str, Any] = delta._asdict() | ({} if eps is None else {"eps": eps})
        return GatedDeltaNet(embed_dim, **options, rng=rng)

    def forward(
        self,
        x: Array,
        memory: Array | None = None,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        kv_cache: KVCache | None = None,
        memory_kv_cache: KVCache | None = None,
        positions: Array | None = None,
    ) -> Array:
        """Let every token read from the others, then work on each.

        Parameters
        ----------
        x : (B, T, D) float array
        memory : (B, T_k, D) float array
            The encoder's output, only for an `EncoderDecoderBlock`.
        mask : bool array that broadcasts to (B, H, T, T), optional
            True = may attend.
        memory_mask : bool array that broadcasts to (B, H, T, T_k), optional
            True = may attend to this token of the memory.
        kv_cache : KVCache, optional
            For self-attention: `x` has only new tokens. Without backward.
        memory_kv_cache : KVCache, optional
            For cross-attention: the first call appends the memory's keys and values, and later
            calls read them there. Without backward.
        positions : (T,) or (B, T) array of numbers, optional
            Of the tokens in `x`, for `rope`; default their places in the sequence.

        Returns
        -------
        (B, T, D) array
        """
        if (memory is None) == self.reads_memory:
            expected = "the encoder's output" if self.reads_memory else "None"
            kind = type(self).__name__
            article = "an" if kind.startswith("E") else "a"
            raise ConfigError(
                f"memory: expected {expected} in {article} {kind}; got {describe(memory)}"
            )
        step("x", x, "B T D")
        of_scores = {"softcap": self.softcap, "scale": self.scale}
        if isinstance(self.attention.layer, GatedDeltaNet):
            x = self.attention(x, mask=_of_tokens(mask, x), state=kv_cache)
        else:
            x = self.attention(
                x, mask=mask, is_causal=self.is_causal, window=self.window, kv_cache=kv_cache,
                positions=positions, **of_scores,
            )  # fmt: skip
        if self.reads_memory:
            memory = step("memory", as_float_array("memory", memory), "B T_k D")
            if memory_kv_cache is not None and memory_kv_cache.length:  # nothing to append
                memory = step("no_memory", memory[:, :0], "B T_new D", "memory[:, :0]")
            x = self.cross_attention(
                x, memory, mask=memory_mask, kv_cache=memory_kv_cache, **of_scores
            )
        return step("out", self.feed_forward(x), "B T D")

    def backward(self, d_out: Array) -> Array | tuple[Array, Array]:
        """Add to the params' gradients and return that of `x`, and of `memory` if there is one."""
        (d_x,) = self.feed_forward.backward(step("d_out", d_out, "B T D"))
        d_memory = None
        if self.reads_memory:
            d_x, d_memory, _ = self.cross_attention.backward(d_x)
        d_x, *_ = self.attention.backward(d_x)
        step("d_x", d_x, "B T D")
        return d_x if d_memory is None else (d_x, d_memory)


class EncoderBlock(TransformerBlock):
    """A block in which every token sees every other, as in BERT."""


class DecoderBlock(TransformerBlock):
    """A block in which a token sees itself and the tokens before it, as in GPT-2."""

    is_causal = True


class EncoderDecoderBlock(TransformerBlock):
    """A decoder block that also reads an encoder's output, as in the first transformer."""

    is_causal = True
    reads_memory = True
