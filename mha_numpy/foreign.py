"""Arguments that other libraries have, and what to write here instead."""

from collections.abc import Iterable

from mha_numpy.errors import ConfigError, what_to_write

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
    "return_attention_scores": f"{RETURN_WEIGHTS}; these are after softmax",
    "output_attentions": RETURN_WEIGHTS,
    "training": "nothing: layer.train() and layer.eval() switch dropout",
    "local_window_size": "window=(left, right)",
    "past_key_value": "kv_cache=KVCache(), of a layer",
    "device": "nothing: NumPy computes on the CPU",
    "dtype": "layer.astype(dtype), once the layer is made",
    "weight_decay": "AdamW(...), which has it",
    "do_sample": "temperature=0 for the likeliest token",
    "batch_size": "draw_batch=, a function that returns a Batch with as many rows as you like",
}
OUR_NAMES = {  # ours: what others call it
    "embed_dim": "d_model hidden_size embedding_dim n_embd output_dim normalized_shape",
    "num_heads": "nhead n_head n_heads num_query_heads num_attention_heads",
    "num_kv_heads": "num_key_value_heads n_kv_heads",
    "num_layers": "n_layer n_layers num_hidden_layers",
    "head_dim": "key_dim d_k",
    "hidden_dim": "dim_feedforward d_ff intermediate_size n_inner",
    "vocab_size": "num_embeddings input_dim n_vocab",
    "max_tokens": "max_len block_size context_length max_position_embeddings n_positions",
    "inputs": "in_features",
    "outputs": "out_features units",
    "bias": "use_bias",
    "dropout_p": "p rate",
    "eps": "epsilon layer_norm_eps",
    "rng": "seed random_state generator",
    "is_causal": "use_causal_mask",
    "steps": "epochs num_epochs num_steps max_steps max_new_tokens",
    "top_k": "k",
    "top_p": "p",
    "ids": "input_ids prompt",
    "beams": "num_beams",
    "source": "pretrained_model_name_or_path model_id",
    "dtype": "torch_dtype",
    "path": "file filename",
    "arrays": "state_dict weights",
    "h": "eps epsilon",
    "tolerances": "atol rtol",
    "max_norm": "grad_clip max_grad_norm clipnorm",
    "schedule": "scheduler lr_scheduler",
    "measure": "callback callbacks",
    "layer": "params",
    "learning_rate": "lr",
    "betas": "beta_1 beta_2 beta1 beta2 b1 b2",
}


def our_name(theirs: str, known: Iterable[str]) -> str | None:
    """Return what an argument of another library is called here, among these names."""
    return next((ours for ours in known if theirs in OUR_NAMES.get(ours, "").split()), None)


class UnknownArgumentError(ConfigError):
    """An argument that is not here; the message says what is.

    Parameters
    ----------
    name : str
    known : iterable of str
        The names that are here.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name, tuple(known))

    def __str__(self) -> str:
        name, known = self.args
        ours = our_name(name, known)
        write = f"; write {ours}=" if ours else what_to_write(name, ADVICE, known)
        return f"{name}: there is no such argument here{write}"


def refuse(foreign: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first argument that is not here, if there is one."""
    for name in foreign:
        raise UnknownArgumentError(name, known)
