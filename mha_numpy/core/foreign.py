"""Arguments that other libraries have, and what to write here instead."""

from collections.abc import Iterable
from typing import Any

from mha_numpy.errors import ConfigError, did_you_mean

RETURN_WEIGHTS = "return_weights=True, of a layer or scaled_dot_product_attention"
ADVICE = {
    # PyTorch
    "attn_mask": "mask= where True = may attend (nn.MultiheadAttention's bool mask is the other "
    "way round: mask=~attn_mask), or bias= for numbers that are added",
    "key_padding_mask": "mask=~key_padding_mask[:, None, None, :], as True = may attend here",
    "dropout_p": "dropout_mask=, an array of 0 or 1 / (1 - p); a layer has dropout_p= and draws it",
    "dropout": "dropout_p=, when the layer is made",
    "need_weights": f"{RETURN_WEIGHTS}; cache.weights has them too",
    "average_attn_weights": f"{RETURN_WEIGHTS}, and weights.mean(axis=1)",
    "batch_first": "nothing: arrays are (B, T, D) here",
    "enable_gqa": "nothing: k and v may have fewer heads than q",
    "add_bias_kv": "add_bias_kv=, when a MultiHeadAttention is made; extra_k= and extra_v= in core",
    "add_zero_attn": "add_zero_attn=, when a MultiHeadAttention is made; in core a row of zeros in "
    "extra_k= and extra_v=",
    # Keras, TensorFlow, JAX, Hugging Face
    "attention_mask": "mask=, a bool array where True = may attend; (B, T_k) is "
    "mask[:, None, None, :]",
    "use_causal_mask": "is_causal=",
    "return_attention_scores": f"{RETURN_WEIGHTS}; these are after softmax",
    "output_attentions": RETURN_WEIGHTS,
    "training": "nothing: layer.train() and layer.eval() switch dropout",
    "key_dim": "head_dim=",
    "num_query_heads": "num_heads=",
    "num_key_value_heads": "num_kv_heads=",
    "hidden_size": "embed_dim=",
    "d_model": "embed_dim=",
    "local_window_size": "window=(left, right)",
    "past_key_value": "kv_cache=KVCache(), of a layer",
}


def refuse(foreign: dict[str, Any], known: Iterable[str] | None) -> None:
    """Raise a ConfigError for an argument that is not here, and say what is."""
    for name in foreign:
        advice = f"write {ADVICE[name]}" if name in ADVICE else did_you_mean(name, known or ())
        raise ConfigError(f"{name}: there is no such argument here{'; ' * bool(advice)}{advice}")
