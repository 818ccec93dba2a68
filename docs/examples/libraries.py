"""Write mha_numpy/identifying/reporting/libraries.json, and from it docs/conventions.md's tables.

python docs/examples/libraries.py
"""

import json
import os
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy import MultiHeadAttention, scaled_dot_product_attention
from mha_numpy.identifying import identify
from mha_numpy.identifying.reporting.libraries import FILE, INPUTS, keys_of, libraries, pack

PAGE = Path(__file__).parents[1] / "conventions.md"
D, H = 32, 4


def of_torch(layer: bool = False) -> Any:
    import torch

    if not layer:
        return torch.nn.functional.scaled_dot_product_attention
    return torch.nn.MultiheadAttention(D, H, batch_first=True)


def of_keras(name: str, *heads: int) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras  # type: ignore[import-untyped]

    layer = getattr(keras.layers, name)(*heads, dropout=0.1, dtype="float64")
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

    def attention(  # type: ignore[no-untyped-def]
        Q, K, V, attn_mask=None, is_causal=False, scale=None, softcap=0.0, left_window_size=-1,
        right_window_size=-1,
    ):  # fmt: skip
        given = {"Q": Q, "K": K, "V": V} | ({} if attn_mask is None else {"attn_mask": attn_mask})
        options = {
            "scale": scale,
            "softcap": softcap,
            "is_causal": int(is_causal),
            "left_window_size": left_window_size,
            "right_window_size": right_window_size,
        }
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
of_bert = partial(of_transformers, "bert", "BertConfig", "BertSelfAttention", **SIZES)
of_gpt2 = partial(of_transformers, "gpt2", "GPT2Config", "GPT2Attention", n_embd=D, n_head=H)
of_llama = partial(
    of_transformers, "llama", "LlamaConfig", "LlamaAttention", num_key_value_heads=2, **SIZES
)
SUBJECTS: dict[str, tuple[str, Callable[[], Any]]] = {  # each with the package that it is from
    "mha_numpy's scaled_dot_product_attention": ("mha_numpy", lambda: scaled_dot_product_attention),
    "mha_numpy's MultiHeadAttention": ("mha_numpy", lambda: MultiHeadAttention(D, H, 2, rng=0)),
    "PyTorch's scaled_dot_product_attention": ("torch", of_torch),
    "PyTorch's MultiheadAttention": ("torch", lambda: of_torch(layer=True)),
    "Keras's MultiHeadAttention": ("keras", lambda: of_keras("MultiHeadAttention", H, 8)),
    "Keras's GroupQueryAttention": ("keras", lambda: of_keras("GroupQueryAttention", 8, H, 2)),
    "JAX's dot_product_attention": ("jax", of_jax),
    "ONNX's Attention": ("onnx", of_onnx),
    "BERT's attention": ("transformers", of_bert),
    "GPT-2's attention": ("transformers", of_gpt2),
    "Llama's attention": ("transformers", of_llama),
}


# what the tables of the page say, but no call shows
BY_HAND: dict[str, list[tuple[str, ...]]] = {
    "masks": [
        ("PyTorch `nn.Transformer*`", "`*_mask`, `*_key_padding_mask`", "**blocked**"),
        (
            "Hugging Face tokenizers (integers)",
            "`attention_mask`",
            "1 = a real token, may be attended to",
        ),
        ("older TensorFlow tutorials (floats, times -1e9)", "`mask`", "1 = **blocked**"),
    ],
    "causality": [
        (
            "bottom-right",
            "`q_offset=T_k - T_q`",
            "flash-attn from version 2.1; PyTorch's `causal_lower_right`",
        ),
        (
            "with a KV cache",
            "`q_offset=` the number of earlier keys",
            "the decode step here, and ONNX with past keys",
        ),
    ],
}
BLIND = {  # of a row without keys: what else is known
    "mha_numpy's scaled_dot_product_attention": "weights and gradients are 0, lse is -inf",
    "PyTorch's MultiheadAttention": "weights are NaN; the output is 0 only with "
    "`need_weights=False` outside the fast inference path",
    "Keras's MultiHeadAttention": "on the PyTorch and JAX backends; 0 with "
    "`return_attention_scores=True`; weights are 0",
    "ONNX's Attention": "weights are 0",
}
LAYOUTS = {  # returned weights; grouped heads and d_v != d_k where no call shows them
    "mha_numpy's scaled_dot_product_attention": ("on request: per head, before dropout",),
    "mha_numpy's MultiHeadAttention": (
        "on request: per head, before dropout",
        "repeat, h // G, `num_kv_heads`",
        "yes",
    ),
    "PyTorch's scaled_dot_product_attention": ("none",),
    "PyTorch's MultiheadAttention": (
        "**averaged over heads** by default, **after dropout**",
        "no",
        "no",
    ),
    "Keras's MultiHeadAttention": ("per head, before dropout", "no", "yes"),
    "Keras's GroupQueryAttention": ("per head, before dropout", "repeat", "no"),
    "JAX's dot_product_attention": ("none",),
    "ONNX's Attention": ("scores at a stage of your choice",),
}
AXES = {
    "PyTorch's MultiheadAttention": " with `batch_first=True`, else (T_q, B, D)",
    "ONNX's Attention": " or (B, T_q, H*d_k)",
}
MEANS = {
    "true = visible": "may attend",
    "true = blocked": "**blocked**",
    "error": "refused",
    "added": "added to the scores",
    "added after the scale": "added to the scores",
    "not 0 is True": "cast to bool: 0.0 hides, -1e9 lets through, the opposite of what an additive "
    "mask means",
    "nan": "NaN",
    "zeros": "0",
    "mean of all values": "the mean of the values",
}


def who(name: str) -> str:
    library, function = name.split("'s ")
    return f"{library} in transformers" if function == "attention" else f"{library} `{function}`"


def by_argument(*settings: str) -> list[tuple[str, ...]]:
    """Return rows of a table: a library, its arguments, and what rows of a setting say of them."""
    table: list[tuple[str, ...]] = []
    for name, sheet in libraries().items():
        groups: dict[str, list[str]] = {}
        for row in sheet.rows:
            if row.setting in settings and row.argument and row.value in MEANS:
                groups.setdefault(MEANS[row.value], []).append(f"`{row.argument}`")
        table += [(who(name), ", ".join(names), means) for means, names in groups.items()]
    return table


def layouts() -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for name, hand in LAYOUTS.items():
        inputs = [each for each in libraries()[name].arguments if each.what in INPUTS]
        groups = [row for row in libraries()[name].rows if row.setting == "groups"]
        flag = f", `{groups[0].argument}=True`" if groups and groups[0].argument else ""
        table.append(
            (
                who(name),
                ", ".join(f"`{each.name}`" for each in inputs),
                inputs[0].axes + AXES.get(name, ""),
                hand[0],
                hand[1] if hand[1:] else f"repeat{flag}" if groups[0].value == "taken" else "no",
                hand[2] if hand[1:] else "yes" if "d_v" in inputs[2].axes else "no",
            )
        )
    return table


def tables() -> dict[str, str]:
    """Return the tables of the page by name."""
    top_left = [
        name.split("'s ")[0]
        for name, sheet in libraries().items()
        for key, row in zip(keys_of(sheet, sheet.rows), sheet.rows, strict=True)
        if key == ("alignment", "switches causality") and row.value == "top left"
    ]
    also = {who(name): text for name, text in BLIND.items()}
    rows: dict[str, list[tuple[str, ...]]] = {
        "masks": [("who", "argument", "True means"), *by_argument("mask"), *BY_HAND["masks"]],
        "floats": [("who", "argument", "a float mask is"), *by_argument("float_mask", "bias")],
        "causality": [
            ("alignment", "here", "who has it by default"),
            (
                "top-left",
                "`q_offset=0`, the default",
                ", ".join(dict.fromkeys(top_left)) + " (without a cache)",
            ),
            *BY_HAND["causality"],
        ],
        "blind": [
            ("who", "hidden by", "output", "also"),
            *((*row, also.get(row[0], "")) for row in by_argument("blind")),
        ],
        "layouts": [
            (
                "who",
                "arguments, in order",
                "queries",
                "returned weights",
                "grouped heads",
                "d_v != d_k",
            ),
            *layouts(),
        ],
    }
    return {
        name: "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))
        for name, (head, *body) in rows.items()
    }


def page() -> str:
    """Return docs/conventions.md with its tables."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        start, end = (
            f"<!-- {name}: docs/examples/libraries.py writes this table -->\n",
            "\n<!-- end -->",
        )
        before, _, rest = text.partition(start)
        text = before + start + table + end + rest.partition(end)[2]
    return text


def found(name: str) -> dict[str, Any]:
    """Identify a library's attention, and return the datasheet as the file has it."""
    return pack(identify(SUBJECTS[name][1]()))


if __name__ == "__main__":
    sheets = {name: found(name) for name in SUBJECTS}
    versions = {name: version(name) for name, _ in SUBJECTS.values() if name != "mha_numpy"}
    lines = [f"{json.dumps(name)}: {json.dumps(sheet)}" for name, sheet in sheets.items()]
    text = f'{{"versions": {json.dumps(versions)},\n"sheets": {{\n' + ",\n".join(lines) + "\n}}\n"
    FILE.write_text(text, encoding="utf-8")
    libraries.cache_clear()
    PAGE.write_text(page(), encoding="utf-8")
