"""Windows, and packed documents: what docs/conventions.md says, computed by running libraries."""

import os
import re

import numpy as np
import pytest

from mha_numpy import attention_forward, causal_mask
from mha_numpy.core import document_ids, document_mask, document_positions
from tests.notebooks.cells import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # their own

T, AT = 13, 6  # tokens, and the query that is looked at
PAGE = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## Windows")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| (.*?) \| `([^`]*)` \| (\d+) \| `window=\((\d), (\d)\)` \|$", TABLE, re.M)
X = np.zeros((1, 1, T, T))  # equal scores: each key that is seen has the same weight
V = np.eye(T)[None, None]  # so that the output is the weights


def options_of(written):
    """Return what is written in a row, as keyword arguments."""
    return eval(f"dict({written})")


def of_model(kind, **sizes):
    """Return the weights of a layer of a tiny model in transformers."""
    transformers = pytest.importorskip("transformers")

    def weights(inputs=None, **options):
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, attn_implementation="eager", pad_token_id=0, **sizes, **options,
        )  # fmt: skip
        import torch

        model = getattr(transformers, f"{kind}Model")(config).eval()
        ids = torch.ones((1, T), dtype=int)
        with torch.no_grad():
            found = model(ids, output_attentions=True, **(inputs or {}))
        return found.attentions[0][0, 0].numpy()

    return weights


def of_gemma_3(**options):
    layers = {"layer_types": ["sliding_attention"], "head_dim": 4}
    return of_model("Gemma3Text", num_key_value_heads=1, **layers)(**options)


def of_gpt_oss(**options):
    layers = {"layer_types": ["sliding_attention"], "head_dim": 4, "num_local_experts": 2}
    return of_model("GptOss", num_key_value_heads=1, num_experts_per_tok=1, **layers)(**options)


def of_modern_bert(**options):
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    return of_model("ModernBert", layer_types=["sliding_attention"], **ids)(**options)


def of_keras(use_causal_mask=False, **options):
    pytest.importorskip("torch")
    os.environ["KERAS_BACKEND"] = "torch"
    keras = pytest.importorskip("keras")
    layer = keras.layers.MultiHeadAttention(2, 4, **options)
    x = np.zeros((1, T, 4), np.float32)
    _, weights = layer(x, x, return_attention_scores=True, use_causal_mask=use_causal_mask)
    return weights.detach().numpy()[0, 0]


def of_jax(**options):
    jax = pytest.importorskip("jax")
    q, v = (np.swapaxes(x, 1, 2).astype(np.float32) for x in (X, V))
    return np.asarray(jax.nn.dot_product_attention(q, q, v, **options))[0, :, 0]


def of_onnx(**options):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["out"], **options)
    info = [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("q", "k", "v", "out")]
    graph = onnx.helper.make_graph([node], "g", info[:3], info[3:])
    opsets = [onnx.helper.make_opsetid("", 25)]
    run = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets)).run
    q, v = X.astype(np.float32), V.astype(np.float32)
    return run(None, {"q": q, "k": q, "v": v})[0][0, 0]


def of_onnx_runtime(**options):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total"]
    node = onnx.helper.make_node(
        "GroupQueryAttention", names, ["out", "present_key", "present_value"],
        domain="com.microsoft", num_heads=1, kv_num_heads=1, **options,
    )  # fmt: skip
    query, value = (np.pad(x[0], ((0, 0), (0, 0), (0, 3))).astype(np.float32) for x in (X, V))
    past = np.zeros((1, 1, 0, T + 3), np.float32)
    arrays = [query, query, value, past, past, np.array([T - 1], np.int32), np.array([T], np.int32)]
    kinds = {"float32": onnx.TensorProto.FLOAT, "int32": onnx.TensorProto.INT32}
    info = [
        onnx.helper.make_tensor_value_info(name, kinds[array.dtype.name], array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    out = [onnx.helper.make_tensor_value_info(name, 1, None) for name in node.output]
    graph = onnx.helper.make_graph([node], "g", info, out)
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, arrays, strict=True)))[0][0]


def of_attention_gym(window_size):
    torch = pytest.importorskip("torch")
    masks = pytest.importorskip("attn_gym.masks")
    from torch.nn.attention.flex_attention import create_mask

    mask = create_mask(masks.generate_sliding_window(window_size), 1, 1, T, T, device="cpu")
    return mask[0, 0].to(torch.float32).numpy()


LIBRARIES = {
    "mha_numpy": lambda **options: attention_forward(X, X, V, **options)[1].weights[0, 0],
    "transformers, Mistral": of_model("Mistral", num_key_value_heads=1),
    "transformers, Gemma 3": of_gemma_3,
    "transformers, gpt-oss": of_gpt_oss,
    "transformers, ModernBERT": of_modern_bert,
    "Keras `MultiHeadAttention`": of_keras,
    "JAX `dot_product_attention`": of_jax,
    "ONNX `Attention` (25)": of_onnx,
    "ONNX Runtime `GroupQueryAttention`": of_onnx_runtime,
    "attention-gym `generate_sliding_window`": of_attention_gym,
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_a_window_is_as_the_table_says(row):
    who, written, keys, left, right = row
    seen = np.flatnonzero(LIBRARIES[who](**options_of(written))[AT] > 1e-6)
    assert (len(seen), AT - seen[0], seen[-1] - AT) == (int(keys), int(left), int(right))


def test_every_library_has_a_row():
    assert {row[0] for row in ROWS} == set(LIBRARIES)
    assert len(ROWS) == TABLE.count("\n| ") - 1


def test_transformers_tells_documents_by_positions_but_not_if_it_fills_a_cache():
    torch = pytest.importorskip("torch")
    ids = document_ids(np.array([AT, T - AT]))
    inputs = {"position_ids": torch.tensor(document_positions(ids))[None], "use_cache": False}
    expected = document_mask(ids) & causal_mask(T)
    np.testing.assert_array_equal(of_model("Llama")(inputs) > 0, expected)
    np.testing.assert_array_equal(
        of_model("Llama")(inputs | {"use_cache": True}) > 0, causal_mask(T)
    )
