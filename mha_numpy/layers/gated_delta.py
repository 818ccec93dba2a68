"""The mixer of Qwen3-Next in the place of attention: convolution, gated delta rule, gated norm."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import check_backend
from mha_numpy.checks import check_count, check_number, check_shape, count_or
from mha_numpy.core import KVCache, linear_backward, linear_forward, merge_heads, split_heads
from mha_numpy.core.grouped import group_heads
from mha_numpy.core.pair import Pair
from mha_numpy.core.rms_norm import rms_norm_backward, rms_norm_forward
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError, MaskError, describe
from mha_numpy.layers.activations import swiglu_backward, swiglu_forward
from mha_numpy.layers.layer import Layer, make_rng
from mha_numpy.steps import constant, renamed, step
from mha_numpy.variants import (
    causal_conv_backward,
    causal_conv_forward,
    linear_attention_backward,
    linear_attention_forward,
)

LENGTH_EPS = 1e-6  # keeps a key of zeros from being divided by 0
LARGEST_RATE = 16.0  # of decay, at first: e^a_log


def beta_steps(x: Array) -> Array:
    """Return a number between 0 and 1 for each of x."""
    # 1. sigmoid, by tanh, which does not overflow
    return (1 + np.tanh(x / 2)) / 2


def beta_steps_backward(d_out: Array, out: Array) -> Array:
    """Pull the gradient back through the sigmoid."""
    # 1. out = sigmoid(x)
    return d_out * out * (1 - out)


def decay_steps(x: Array, a_log: Array, dt_bias: Array) -> tuple[Array, Array, Array]:
    """Return a log of decay, below 0, for each head (..., H): a rate times a step of time."""
    # 1. the step of time, softplus: log(1 + e^shifted), without overflow
    shifted = x + dt_bias
    is_large = shifted.real > 0
    time = np.where(is_large, shifted, 0) + np.log1p(np.exp(np.where(is_large, -shifted, shifted)))

    # 2. multiply by the rate, a number of each head
    return shifted, time, -np.exp(a_log) * time


def decay_steps_backward(
    d_out: Array, shifted: Array, time: Array, a_log: Array
) -> tuple[Array, Array, Array]:
    """Pull the gradient back to x, a_log and dt_bias."""
    tokens = tuple(range(d_out.ndim - 1))
    # 2. out = -e^a_log * time
    d_time = -np.exp(a_log) * d_out
    d_a_log = (d_time * time).sum(axis=tokens)

    # 1. time = softplus(x + dt_bias), whose slope is the sigmoid
    d_x = d_time * beta_steps(shifted)
    return d_x, d_a_log, d_x.sum(axis=tokens)


def decay_steps_jvp(
    x_dot: Array, a_log_dot: Array, dt_bias_dot: Array, shifted: Array, time: Array, a_log: Array
) -> Array:
    """Push the tangents of x, a_log and dt_bias forward (..., H)."""
    # 1. time = softplus(x + dt_bias), whose slope is the sigmoid
    time_dot = (x_dot + dt_bias_dot) * beta_steps(shifted)
    # 2. out = -e^a_log * time
    return -np.exp(a_log) * (a_log_dot * time + time_dot)


class _BetaCache(NamedTuple):
    out: Array
    dtype: np.dtype[Any]


class _BetaGrads(NamedTuple):
    d_x: Array


class _DecayCache(NamedTuple):
    shifted: Array
    time: Array
    a_log: Array
    dtype: np.dtype[Any]


class _DecayGrads(NamedTuple):
    d_x: Array
    d_a_log: Array
    d_dt_bias: Array


BETA = Pair(
    beta_steps,
    beta_steps_backward,
    beta_steps_backward,  # a tangent meets the same slope
    _BetaCache,
    _BetaGrads,
    inputs={"x": ""},
    like="out",
    shapes=lambda cache: {"x": cache.out.shape},
)
DECAY = Pair(
    decay_steps,
    decay_steps_backward,
    decay_steps_jvp,
    _DecayCache,
    _DecayGrads,
    inputs={"a_log": "H", "x": "... H", "dt_bias": "H"},
    computes="shifted time out",
    like="time",
    shapes=lambda cache: {
        "x": cache.time.shape,
        "a_log": cache.a_log.shape,
        "dt_bias": cache.a_log.shape,
    },
)


class DeltaState(KVCache):
    """What a `GatedDeltaNet` keeps of the tokens so far: as much after many as after a few.

    `conv` are the last K - 1 tokens before the convolution, (B, K - 1, 2 H_k*d_k + H*d_v), and
    `memory` the state of the delta rule, (B, H, d_k, d_v); both are None before the first token.
    In the KV caches of a model it takes the place of those blocks that have such a layer, but it
    cannot forget a token.

    Examples
    --------
    >>> layer, state = GatedDeltaNet(8, 2), DeltaState()
    >>> out = layer(np.ones((1, 100, 8)), state=state)
    >>> out = layer(np.ones((1, 1, 8)), state=state)
    >>> state.memory.shape, state.nbytes
    ((1, 2, 4, 4), 832)
    """

    @property
    def conv(self) -> Array | None:
        """The last tokens before the convolution."""
        return self._room[0] if self._room else None

    @property
    def memory(self) -> Array | None:
        """The state of the delta rule."""
        return self._room[1] if self._room else None

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return sum(part.nbytes for part in self._room)

    def advance(self, conv: Array, memory: Array, T: int) -> None:
        """Take the state after T more tokens."""
        # copies: a view would keep the arrays of all tokens
        self._room, self._length = [conv.copy(), memory.copy()], self._length + T

    def sizes(self) -> dict[str, int]:
        """Return B; nothing before the first token."""
        return {"B": len(self._room[0])} if self._room else {}

    @property
    def held(self) -> list[Array]:
        """Both arrays; none before the first token."""
        return self._room

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Raise a ConfigError: it holds no keys and values."""
        raise ConfigError("kv_cache: expected one for keys and values; got a DeltaState")

    def truncate(self, length: int) -> None:
        """Raise a ConfigError: what it read has become part of one state."""
        raise ConfigError(f"length: expected no truncate of a DeltaState; got {length}")

    def keep(self, tokens: Any) -> None:
        """Raise a ConfigError: what it read has become part of one state."""
        raise ConfigError(f"tokens: expected no keep of a DeltaState; got {describe(tokens)}")

    def __repr__(self) -> str:
        return f"DeltaState({self.length} tokens, {self.nbytes} bytes)"


class DeltaOptions(NamedTuple):
    """The options of `GatedDeltaNet`, for blocks and models that are built of it."""

    num_heads: int
    num_key_heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    kernel_size: int = 4


class GatedDeltaNet(Layer):
    """Linear attention with decay and delta rule, between a convolution and a gated norm.

    Parameters
    ----------
    embed_dim : int
        D.
    num_heads : int
        H, heads of values: each has its own state, decay and beta.
    num_key_heads : int, optional
        H_k, heads of queries and keys, a divisor of H: head h reads and writes by key
        ``h // (H // H_k)``. Default H.
    head_dim : int, optional
        d_k; default D // H, which must then divide.
    value_dim : int, optional
        d_v; default `head_dim`.
    kernel_size : int
        K, tokens that the convolution sees.
    eps : float
        Of the norm.
    backend : {"numpy", "loops", "numba"}, optional
    rng : int or numpy Generator, optional
        Seeds the params: the same seed draws the same. Default: fresh randomness.

    Notes
    -----
    1. Six linear maps give queries, keys, values, gates, betas and decays. 2. A convolution mixes
    each feature of queries, keys and values with the few tokens before, then comes SiLU.
    3. Queries and keys get length 1. 4. ``beta = sigmoid(...)`` and
    ``log_decay = -e^a_log * softplus(... + dt_bias)``. 5. The gated delta rule. 6. RMS norm of
    each head, times the SiLU of its gate. 7. The output projection. In Hugging Face's files the
    maps are packed by key head: q, k, then values and gates of its group.
    Sources: Yang et al. 2024, *Gated delta networks*, section 3.4; Qwen3-Next.
    Derivation: ``docs/linear-attention.md``.

    Examples
    --------
    >>> layer = GatedDeltaNet(8, num_heads=4, num_key_heads=2, rng=0)
    >>> x = np.ones((2, 5, 8))
    >>> out = layer(x)
    >>> layer.backward(out).shape, sorted(layer.grads)[:3]
    ((2, 5, 8), ['a_log', 'dt_bias', 'gain'])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_key_heads: int | None = None,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        kernel_size: int = 4,
        eps: float = 1e-6,
        backend: str | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim = D = check_count("embed_dim", embed_dim)
        self.num_heads = H = check_count("num_heads", num_heads)
        self.num_key_heads = count_or("num_key_heads", num_key_heads, H)
        if H % self.num_key_heads:
            raise ConfigError(
                f"num_key_heads: expected a divisor of num_heads={H}; got {num_key_heads}"
            )
        if head_dim is None and D % H:
            raise ConfigError(
                f"num_heads: expected a divisor of embed_dim={D}, or head_dim= given; got {H}"
            )
        self.head_dim = count_or("head_dim", head_dim, D // H)
        self.value_dim = count_or("value_dim", value_dim, self.head_dim)
        self.kernel_size = check_count("kernel_size", kernel_size)
        self.eps = check_number("eps", eps, positive=True)
        self.backend = check_backend(backend)
        keys, values = self.num_key_heads * self.head_dim, H * self.value_dim
        widths = {"q": keys, "k": keys, "v": values, "gate": values, "beta": H, "decay": H}
        shapes = {f"w_{name}": (D, width) for name, width in widths.items()}
        shapes |= {"w_conv": (self.kernel_size, 2 * keys + values), "w_o": (values, D)}
        generator = make_rng(rng)
        for name, shape in shapes.items():
            bound = 1 / np.sqrt(shape[0])
            self.params[name] = generator.uniform(-bound, bound, shape)
        self.params["a_log"] = np.log(np.maximum(generator.uniform(0.01, LARGEST_RATE, (H,)), 0.01))
        self.params["dt_bias"] = np.ones(H)
        self.params["gain"] = np.ones(self.value_dim)

    def forward(
        self, x: Array, *, mask: Array | None = None, state: DeltaState | None = None
    ) -> Array:
        """Mix each token with those before it.

        Parameters
        ----------
        x : (B, T, D) float array
        mask : (B, T) bool array, optional
            True = a token, False = padding on the left, which the layer reads as zeros.
        state : DeltaState, optional
            Continue after the tokens that it has seen, and keep these, too; without backward.

        Returns
        -------
        (B, T, D) array
        """
        self._cache = None
        x = as_float_array("x", x)
        check_shape("x", x, "B T D", {"D": self.embed_dim}, to_match="the layer")
        if state is not None and not isinstance(state, DeltaState):
            raise ConfigError(f"state: expected a DeltaState; got {describe(state)}")
        conv_state, memory = (None, None) if state is None else (state.conv, state.memory)
        params, caches = self.params, dict[str, Any]()
        caches["mask"] = mask = None if mask is None else _check_mask(mask, x)
        # 1. project
        if mask is None:
            step("x", x, "B T D")
        else:
            step("all_x", x, "B T D")
            step("token_mask", mask, "B T")
            masked = np.where(mask[..., None], x, 0)
            x = step("x", masked, "B T D", "np.where(token_mask[..., None], all_x, 0)")
        projected = {}
        for name, width in MAPS.items():
            constant(f"w_{name}", params[f"w_{name}"], f"D {width}")
            mapped, caches[name] = linear_forward(x, params[f"w_{name}"])
            projected[name] = step(f"{name}_projected", mapped, f"B T {width}", f"x @ w_{name}")

        # 2. convolve queries, keys and values
        equation = "np.concatenate([q_projected, k_projected, v_projected], axis=-1)"
        joined = np.concatenate([projected[name] for name in "qkv"], axis=-1)
        step("joined", joined, "B T W", equation)
        with renamed(**OF_CONV):
            mixed, caches["conv"] = causal_conv_forward(
                joined, params["w_conv"], state=conv_state, activation="silu"
            )

        # 3. split into heads, and make queries and keys 1 long
        q, k, v = self._heads(mixed)
        d_k, group = self.head_dim, self.num_heads // self.num_key_heads
        unit, eps = np.full(d_k, d_k**-0.5, x.dtype), LENGTH_EPS / d_k
        with renamed(**OF_UNIT["q"]):
            q, caches["unit_q"] = rms_norm_forward(q, unit, eps=eps)
        with renamed(**OF_UNIT["k"]):
            k, caches["unit_k"] = rms_norm_forward(k, unit, eps=eps)
        q = step("q", q.repeat(group, axis=1), "B H T d_k", f"q_unit.repeat({group}, axis=1)")
        k = step("k", k.repeat(group, axis=1), "B H T d_k", f"k_unit.repeat({group}, axis=1)")

        # 4. beta and decay
        beta, caches["sigmoid"] = BETA.forward(x=projected["beta"])
        beta = beta.swapaxes(1, 2)  # (B, H, T)
        step("beta", beta, "B H T", "(1 / (1 + np.exp(-beta_projected))).swapaxes(1, 2)")
        log_decay, caches["softplus"] = DECAY.forward(
            x=projected["decay"], a_log=params["a_log"], dt_bias=params["dt_bias"]
        )
        log_decay = log_decay.swapaxes(1, 2)
        constant("a_log", params["a_log"], "H")
        constant("dt_bias", params["dt_bias"], "H")
        time = "np.log1p(np.exp(decay_projected + dt_bias))"
        step("log_decay", log_decay, "B H T", f"(-np.exp(a_log) * {time}).swapaxes(1, 2)")

        # 5. the gated delta rule
        with renamed(**OF_RULE):
            heads, caches["rule"] = linear_attention_forward(
                q, k, v, log_decay=log_decay, beta=beta, state=memory
            )

        # 6. norm of each head, times the SiLU of its gate
        with renamed(**OF_NORM):
            normed, caches["norm"] = rms_norm_forward(heads, params["gain"], eps=self.eps)
        gate = split_heads(projected["gate"], self.num_heads)
        equation = "gate_projected.reshape(B, T, H, d_v).transpose(0, 2, 1, 3)"
        step("gate", gate, "B H T d_v", equation)
        with renamed(**OF_GATE):
            gated, caches["gated"] = swiglu_forward(gate, normed)

        # 7. project
        merged = merge_heads(gated)
        equation = "gated.transpose(0, 2, 1, 3).reshape(B, T, H * d_v)"
        step("merged", merged, "B T H*d_v", equation)
        constant("w_o", params["w_o"], "H*d_v D")
        out, caches["o"] = linear_forward(merged, params["w_o"])
        step("out", out, "B T D", "merged @ w_o")
        if state is None:
            self._cache = caches
        else:
            state.advance(caches["conv"].final_state, caches["rule"].final_state, x.shape[1])
        return out

    def backward(self, d_out: Array) -> Array:
        """Add to the params' gradients and return that of `x`."""
        caches, rows = self.forward_cache, "reshape(B * T, {})"
        # 7. out = merged @ w_o
        d_merged, d_w_o, _ = linear_backward(d_out, caches["o"])
        step("d_out", d_out, "B T D")
        step("d_merged", d_merged, "B T H*d_v", "d_out @ w_o.T")
        equation = f"merged.{rows.format('H * d_v')}.T @ d_out.{rows.format('D')}"
        self.accumulate("w_o", step("d_w_o", d_w_o, "H*d_v D", equation))

        # 6. gated = silu(gate) * norm(heads)
        d_gated = split_heads(d_merged, self.num_heads)
        equation = "d_merged.reshape(B, T, H, d_v).transpose(0, 2, 1, 3)"
        step("d_gated", d_gated, "B H T d_v", equation)
        with renamed(**OF_GATE):
            d_gate, d_normed = swiglu_backward(d_gated, caches["gated"])
        with renamed(**OF_NORM):
            d_heads, d_gain = rms_norm_backward(d_normed, caches["norm"])
        self.accumulate("gain", d_gain)

        # 5. the gated delta rule
        with renamed(**OF_RULE):
            grads: Any = linear_attention_backward(d_heads, caches["rule"])
        d_q, d_k, d_v, d_log_decay, d_beta, _ = grads

        # 4. beta and decay
        d_decay = DECAY.backward(d_log_decay.swapaxes(1, 2), caches["softplus"])
        d_logits = BETA.backward(d_beta.swapaxes(1, 2), caches["sigmoid"]).d_x
        d_projected = {"gate": merge_heads(d_gate), "decay": d_decay.d_x, "beta": d_logits}
        slope = "np.exp(a_log) / (1 + np.exp(-decay_projected - dt_bias))"
        equations = {
            "gate": "d_gate.transpose(0, 2, 1, 3).reshape(B, T, H * d_v)",
            "decay": f"-d_log_decay.swapaxes(1, 2) * {slope}",
            "beta": "(d_beta * beta * (1 - beta)).swapaxes(1, 2)",
        }
        for name, equation in equations.items():
            step(f"d_{name}_projected", d_projected[name], f"B T {MAPS[name]}", equation)
        equation = "(d_log_decay * log_decay).sum(axis=(0, 2))"
        self.accumulate("a_log", step("d_a_log", d_decay.d_a_log, "H", equation))
        equation = "d_decay_projected.sum(axis=(0, 1))"
        self.accumulate("dt_bias", step("d_dt_bias", d_decay.d_dt_bias, "H", equation))

        # 3. what heads share gets the sum of their gradients; length 1, heads split
        group = self.num_heads // self.num_key_heads
        of_heads = {"v": d_v}
        for name, d_of_heads in (("q", d_q), ("k", d_k)):
            d_unit = group_heads(d_of_heads, self.num_key_heads).sum(axis=2)
            equation = f"d_{name}.reshape(B, H_k, {group}, T, d_k).sum(axis=2)"
            step(f"d_{name}_unit", d_unit, "B H_k T d_k", equation)
            with renamed(**OF_UNIT[name]):
                of_heads[name] = rms_norm_backward(d_unit, caches[f"unit_{name}"]).d_x
        d_mixed = np.concatenate([merge_heads(of_heads[name]) for name in "qkv"], axis=-1)
        merged = ["d_q_heads.transpose(0, 2, 1, 3).reshape(B, T, H_k * d_k)",
                  "d_k_heads.transpose(0, 2, 1, 3).reshape(B, T, H_k * d_k)",
                  "d_v.transpose(0, 2, 1, 3).reshape(B, T, H * d_v)"]  # fmt: skip
        step("d_mixed", d_mixed, "B T W", f"np.concatenate([{', '.join(merged)}], axis=-1)")

        # 2. mixed = silu(convolution)
        with renamed(**OF_CONV):
            d_joined, d_w_conv, _, _ = causal_conv_backward(d_mixed, caches["conv"])
        self.accumulate("w_conv", d_w_conv)
        first = 0
        for name, part in zip("qkv", self._split(d_joined), strict=True):
            d_projected[name] = part
            last = first + part.shape[-1]
            equation = f"d_joined[..., {first}:{last}]"
            step(f"d_{name}_projected", part, f"B T {MAPS[name]}", equation)
            first = last

        # 1. six maps of x: its gradient is the sum of theirs
        of_maps = {name: linear_backward(d_projected[name], caches[name]) for name in MAPS}
        for name, of_map in of_maps.items():
            equation = f"x.{rows.format('D')}.T @ d_{name}_projected.{rows.format(MAPS[name])}"
            d_w = step(f"d_w_{name}", of_map.d_w, f"D {MAPS[name]}", equation)
            self.accumulate(f"w_{name}", d_w)
        d_x: Any = sum(of_map.d_x for of_map in of_maps.values())
        shares = [f"d_{name}_projected @ w_{name}.T" for name in MAPS]
        step("d_x", d_x, "B T D", " + ".join(shares))
        if caches["mask"] is None:
            return d_x
        d_all_x = np.where(caches["mask"][..., None], d_x, 0)
        return step("d_all_x", d_all_x, "B T D", "np.where(token_mask[..., None], d_x, 0)")

    def _split(self, joined: Array) -> list[Array]:
        """Split (B, T, 2 H_k*d_k + H*d_v) into queries, keys and values."""
        keys = self.num_key_heads * self.head_dim
        return np.split(joined, [keys, 2 * keys], axis=-1)

    def _heads(self, mixed: Array) -> list[Array]:
        """Return queries, keys and values by head."""
        keys, found, first = ("H_k", "d_k"), [], 0
        axes = {"q_heads": keys, "k_heads": keys, "v": ("H", "d_v")}
        for (name, (H, d)), part in zip(axes.items(), self._split(mixed), strict=True):
            last, num_heads = (
                first + part.shape[-1],
                self.num_key_heads if H == "H_k" else self.num_heads,
            )
            moved = f"mixed[..., {first}:{last}].reshape(B, T, {H}, {d}).transpose(0, 2, 1, 3)"
            found.append(step(name, split_heads(part, num_heads), f"B {H} T {d}", moved))
            first = last
        return found


def _check_mask(mask: Any, x: Array) -> Array:
    """Return a mask of tokens, or raise a MaskError."""
    found = np.asarray(mask)
    if found.dtype != bool or found.shape != x.shape[:2]:
        raise MaskError(
            f"mask: expected bool (B, T) = {x.shape[:2]}, True = a token; got {describe(mask)}"
        )
    return found


MAPS = {  # and how wide they are
    "q": "H_k*d_k", "k": "H_k*d_k", "v": "H*d_v", "gate": "H*d_v", "beta": "H", "decay": "H",
}  # fmt: skip
# what a trace calls the arrays of the parts
OF_CONV = {"x": "joined", "w": "w_conv", "state": "joined_before", "share": "conv_share",
           "out": "mixed", "D": "W"}  # fmt: skip
OF_UNIT = {
    name: {"x": f"{name}_heads", "out": f"{name}_unit", "H": "H_k", "D": "d_k",
           **{part: f"{part}_{name}" for part in ("gain", "eps", "inverse_rms", "x_hat")}}
    for name in "qk"
}  # fmt: skip
OF_RULE = {"out": "heads", "H_kv": "H"}
OF_NORM = {"x": "heads", "out": "normed", "D": "d_v"}
OF_GATE = {"x": "normed", "share": "gate_share", "silu": "gate_silu", "out": "gated", "F": "d_v"}
