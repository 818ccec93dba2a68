"""Names that a package does not have, and what to write here instead."""

import re
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Never

from mha_numpy.errors import MissingAttributeError, what_to_write

ROOMS = "core layers models models.train models.weights models.analysis checking"
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
    """A package has no such name; the message says what to write, and where that is.

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


def explain_missing(package: str) -> None:
    """Let a package raise our error for a name that is not there; type checkers see none of it."""

    def find(name: str) -> Never:
        raise MissingNameError(package, name)

    vars(sys.modules[package])["__getattr__"] = find
