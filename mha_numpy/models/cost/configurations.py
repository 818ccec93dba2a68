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


GPT: dict[str, Any] = {"biases": True, "norm_params": 2, "learned_positions": True}
BERT: dict[str, Any] = {  # post-norm; others: an embedding norm, two segment vectors, a pooler
    **GPT, "final_norm": False,
    "source": "Devlin et al. 2018, BERT, section 3; the published checkpoint, uncased",
}  # fmt: skip
LLAMA: dict[str, Any] = {"feed_forward_maps": 3, "tied": False}
LLAMA_2 = "Touvron et al. 2023, Llama 2, table 1 and section 2.2; the published checkpoint"
LLAMA_3 = "Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3; the published checkpoint"
FALCON = "Almazrouei et al. 2023, The Falcon Series of Open Language Models; the checkpoint"

# D, L, H, H_kv, d_k, F, V and context come first; a nominal size, such as 175e9, is what the paper
# rounds to, others are the checkpoint's own count
CONFIGURATIONS = {
    config.name: config
    for config in (
        ModelConfig("bert-base", 768, 12, 12, 12, 64, 3072, 30522, 512, **BERT,
                    others=2 * 768 + 2 * 768 + 768 * 768 + 768, published=109_482_240),
        ModelConfig("bert-large", 1024, 24, 16, 16, 64, 4096, 30522, 512, **BERT,
                    others=2 * 1024 + 2 * 1024 + 1024 * 1024 + 1024, published=335_141_888),
        ModelConfig("gpt-2", 768, 12, 12, 12, 64, 3072, 50257, 1024, **GPT, published=124_439_808,
                    source="Radford et al. 2019, GPT-2, table 2; the published checkpoint"),
        ModelConfig("gpt-3", 12288, 96, 96, 96, 128, 49152, 50257, 2048, **GPT, published=175.0e9,
                    source="Brown et al. 2020, GPT-3, table 2.1"),
        ModelConfig("llama-2-7b", 4096, 32, 32, 32, 128, 11008, 32000, 4096, **LLAMA,
                    published=6_738_415_616, source=LLAMA_2),
        ModelConfig("llama-2-13b", 5120, 40, 40, 40, 128, 13824, 32000, 4096, **LLAMA,
                    published=13_015_864_320, source=LLAMA_2),
        ModelConfig("llama-2-70b", 8192, 80, 64, 8, 128, 28672, 32000, 4096, **LLAMA,
                    published=68_976_648_192, source=LLAMA_2),
        ModelConfig("llama-3-8b", 4096, 32, 32, 8, 128, 14336, 128256, 8192, **LLAMA,
                    published=8_030_261_248, source=LLAMA_3),
        ModelConfig("llama-3-70b", 8192, 80, 64, 8, 128, 28672, 128256, 8192, **LLAMA,
                    published=70_553_706_496, source=LLAMA_3),
        ModelConfig("mistral-7b", 4096, 32, 32, 8, 128, 14336, 32000, 8192, **LLAMA,
                    published=7_241_732_096,
                    source="Jiang et al. 2023, Mistral 7B, table 1; the published checkpoint"),
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
    """Return the letters and digits of a name: "GPT_2" and "gpt-2" are both "gpt2"."""
    return "".join(filter(str.isalnum, name.lower()))
