"""Datasheets of libraries, and how others differ from them."""

import numpy as np
import pytest

from mha_numpy import scaled_dot_product_attention
from mha_numpy.errors import ConfigError
from mha_numpy.identifying import identify
from mha_numpy.identifying.reporting.datasheet import Findings
from mha_numpy.identifying.reporting.libraries import (
    FILE,
    compare_with,
    in_words,
    libraries,
    nearest,
)
from mha_numpy.identifying.reporting.rows import make_row

TORCHS = "PyTorch's scaled_dot_product_attention"


def attend(query, key, value, attn_mask=None, is_causal=False, scale=None):
    if query.shape[1] % key.shape[1] or not key.size:
        return scaled_dot_product_attention(query, key, value)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat(groups, 1), value.repeat(groups, 1)
    scores = query @ key.swapaxes(-1, -2) * scale
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]), scores, -np.inf)
    if attn_mask is not None and attn_mask.dtype == bool:
        scores = np.where(attn_mask, scores, -np.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ value


@pytest.fixture(scope="module")
def sheet():
    return identify(attend)


def test_a_function_that_differs_in_one_row_differs_in_it(sheet):
    near = nearest(sheet)
    assert near.in_short() == f"Differs from {TORCHS} in: a query with no keys left."
    assert near.lines() == [("a query with no keys left", "NaN", "PyTorch: zeros")]


def test_the_rows_that_differ(sheet):
    [(own, there)] = compare_with(sheet, TORCHS)
    assert (own.value, there.value, own.argument) == ("nan", "zeros", "attn_mask")
    of_jax = compare_with(sheet, "JAX's dot_product_attention")
    assert {"queries", "float mask"} <= {own.name for own, _ in of_jax}


def test_what_is_not_said_is_usual():
    sheets = libraries()
    differing = compare_with(sheets["BERT's attention"], "Llama's attention")
    assert ("", "halves") in [(own.value, there.value) for own, there in differing]


def test_rows_of_arguments_are_compared_with_those_of_any_argument(sheet):
    rows = make_row("blind", "zeros"), make_row("window_given", "w both"), make_row("alignment", "")
    assert not compare_with(sheet._replace(rows=rows[:2]), TORCHS)
    assert [own.name for own, _ in compare_with(sheet._replace(rows=rows), TORCHS)] == ["alignment"]


def test_what_is_not_found_is_near_to_nothing():
    assert nearest(Findings("attend", "numpy", False, "")) is None


def test_what_differs_in_nothing_is_a_drop_in():
    found = libraries()["PyTorch's MultiheadAttention"]
    assert nearest(found._replace(name="mine")).in_short() == (
        "A drop-in for PyTorch's MultiheadAttention."
    )


def test_a_library_that_is_not_known(sheet):
    with pytest.raises(ConfigError, match="there is none with the name 'torch'"):
        compare_with(sheet, "torch")


def test_the_text_says_what_libraries_do(sheet):
    text = str(sheet)
    words = " ".join(text.split())
    assert "NaN (PyTorch, ONNX, mha_numpy: zeros; Keras, JAX: mean of all values)" in words
    assert f"Differs from {TORCHS} in: " in words
    assert "Here, PyTorch means scaled_dot_product_attention, Keras means Multi" in words
    assert "Compared with PyTorch a query with no keys left NaN PyTorch: zeros" in words
    assert max(map(len, text.splitlines())) <= 100
    rows = {row["setting"]: row["libraries"] for row in sheet.to_dict()["rows"]}
    assert rows["blind"]["JAX"] == "mean of all values"


def test_the_file_is_small():
    assert FILE.stat().st_size < 40_000


class Layer:
    def __init__(self, width=32, heads=4):
        rng = np.random.default_rng(0)
        self.heads = heads
        self.w_q, self.w_k, self.w_v, self.w_o = rng.normal(size=(4, width, width)) / 5

    def forward(self, x, lengths=None):
        B, T, D = x.shape
        q, k, v = (
            (x @ w).reshape(B, T, self.heads, -1).swapaxes(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if lengths is not None:
            hidden = np.arange(T) >= lengths[:, None]
            scores = np.where(hidden[:, None, :, None], -1e9, scores)  # queries, not keys
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads = weights / weights.sum(-1, keepdims=True) @ v
        return heads.swapaxes(1, 2).reshape(B, T, D) @ self.w_o


def test_a_mistake_is_among_what_differs():
    sheet = identify(Layer())
    near = nearest(sheet)
    assert near.in_short().startswith("Differs from PyTorch's MultiheadAttention in: ")
    assert any(row.name == "lengths" and not there for row, there in near.rows)
    assert "lengths" in near.in_short()
    assert [row.name for row in sheet.mistakes] == ["lengths"]


def test_what_heads_give_is_before_the_projection_of_a_layer():
    class Cross(Layer):
        def forward(self, x, memory):
            q, k, v = (
                (a @ w).reshape(*a.shape[:2], self.heads, 8).swapaxes(1, 2)
                for a, w in ((x, self.w_q), (memory, self.w_k), (memory, self.w_v))
            )
            return scaled_dot_product_attention(q, k, v).swapaxes(1, 2).reshape(x.shape) @ self.w_o

    says = [row.says for row in identify(Cross()).rows if row.setting == "no_keys"]
    assert says == ["zeros, before the output projection"]


def test_when_a_library_drops_is_said_in_words():
    own, there = make_row("dropout_when", "in train()"), make_row("dropout_when", "if True", "t")
    assert in_words(own, {"Keras": there}) == "Keras: only if t is True"


class Grouped:
    """Heads in groups, tiled, with one map for all."""

    def __init__(self, dim, num_heads, num_kv_heads):
        self.num_heads, self.num_kv_heads, self.d = num_heads, num_kv_heads, dim // num_heads
        rng = np.random.default_rng(0)
        wide = (num_heads + 2 * num_kv_heads) * self.d
        self.wqkv = rng.normal(size=(dim, wide)) / np.sqrt(dim)

    def __call__(self, x):
        H, G, d = self.num_heads, self.num_kv_heads, self.d
        q, k, v = np.split(x @ self.wqkv, [H * d, (H + G) * d], -1)
        q, k, v = (a.reshape(*a.shape[:2], -1, d).swapaxes(1, 2) for a in (q, k, v))
        k, v = (np.tile(a, (1, H // G, 1, 1)) for a in (k, v))
        out = scaled_dot_product_attention(q, k, v)
        return out.swapaxes(1, 2).reshape(*x.shape[:2], -1)


def test_what_a_library_does_not_have_is_not_compared():
    sheet = identify(Grouped)
    near = nearest(sheet)
    assert sheet.value("grouping") == "tile"
    assert near.library == "PyTorch's MultiheadAttention"
    assert "grouping" not in [row.setting for row, _ in near.rows]
    assert "mha_numpy: h // (H / H_kv))" in " ".join(str(sheet).split())
    assert {each.name: each.axes for each in sheet.arguments}["wqkv"] == "(D, (H+2*H_kv)*d_k)"


def test_a_base_is_not_compared_where_nothing_is_rotated():
    turned = Findings(
        "f", "numpy", True, "",
        rows=(make_row("rotation", "halves"), make_row("base", 100.0)),
    )  # fmt: skip
    theirs = {name: compare_with(turned, name) for name in (TORCHS, "Llama's attention")}
    told = {name: [row.setting for row, _ in rows] for name, rows in theirs.items()}
    assert "rotation" in told[TORCHS]
    assert "base" not in told[TORCHS]
    assert "base" in told["Llama's attention"]
