"""The sizes of known models, with their sources."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError, describe


class Latent(NamedTuple):
    """The widths of latent attention, as in DeepSeek-V2 and V3."""

    queries: int  # d_cq, from which the queries of all heads are made
    keys: int  # d_c, from which the keys and values of all heads are made
    rope: int  # d_rope, which each query and key has besides head_dim; all heads share that key


class Delta(NamedTuple):
    """Layers that have the gated delta rule instead of attention, as in Qwen3-Next."""

    layers: int
    key_heads: int
    value_heads: int  # each has a state of head_dim x head_dim
    head_dim: int
    kernel: int  # tokens that the convolution before it sees


@dataclass(frozen=True)
class ModelConfig:
    """A transformer's sizes: a stack of layers between two embeddings.

    Layers are equal, but for those of `delta`. A token passes through only some experts of a
    mixture. `feed_forward` is their width, so that operations are right; `others` has the params
    of the idle ones.

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
    feed_forward: int  # F; of experts, all that one token passes through
    vocabulary: int  # V
    context: int  # the tokens that the model was made for
    feed_forward_maps: int = 2  # or 3 where one map gates another (SwiGLU)
    biases: bool = False  # of linear maps
    attention_others: int = 0  # more params of a layer's attention: norms of q and k, sinks
    gated: bool = False  # what attention mixed is multiplied by a gate for each feature
    latent: Latent | None = None  # keys and values are made from one small vector per token
    delta: Delta | None = None  # the other layers have attention
    local_layers: int = 0  # layers whose queries see only the last `window` tokens
    window: int = 0  # in keys, the query's own included
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
        for name in ("latent", "delta"):
            special = getattr(self, name)
            for size, number in special._asdict().items() if special else ():
                check_count(f"{name}.{size}", number)
        local, delta = check_count("local_layers", self.local_layers, least=0), self.delta_layers
        layers = self.num_layers
        for name, some, most in (
            ("delta.layers", delta, layers), ("local_layers", local, layers - delta),
        ):  # fmt: skip
            if some > most:
                raise ConfigError(
                    f"{name}: expected at most {most} of num_layers={layers}; got {some}"
                )
        check_count("window", self.window, least=1 if self.local_layers else 0)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"num_kv_heads: expected a divisor of num_heads={self.num_heads}; "
                f"got {self.num_kv_heads}"
            )

    @property
    def delta_layers(self) -> int:
        """How many layers have no attention."""
        return self.delta.layers if self.delta else 0

    @property
    def variant(self) -> str:
        """How heads share keys: "multi-head", "grouped-query", "multi-query" or "latent"."""
        if self.latent:
            return "latent"
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
LLAMA_3_2: dict[str, Any] = {
    "feed_forward_maps": 3, "source": "Meta 2024, Llama 3.2 model card; the published checkpoint",
}  # fmt: skip
QWEN_3: dict[str, Any] = {  # a norm of queries and one of keys, over d_k features
    "feed_forward_maps": 3, "attention_others": 2 * 128,
    "source": "Yang et al. 2025, Qwen3 Technical Report, table 1; the published checkpoint",
}  # fmt: skip
# 36 layers of the delta rule, 12 of attention; 11 of 513 experts of width 512 read a token
QWEN_3_NEXT: dict[str, Any] = {
    "feed_forward_maps": 3, "tied": False, "gated": True, "attention_others": 2 * 256,
    "delta": Delta(36, key_heads=16, value_heads=32, head_dim=128, kernel=4),
    # idle experts, the router, and a gate for the expert that all tokens share
    "others": 48 * (502 * 3 * 2048 * 512 + 2048 * 512 + 2048),
    "source": "Qwen Team 2025, Qwen3-Next-80B-A3B model card; the published checkpoint",
}  # fmt: skip
GEMMA_2: dict[str, Any] = {  # norms before and after attention, before and after feed-forward
    "feed_forward_maps": 3, "norms": 4, "window": 4096,
    "source": "Gemma Team 2024, Gemma 2, tables 1 and 2; the published checkpoint",
}  # fmt: skip
GEMMA_3: dict[str, Any] = {
    "feed_forward_maps": 3, "norms": 4, "attention_others": 2 * 256,
    "source": "Gemma Team 2025, Gemma 3 Technical Report, section 2; the published checkpoint",
}  # fmt: skip
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
                    local_layers=32, window=4096, published=7_241_732_096,
                    source="Jiang et al. 2023, Mistral 7B, table 1; the published checkpoint"),
        ModelConfig("falcon-7b", 4544, 32, 71, 1, 64, 18176, 65024, 2048, norms=1, norm_params=2,
                    published=6_921_720_704, source=FALCON),
        ModelConfig("falcon-40b", 8192, 60, 128, 8, 64, 32768, 65024, 2048, norm_params=2,
                    published=41_303_293_952, source=FALCON),
        ModelConfig("palm-540b", 18432, 118, 48, 1, 256, 73728, 256000, 2048, feed_forward_maps=3,
                    norms=1, published=540.35e9,
                    source="Chowdhery et al. 2022, PaLM, table 1 and section 2"),
        ModelConfig("llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, 131072, **LLAMA,
                    published=8_030_261_248, source=LLAMA_3),
        ModelConfig("llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, 131072, **LLAMA_3_2,
                    published=1_235_814_400),
        ModelConfig("llama-3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, 131072, **LLAMA_3_2,
                    published=3_212_749_824),
        ModelConfig("qwen3-0.6b", 1024, 28, 16, 8, 128, 3072, 151936, 32768, **QWEN_3,
                    published=596_049_920),
        ModelConfig("qwen3-4b", 2560, 36, 32, 8, 128, 9728, 151936, 32768, **QWEN_3,
                    published=4_022_468_096),
        ModelConfig("qwen3-8b", 4096, 36, 32, 8, 128, 12288, 151936, 32768, **QWEN_3, tied=False,
                    published=8_190_735_360),
        ModelConfig("qwen3-next-80b-a3b", 2048, 48, 16, 2, 256, 11 * 512, 151936, 262144,
                    **QWEN_3_NEXT,
                    published=79_674_391_296),  # without the module that predicts a second token
        ModelConfig("gemma-2-2b", 2304, 26, 8, 4, 256, 9216, 256000, 8192, **GEMMA_2,
                    local_layers=13, published=2_614_341_888),
        ModelConfig("gemma-2-9b", 3584, 42, 16, 8, 256, 14336, 256000, 8192, **GEMMA_2,
                    local_layers=21, published=9_241_705_984),
        ModelConfig("gemma-3-1b", 1152, 26, 4, 1, 256, 6912, 262144, 32768, **GEMMA_3,
                    local_layers=22, window=512, published=999_885_952),
        ModelConfig("gemma-3-4b", 2560, 34, 8, 4, 256, 10240, 262208, 131072, **GEMMA_3,
                    local_layers=29, window=1024,
                    published=4_300_079_472 - 419_816_304),  # all, less what reads images
        ModelConfig("olmo-2-7b", 4096, 32, 32, 32, 128, 11008, 100352, 4096, **LLAMA,
                    attention_others=2 * 4096,  # one norm of all queries, one of all keys
                    published=7_298_617_344,
                    source="OLMo Team 2024, 2 OLMo 2 Furious, section 2; the published checkpoint"),
        ModelConfig("gpt-oss-20b", 2880, 24, 64, 8, 64, 4 * 2880, 201088, 131072, **LLAMA,
                    biases=True, attention_others=64,  # a sink for each head
                    local_layers=12, window=128, published=20_914_757_184,
                    # 28 idle of 32 experts, the output biases of 3 more, and the router
                    others=24 * (28 * (3 * 2880 * 2880 + 2 * 2880 + 2880) + 3 * 2880
                                 + 2880 * 32 + 32),
                    source="OpenAI 2025, gpt-oss model card, section 2; the published checkpoint"),
        ModelConfig("deepseek-v3", 7168, 61, 128, 128, 128, 18432, 129280, 131072, **LLAMA,
                    latent=Latent(queries=1536, keys=512, rope=64),
                    attention_others=1536 + 512,  # norms of the latents
                    # 3 layers have one wide map, and 58 have experts of width 2048: each token
                    # passes through 9 of 257 (9 * 2048 = 18432); and a router with its biases
                    others=58 * (248 * 3 * 7168 * 2048 + 7168 * 256 + 256),
                    published=671_026_419_200,  # without the module that predicts a second token
                    source="DeepSeek-AI 2024, DeepSeek-V3 Technical Report, section 4.2; the "
                           "published checkpoint"),
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
