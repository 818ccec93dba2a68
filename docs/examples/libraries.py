"""Write mha_numpy/identifying/libraries.json, and the tables of docs/conventions.md made from it.

python docs/examples/libraries.py
"""

import json
import os
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy import MultiHeadAttention, scaled_dot_product_attention
from mha_numpy.identifying import identify
from mha_numpy.identifying.libraries import FILE, Datasheet, libraries, pack

PAGE = Path(__file__).parents[1] / "conventions.md"
D, H = 32, 4


def of_torch(layer: bool = False) -> Any:
    import torch

    if not layer:
        return torch.nn.functional.scaled_dot_product_attention
    return torch.nn.MultiheadAttention(D, H, batch_first=True)


def of_keras(name: str, *heads: int) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    layer = getattr(keras.layers, name)(*heads, dtype="float64")
    x = np.ones((2, 5, D))
    layer(x, x)
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=w.shape) / 4 for w in layer.weights])
    return layer


def of_jax() -> Any:
    import jax

    return jax.nn.dot_product_attention


def of_onnx() -> Any:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    def attention(
        Q, K, V, attn_mask=None, is_causal=False, scale=None, softcap=0.0, left_window_size=-1,
        right_window_size=-1,
    ):  # fmt: skip
        given = {"Q": Q, "K": K, "V": V} | ({} if attn_mask is None else {"attn_mask": attn_mask})
        options = {"scale": scale, "softcap": softcap, "is_causal": int(is_causal),
                   "left_window_size": left_window_size, "right_window_size": right_window_size}  # fmt: skip
        options = {name: value for name, value in options.items() if value is not None}
        node = helper.make_node("Attention", [*given], ["Y"], **options)
        kinds = {name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in given.items()}
        info = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
        out = helper.make_tensor_value_info("Y", kinds["Q"], None)
        graph = helper.make_graph([node], "attention", info, [out])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
        return ReferenceEvaluator(model).run(None, given)[0]

    return attention


def of_transformers(model: str, config: str, name: str, **options: Any) -> Any:
    from importlib import import_module

    parts = import_module(f"transformers.models.{model}.modeling_{model}")
    made = getattr(import_module("transformers"), config)(
        attn_implementation="eager", vocab_size=9, bos_token_id=0, eos_token_id=0, **options
    )
    return getattr(parts, name)(made, layer_idx=0)


SIZES = {"hidden_size": D, "num_attention_heads": H}
SUBJECTS: dict[str, tuple[str, Callable[[], Any]]] = {  # each with the package that it is from
    "PyTorch's scaled_dot_product_attention": ("torch", of_torch),
    "PyTorch's MultiheadAttention": ("torch", lambda: of_torch(layer=True)),
    "Keras's MultiHeadAttention": ("keras", lambda: of_keras("MultiHeadAttention", H, 8)),
    "Keras's GroupQueryAttention": ("keras", lambda: of_keras("GroupQueryAttention", 8, H, 2)),
    "JAX's dot_product_attention": ("jax", of_jax),
    "ONNX's Attention": ("onnx", of_onnx),
    "BERT's attention": (
        "transformers", lambda: of_transformers("bert", "BertConfig", "BertSelfAttention", **SIZES)),
    "GPT-2's attention": (
        "transformers", lambda: of_transformers("gpt2", "GPT2Config", "GPT2Attention", n_embd=D, n_head=H)),
    "Llama's attention": (
        "transformers", lambda: of_transformers(
            "llama", "LlamaConfig", "LlamaAttention", num_key_value_heads=2, **SIZES)),
    "mha_numpy's scaled_dot_product_attention": ("mha_numpy", lambda: scaled_dot_product_attention),
    "mha_numpy's MultiHeadAttention": ("mha_numpy", lambda: MultiHeadAttention(D, H, 2, rng=0)),
}  # fmt: skip


def found(name: str) -> dict[str, Any]:
    """Identify a library's attention, and return the datasheet as the file has it."""
    return pack(identify(SUBJECTS[name][1]()))


if __name__ == "__main__":
    sheets = {name: found(name) for name in SUBJECTS}
    versions = {name: version(name) for name, _ in SUBJECTS.values() if name != "mha_numpy"}
    lines = [f"{json.dumps(name)}: {json.dumps(sheet)}" for name, sheet in sheets.items()]
    text = f'{{"versions": {json.dumps(versions)},\n"sheets": {{\n' + ",\n".join(lines) + "\n}}\n"
    FILE.write_text(text, encoding="utf-8")
