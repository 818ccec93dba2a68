"""Names that other libraries have, and what to write here instead.

They are the names of arguments, of a layer's attributes, and of a package's members.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from mha_numpy.errors import ConfigError, MissingAttributeError, what_to_write

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
    "latent_dim": "kv_lora_rank",
    "query_latent_dim": "q_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "value_dim": "v_head_dim",
    "sink": "sinks s_aux",
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
    """Return the name that another library's argument has here, among these names."""
    return next((ours for ours in known if theirs in OUR_NAMES.get(ours, "").split()), None)


class UnknownArgumentError(ConfigError):
    """An argument that does not exist here; the message says which one does.

    Parameters
    ----------
    name : str
    known : iterable of str
        The names that exist here.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(name, tuple(known))

    def __str__(self) -> str:
        name, known = self.args
        ours = our_name(name, known)
        write = f"; write {ours}=" if ours else what_to_write(name, ADVICE, known)
        return f"{name}: there is no such argument here{write}"


def refuse(foreign: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for the first unknown argument, if there is one."""
    for name in foreign:
        raise UnknownArgumentError(name, known)


PARAMS = "layer.named_params(), pairs of a dotted name and an array"
PARAM = "layer.params[name]; list(layer.params) has the names"
LOAD = "layer.load(path), or from_layout of mha_numpy.models.weights for another library's arrays"
FIT = "fit(model, ...) of mha_numpy.models.train"
CPU = "nothing: NumPy computes on the CPU"
SET_PARAM = "layer.params[name] = array"
ATTRIBUTES = {
    # PyTorch
    "parameters": PARAMS,
    "named_parameters": PARAMS,
    "state_dict": "dict(layer.named_params()), or layer.save(path) for a file",
    "load_state_dict": LOAD,
    "weight": PARAM,
    "bias": PARAM,
    "grad": "layer.grads, a dict of arrays",
    "zero_grad": "layer.zero_grads()",
    "requires_grad_": "nothing: backward computes the gradients of all params",
    "to": "layer.astype(dtype) for another dtype; all is on the CPU",
    "type": "layer.astype(dtype)",
    "float": "layer.astype(np.float32)",
    "double": "layer.astype(np.float64)",
    "half": "layer.astype(np.float16)",
    "bfloat16": "layer.astype(np.float32): NumPy has no bfloat16",
    "cpu": CPU,
    "cuda": CPU,
    "device": CPU,
    "modules": "layer.layers()",
    "named_modules": "layer.named_layers()",
    "named_children": "layer.children().items()",
    "apply": "a loop: for part in layer.layers()",
    "register_parameter": SET_PARAM,
    "register_buffer": "an attribute: layer.name = array",
    "add_module": "an attribute: layer.name = part",
    "register_forward_hook": "with trace() of mha_numpy, which records every step",
    # Keras
    "get_weights": PARAMS,
    "set_weights": LOAD,
    "trainable_variables": PARAMS,
    "trainable_weights": PARAMS,
    "variables": PARAMS,
    "add_weight": SET_PARAM,
    "save_weights": "layer.save(path)",
    "load_weights": LOAD,
    "count_params": "layer.num_parameters",
    "summary": "print(layer)",
    "call": "layer(x)",
    "build": "nothing: params are there once the layer is made",
    "compile": FIT,
    "fit": FIT,
    "predict": "layer.eval(), then layer(x)",
    # Hugging Face
    "generate": "generate(model, ids, steps) of mha_numpy.models",
    "save_pretrained": "layer.save(path)",
    # a constructor that does not begin as it has to
    **dict.fromkeys(
        ("params", "grads", "training", "uses"), "super().__init__() first in the constructor"
    ),
}


def missing_attribute(
    owner: Any, name: str, advice: Mapping[str, str] = ATTRIBUTES
) -> MissingAttributeError:
    """Return the error of a missing attribute; it names the right one."""
    kind = type(owner).__name__
    article = "an" if kind[0] in "AEIOU" or kind == "SGD" else "a"
    known = [known for known in dir(owner) if known[0] != "_" != name[0]]
    write = what_to_write(name, advice, known)
    return MissingAttributeError(
        f"{name}: {article} {kind} has no such attribute{write}", name=name
    )


ROOMS = "core variants layers models models.train models.weights models.analysis checking"
PACKAGES = ["mha_numpy", *(f"mha_numpy.{room}" for room in ROOMS.split())]
LAYER = "Layer, whose subclass has forward and backward"
PRETRAINED = "from_pretrained(source)"
LLAMA = "Llama(vocab_size, max_tokens), or from_pretrained(source)"
SCHEDULE = "warm_up_cosine(steps, warm_up)"
NAMES = {  # of PyTorch, Keras and Hugging Face
    "Module": LAYER,
    "Model": LAYER,
    "ModuleList": "a list: self.blocks = [...]",
    "ModuleDict": "a dict: self.parts = {...}",
    "Parameter": "layer.params[name] = array",
    "MultiheadAttention": "MultiHeadAttention(embed_dim, num_heads)",
    "Dense": "Linear(inputs, outputs)",
    "LayerNormalization": "LayerNorm(embed_dim)",
    "ReLU": "Activation('relu')",
    "GELU": "Activation('gelu')",
    "Softmax": "softmax_forward and softmax_backward",
    "softmax": "softmax_forward and softmax_backward",
    "CrossEntropyLoss": "cross_entropy_forward and cross_entropy_backward",
    "TransformerEncoderLayer": "EncoderBlock(embed_dim, num_heads, hidden_dim)",
    "TransformerDecoderLayer": "EncoderDecoderBlock(embed_dim, num_heads, hidden_dim)",
    "Transformer": "Translator(source_vocab_size, target_vocab_size, max_tokens)",
    "functional": "mha_numpy.layers and mha_numpy.core, whose functions come in pairs",
    "dot_product_attention": "scaled_dot_product_attention(q, k, v)",
    "GPT2LMHeadModel": "GPT2(vocab_size, max_tokens), or from_pretrained(source)",
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "BertModel": "Bert(vocab_size, max_tokens, ...), or from_pretrained(source)",
    "SentenceTransformer": "SentenceBert(bert), or from_pretrained(source)",
    "AutoModel": PRETRAINED,
    "AutoModelForCausalLM": PRETRAINED,
    "optim": "mha_numpy.models.train, which has SGD, Adam and AdamW",
    "optimizers": "mha_numpy.models.train, which has SGD, Adam and AdamW",
    "Trainer": "fit(model, draw_batch, steps=..., optimizer=...)",
    "DataLoader": "Batch(inputs, targets), which the draw_batch of fit returns",
    "CosineAnnealingLR": SCHEDULE,
    "get_cosine_schedule_with_warmup": SCHEDULE,
    "clip_grad_norm_": "clip_gradients(layer, max_norm)",
    "no_grad": "nothing: gradients are computed only in backward",
}


class MissingNameError(MissingAttributeError):
    """A package has no such name; the message says what to write, and where it is.

    Parameters
    ----------
    package, name : str
    """

    def __init__(self, package: str, name: str) -> None:
        super().__init__(package, name, name=name)

    def __str__(self) -> str:  # once it is read: an import asks for names, too
        package, name = self.args
        write = NAMES.get(name, name)
        ours, *_ = re.split(r"\W", write)
        homes = [each for each in PACKAGES if ours in import_module(each).__all__]
        if homes and package not in homes:
            write += f" of {homes[0]}"
        elif name in (module.name for module in iter_modules(import_module(package).__path__)):
            write = f"import {package}.{name} first"
        advice = {} if write == name else {name: write}
        said = what_to_write(name, advice, import_module(package).__all__)
        return f"{name}: {package} has no such name{said}"


def explain_missing(package: str, later: Mapping[str, str] = MappingProxyType({})) -> None:
    """Let a package raise our error for a missing name; type checkers do not see it.

    `later` has public names that are imported once they are asked for, each with its package.
    """

    def find(name: str) -> Any:
        if name in later:
            return getattr(import_module(later[name]), name)
        raise MissingNameError(package, name)

    vars(sys.modules[package])["__getattr__"] = find
