"""Sizes of known models make a model of transformers with as many params, part by part."""

from collections import Counter

import pytest

from mha_numpy.models.cost import CONFIGURATIONS, count_parameters

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = {  # what transformers calls them
    "llama": "Llama", "mistral": "Mistral", "qwen3": "Qwen3", "qwen3-next": "Qwen3Next",
    "gemma-2": "Gemma2",
    "gemma-3": "Gemma3Text", "olmo-2": "Olmo2", "gpt-oss": "GptOss", "deepseek": "DeepseekV3",
}  # fmt: skip
THEIRS = {name: KINDS[kind] for name in CONFIGURATIONS for kind in KINDS if name.startswith(kind)}
SPECIAL = {  # intermediate_size is of one expert
    "gpt-oss-20b": {"num_local_experts": 32, "intermediate_size": 2880},
    "qwen3-next-80b-a3b": {"num_experts": 512, "moe_intermediate_size": 512},
}


def model_of(name):
    """Return an empty model, which takes no memory."""
    sizes, special = CONFIGURATIONS[name], SPECIAL.get(name, {})
    config = getattr(transformers, f"{THEIRS[name]}Config")(**{
        "hidden_size": sizes.embed_dim, "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.num_heads, "num_key_value_heads": sizes.num_kv_heads,
        "head_dim": sizes.head_dim, "intermediate_size": sizes.feed_forward,
        "vocab_size": sizes.vocabulary, "tie_word_embeddings": sizes.tied,
        "num_mtp_layers": 0, **special,
    })  # fmt: skip
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def part_of(name):
    """Return which field of `Parameters` counts a param of this name."""
    parts = {
        "embed_tokens": "embedding", "lm_head": "output", "attn": "attention", "norm": "norms",
        "mlp": "feed_forward",
    }  # fmt: skip
    return next(part for word, part in parts.items() if word in name)


@pytest.mark.parametrize("name", THEIRS)
def test_params_and_windows_are_those_of_transformers(name):
    model, sizes, theirs = model_of(name), CONFIGURATIONS[name], Counter()
    for key, array in model.state_dict().items():  # with the biases of DeepSeek's router
        if not (sizes.tied and key == "lm_head.weight"):
            theirs[part_of(key)] += array.numel()
    ours = count_parameters(sizes)._asdict()
    ours["feed_forward"] += ours.pop("others")  # idle experts and the router
    assert theirs == Counter(ours)
    kinds = getattr(model.config, "layer_types", None) or []
    if name != "mistral-7b":  # all of its layers have a window, and it does not list them
        assert kinds.count("sliding_attention") == sizes.local_layers
    assert kinds.count("linear_attention") == sizes.delta_layers
