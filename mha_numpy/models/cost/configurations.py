"""The sizes of known models, with their sources."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError, describe


@dataclass(frozen=True)
class ModelConfig:
    """A transformer's sizes: a stack of equal layers between two embeddings.

    Examples
    --------
    >>> CONFIGURATIONS["llama-3-70b"].variant, CONFIGURATIONS["gpt-2"].variant
    ('grouped-query', 'multi-head')
    """

    name: str
    embed_dim: int  # D
    num_layers: int  # L
    num_heads: int  # H
    num_kv_heads: int  # H_kv, which divides H
    head_dim: int  # d_k = d_v
    feed_forward: int  # F
    vocabulary: int  # V
    context: int  # the tokens that the model was made for
    feed_forward_maps: int = 2  # or 3 where one map gates another (SwiGLU)
    biases: bool = False  # of linear maps
    norms: int = 2  # of a layer
    norm_params: int = 1  # of each norm for a feature: 2 with a bias
    final_norm: bool = True  # one more norm follows the last layer
    learned_positions: bool = False  # each of the `context` positions has a vector
    tied: bool = True  # the output is multiplied by the embedding, and by no other map
    others: int = 0  # params that no other field counts
    published: float = 0  # all params, as the source has them
    source: str = ""

    def __post_init__(self) -> None:
        for size in (
            "embed_dim", "num_layers", "num_heads", "num_kv_heads", "head_dim", "feed_forward",
            "vocabulary", "context",
        ):  # fmt: skip
            check_count(size, getattr(self, size))
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"num_kv_heads: expected a divisor of num_heads={self.num_heads}; "
                f"got {self.num_kv_heads}"
            )

    @property
    def variant(self) -> str:
        """How keys and values are shared: "multi-head", "grouped-query" or "multi-query"."""
        if self.num_kv_heads == self.num_heads:
            return "multi-head"
        return "multi-query" if self.num_kv_heads == 1 else "grouped-query"


def _bert(name: str, D: int, L: int, H: int, published: float) -> ModelConfig:
    """Return a BERT: post-norm, an embedding norm, two segment vectors, and a pooler on top."""
    return ModelConfig(
        name, D, L, H, H, 64, 4 * D, 30522, 512, biases=True, norm_params=2, final_norm=False,
        learned_positions=True, others=2 * D + 2 * D + D * D + D, published=published,
        source="Devlin et al. 2018, BERT, section 3; the published checkpoint, uncased",
    )  # fmt: skip


def _gpt(
    name: str, D: int, L: int, H: int, context: int, published: float, source: str
) -> ModelConfig:
    """Return a GPT: pre-norm, learned positions."""
    return ModelConfig(
        name, D, L, H, H, D // H, 4 * D, 50257, context, biases=True, norm_params=2,
        learned_positions=True, published=published, source=source,
    )  # fmt: skip


def _llama(
    name: str, sizes: tuple[int, ...], vocabulary: int, context: int, published: float, source: str
) -> ModelConfig:
    """Return one of Llama's kind: RMS norms, gated feed-forward, rotated positions, no biases."""
    D, L, H, H_kv, F = sizes
    return ModelConfig(
        name, D, L, H, H_kv, 128, F, vocabulary, context, feed_forward_maps=3, tied=False,
        published=published, source=source,
    )  # fmt: skip


LLAMA_2 = "Touvron et al. 2023, Llama 2, table 1 and section 2.2; the published checkpoint"
LLAMA_3 = "Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3; the published checkpoint"
FALCON = "Almazrouei et al. 2023, The Falcon Series of Open Language Models; the checkpoint"
MISTRAL = "Jiang et al. 2023, Mistral 7B, table 1; the published checkpoint"

# a nominal size, such as 175e9, is what the paper rounds to; others are the checkpoint's own count
CONFIGURATIONS = {
    config.name: config
    for config in (
        _bert("bert-base", 768, 12, 12, 109_482_240),
        _bert("bert-large", 1024, 24, 16, 335_141_888),
        _gpt("gpt-2", 768, 12, 12, 1024, 124_439_808,
             "Radford et al. 2019, GPT-2, table 2; the published checkpoint"),
        _gpt("gpt-3", 12288, 96, 96, 2048, 175.0e9, "Brown et al. 2020, GPT-3, table 2.1"),
        _llama("llama-2-7b", (4096, 32, 32, 32, 11008), 32000, 4096, 6_738_415_616, LLAMA_2),
        _llama("llama-2-13b", (5120, 40, 40, 40, 13824), 32000, 4096, 13_015_864_320, LLAMA_2),
        _llama("llama-2-70b", (8192, 80, 64, 8, 28672), 32000, 4096, 68_976_648_192, LLAMA_2),
        _llama("llama-3-8b", (4096, 32, 32, 8, 14336), 128256, 8192, 8_030_261_248, LLAMA_3),
        _llama("llama-3-70b", (8192, 80, 64, 8, 28672), 128256, 8192, 70_553_706_496, LLAMA_3),
        _llama("mistral-7b", (4096, 32, 32, 8, 14336), 32000, 8192, 7_241_732_096, MISTRAL),
        ModelConfig("falcon-7b", 4544, 32, 71, 1, 64, 18176, 65024, 2048, norms=1, norm_params=2,
                    published=6_921_720_704, source=FALCON),
        ModelConfig("falcon-40b", 8192, 60, 128, 8, 64, 32768, 65024, 2048, norm_params=2,
                    published=41_303_293_952, source=FALCON),
        ModelConfig("palm-540b", 18432, 118, 48, 1, 256, 73728, 256000, 2048, feed_forward_maps=3,
                    norms=1, published=540.35e9,
                    source="Chowdhery et al. 2022, PaLM, table 1 and section 2"),
    )
}  # fmt: skip


def find_configuration(name: Any) -> ModelConfig:
    """Return a known model by its name; capitals, dashes, underscores and spaces do not count.

    Examples
    --------
    >>> find_configuration("Mistral 7B").num_kv_heads
    8
    """
    for known, config in CONFIGURATIONS.items():
        if isinstance(name, str) and _spelling(name) == _spelling(known):
            return config
    near = get_close_matches(str(name), CONFIGURATIONS, cutoff=0.4) or CONFIGURATIONS
    raise ConfigError(f"model: expected a name such as {', '.join(near)}; got {describe(name)}")


def _spelling(name: str) -> str:
    """Return what counts in a name: "GPT_2" and "gpt-2" are both "gpt2"."""
    return "".join(filter(str.isalnum, name.lower()))
