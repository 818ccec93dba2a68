"""How many floating-point operations a model takes, part by part."""

from typing import NamedTuple

from mha_numpy.checks import check_count, check_flag
from mha_numpy.models.cost.configurations import ModelConfig


class Flops(NamedTuple):
    """Operations of matrix products, two for each multiply-add; of all layers together."""

    projections: int  # x w_q, x w_k, x w_v, merged w_o
    scores: int  # q k^T
    mix: int  # weights v
    feed_forward: int
    output: int  # the last vectors by the vocabulary

    @property
    def attention(self) -> int:
        """Projections, scores and mix."""
        return self.projections + self.scores + self.mix

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
    tokens : int
        T, new tokens of each sequence.
    past : int
        Tokens before them, whose keys and values a KV cache holds.
    batch : int
        B, sequences.
    backward : bool
        Count backward instead of forward: two products for each of forward's.

    Returns
    -------
    Flops

    Notes
    -----
    Hidden cells count, half of all if attention is causal: the reference computes them, the kernels
    skip them. Softmax is left out: its H T_q T_k exponentials for each layer are few beside the 2
    d_k multiply-adds of each cell, but they grow with H and the products do not. So are norms,
    biases and activations. Scores computed anew in a kernel's backward are not counted. Source:
    Kaplan et al. 2020, table 1, which leaves out scores and mix of short sequences.

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
    keys_seen = T + check_count("past", past, least=0)
    D, H, H_kv, d = config.embed_dim, config.num_heads, config.num_kv_heads, config.head_dim
    each = 2 * (2 if check_flag("backward", backward) else 1)
    layers = each * config.num_layers
    return Flops(
        projections=layers * B * T * D * d * (H + 2 * H_kv + H),
        scores=layers * B * H * T * keys_seen * d,
        mix=layers * B * H * T * keys_seen * d,
        feed_forward=layers * B * T * D * config.feed_forward * config.feed_forward_maps,
        output=each * B * T * D * config.vocabulary,
    )
