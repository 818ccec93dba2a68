"""Attributes that layers of other libraries have, and what to write here instead."""

from collections.abc import Mapping
from typing import Any

from mha_numpy.errors import MissingAttributeError, what_to_write

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
    """Return the error of an attribute that is not there; it says what there is."""
    kind = type(owner).__name__
    article = "an" if kind[0] in "AEIOU" or kind == "SGD" else "a"
    known = [known for known in dir(owner) if known[0] != "_" != name[0]]
    write = what_to_write(name, advice, known)
    return MissingAttributeError(
        f"{name}: {article} {kind} has no such attribute{write}", name=name
    )
