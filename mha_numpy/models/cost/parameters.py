"""How many params a model has, part by part."""

from typing import NamedTuple

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
    H d_k = D and H_kv = H that is 4 D^2, whatever the number of heads.

    The ``total`` of known models agrees with what their authors published. Source: Kaplan et al.
    2020, *Scaling Laws for Neural Language Models*, table 1.

    Examples
    --------
    >>> from mha_numpy.models.cost import CONFIGURATIONS
    >>> gpt_2 = count_parameters(CONFIGURATIONS["gpt-2"])
    >>> gpt_2.total, gpt_2.attention // 12 - 4 * 768  # without biases: 4 * 768^2
    (124439808, 2359296)
    """
    D, L, F = config.embed_dim, config.num_layers, config.feed_forward
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention = D * queries + 2 * D * keys + queries * D
    feed_forward = config.feed_forward_maps * D * F
    if config.biases:
        attention += queries + 2 * keys + D
        feed_forward += (config.feed_forward_maps - 1) * F + D
    rows = config.vocabulary + (config.context if config.learned_positions else 0)
    return Parameters(
        embedding=rows * D,
        attention=L * attention,
        feed_forward=L * feed_forward,
        norms=(L * config.norms + config.final_norm) * config.norm_params * D,
        output=0 if config.tied else config.vocabulary * D,
        others=config.others,
    )
