"""How many params, operations and bytes a model takes, part by part."""

from typing import NamedTuple

from mha_numpy.checks import check_count, check_flag
from mha_numpy.models.cost.configurations import ModelConfig


class Parameters(NamedTuple):
    """Numbers of params; of all layers together."""

    embedding: int  # V*D, and context*D where positions are learned
    attention: int
    feed_forward: int
    norms: int
    output: int  # V*D, or 0 where the embedding serves
    others: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def count_parameters(config: ModelConfig) -> Parameters:
    """Count a model's params.

    A layer's attention has ``D H d_k + 2 D H_kv d_k + H d_k D`` of them: w_q, w_k, w_v, w_o. With
    H d_k = D and H_kv = H that is 4 D^2 for any number of heads. A gate is one more map as wide as
    w_q. Latent attention has a map down and a map up for queries, and the same for keys and values.
    Layers of the delta rule have their own maps, a convolution, and a few numbers for each head.

    The ``total`` of known models agrees with their authors' numbers. Source: Kaplan et al. 2020,
    *Scaling Laws for Neural Language Models*, table 1.

    Examples
    --------
    >>> from mha_numpy.models.cost import CONFIGURATIONS
    >>> gpt_2 = count_parameters(CONFIGURATIONS["gpt-2"])
    >>> gpt_2.total, gpt_2.attention // 12 - 4 * 768  # without biases: 4 * 768^2
    (124439808, 2359296)
    """
    D, L, F = config.embed_dim, config.num_layers, config.feed_forward
    maps = _attention_maps(config)
    attention = _count(maps) + config.attention_others
    feed_forward = config.feed_forward_maps * D * F
    if config.biases:
        attention += sum(outputs for _, outputs in maps)
        feed_forward += (config.feed_forward_maps - 1) * F + D
    rows = config.vocabulary + (config.context if config.learned_positions else 0)
    return Parameters(
        embedding=rows * D,
        attention=(L - config.delta_layers) * attention + _count_delta_parameters(config),
        feed_forward=L * feed_forward,
        norms=(L * config.norms + config.final_norm) * config.norm_params * D,
        output=0 if config.tied else config.vocabulary * D,
        others=config.others,
    )


def _attention_maps(config: ModelConfig) -> list[tuple[int, int]]:
    """Return the inputs and outputs of each linear map of a layer's attention."""
    D, H, d = config.embed_dim, config.num_heads, config.head_dim
    if config.latent is None:
        keys = config.num_kv_heads * d
        gate = [(D, H * d)] if config.gated else []
        return [(D, H * d), (D, keys), (D, keys), *gate, (H * d, D)]
    d_cq, d_c, d_rope = config.latent
    down, up = [(D, d_cq), (D, d_c + d_rope)], [(d_cq, H * (d + d_rope)), (d_c, H * (d + d))]
    return [*down, *up, (H * d, D)]


def _delta_maps(config: ModelConfig) -> list[tuple[int, int]]:
    """Return the inputs and outputs of each linear map of all layers of the delta rule."""
    if config.delta is None:
        return []
    (layers, key_heads, value_heads, d, _), D = config.delta, config.embed_dim
    keys, values = key_heads * d, value_heads * d  # also of queries; also of the gates
    maps = [(D, keys)] * 2 + [(D, values)] * 2 + [(D, value_heads)] * 2 + [(values, D)]
    return maps * layers


def _count_delta_parameters(config: ModelConfig) -> int:
    """Count those of all layers of the delta rule."""
    if config.delta is None:
        return 0
    layers, key_heads, value_heads, d, kernel = config.delta
    conv = (2 * key_heads + value_heads) * d * kernel
    rates_and_norm = 2 * value_heads + d
    return _count(_delta_maps(config)) + layers * (conv + rates_and_norm)


def _count(maps: list[tuple[int, int]]) -> int:
    return sum(inputs * outputs for inputs, outputs in maps)


class Flops(NamedTuple):
    """Operations of matrix products, two for each multiply-add; of all layers together."""

    projections: int  # x w_q, x w_k, x w_v, merged w_o; all maps of latent attention, delta rule
    scores: int  # q k^T
    mix: int  # weights v
    state: int  # of the delta rule: what k reads, what it writes, what q reads
    feed_forward: int
    output: int  # the last vectors by the vocabulary

    @property
    def attention(self) -> int:
        """Projections, scores, mix and state."""
        return self.projections + self.scores + self.mix + self.state

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def count_flops(
    config: ModelConfig, tokens: int, *, past: int = 0, batch: int = 1, backward: bool = False
) -> Flops:
    """Count the operations of a model's matrix products on some tokens.

    Parameters
    ----------
    config : ModelConfig
    tokens, batch : int
        T new tokens of each of B sequences.
    past : int
        Tokens before them, whose keys and values a KV cache holds; local layers keep only those
        that the new tokens see.
    backward : bool
        Count backward instead of forward: two products for each of forward's.

    Notes
    -----
    Hidden cells count, half of all if attention is causal: the reference computes them, the kernels
    skip them. Softmax is left out: its H T_q T_k exponentials for each layer are few compared with
    the 2 d_k multiply-adds of each cell, but they grow with H and the products do not. Norms,
    biases and activations are left out too, and so are routers of experts, and scores that a
    kernel's backward recomputes. Latent attention makes keys and values of all heads from the
    latents, but with a `past` it attends to the latents themselves: the maps take as many
    operations either way, the scores and the mix more. The delta rule is counted token by token,
    without its convolution; chunks take more operations, and fewer steps. Sources: Kaplan et al.
    2020, table 1, which leaves out scores and mix of short sequences; DeepSeek-AI 2024,
    *DeepSeek-V2*, section 2.1.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from mha_numpy.models.cost import CONFIGURATIONS
    >>> gpt_2 = CONFIGURATIONS["gpt-2"]
    >>> one_head = replace(gpt_2, num_heads=1, num_kv_heads=1, head_dim=768)
    >>> count_flops(gpt_2, 1024) == count_flops(one_head, 1024)
    True
    """
    T, B = check_count("tokens", tokens), check_count("batch", batch)
    past = check_count("past", past, least=0)
    keys_seen = _in_all_layers(config, T + past, T - 1 + config.window)
    key_width = value_width = config.head_dim
    if config.latent is not None:
        if past:
            key_width = value_width = config.latent.keys
        key_width += config.latent.rope
    D, each = config.embed_dim, 2 * B * T * (2 if check_flag("backward", backward) else 1)
    attentions, delta = config.num_layers - config.delta_layers, config.delta
    maps = attentions * _count(_attention_maps(config)) + _count(_delta_maps(config))
    feed_forward = D * config.feed_forward * config.feed_forward_maps
    return Flops(
        projections=each * maps,
        scores=each * config.num_heads * keys_seen * key_width,
        mix=each * config.num_heads * keys_seen * value_width,
        state=each * delta.layers * delta.value_heads * 3 * delta.head_dim**2 if delta else 0,
        feed_forward=each * config.num_layers * feed_forward,
        output=each * D * config.vocabulary,
    )


def _in_all_layers(config: ModelConfig, tokens: int, in_local: int) -> int:
    """Return the sum over layers with attention of the tokens that each of them holds."""
    local = config.local_layers
    return (config.num_layers - config.delta_layers - local) * tokens + local * min(
        tokens, in_local
    )


def kv_cache_bytes(config: ModelConfig, tokens: int, *, batch: int = 1, itemsize: int = 2) -> int:
    """Count the bytes that all layers keep of the tokens: ``2 L B H_kv T d_k`` numbers.

    Grouping divides it by G = H / H_kv. Latent attention keeps ``d_c + d_rope`` numbers per token
    and layer instead of ``2 H_kv d_k``. A local layer keeps its last `window` tokens instead of T.
    A layer of the delta rule keeps a ``d x d`` state of each head, and the few tokens that its
    convolution sees, for any T.

    Parameters
    ----------
    config : ModelConfig
    tokens, batch : int
        T of each of B sequences.
    itemsize : int
        Bytes of a number: 2 for float16, 4 for float32.

    Notes
    -----
    Sources: Shazeer 2019; Ainslie et al. 2023; DeepSeek-AI 2024, *DeepSeek-V2*, table 1; Gemma Team
    2025, *Gemma 3*, section 5.2.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from mha_numpy.models.cost import CONFIGURATIONS
    >>> llama = CONFIGURATIONS["llama-3-70b"]
    >>> kv_cache_bytes(llama, 8192) / 2**30  # GiB
    2.5
    >>> kv_cache_bytes(replace(llama, num_kv_heads=64), 8192) / 2**30  # were it multi-head
    20.0
    >>> deepseek = CONFIGURATIONS["deepseek-v3"]
    >>> kv_cache_bytes(deepseek, 1) / 61  # 2 * (512 + 64) for each layer
    1152.0
    """
    held = _in_all_layers(config, check_count("tokens", tokens), config.window)
    each = 2 * config.num_kv_heads * config.head_dim
    if config.latent is not None:
        each = config.latent.keys + config.latent.rope
    numbers = held * each
    if config.delta is not None:
        layers, key_heads, value_heads, d, kernel = config.delta
        conv = (kernel - 1) * (2 * key_heads + value_heads) * d
        numbers += layers * (value_heads * d * d + conv)
    return numbers * check_count("batch", batch) * check_count("itemsize", itemsize)
