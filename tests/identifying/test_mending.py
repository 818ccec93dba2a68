"""What to write instead of a line: edits of it are tried until the function is right."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.blaming.edits import Text, edits_of
from tests.sweeps import every


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def of_the_model(x, w_q, w_k, w_v, heads):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, T, heads, -1).swapaxes(1, 2) for w in (w_q, w_k, w_v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(D)
    return (softmax(scores) @ v).swapaxes(1, 2).reshape(B, T, D)


def over_heads(q, k, v):
    """q: (batch, heads, tokens, dim)"""
    e = np.exp(np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1]))
    w = e / e.sum(axis=1, keepdims=True)
    return np.einsum("bhqk,bhkd->bhqd", w, v)


def not_itself(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    i, j = np.ogrid[: q.shape[-2], : k.shape[-2]]
    return np.nan_to_num(softmax(np.where(j >= i, -np.inf, s))) @ v


def overflowing(q, k, v):
    e = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return e / e.sum(-1, keepdims=True) @ v


def swapped(q, k, v):
    return softmax(q @ v.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ k


def turned_round(q, k, v, visible):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(visible, -np.inf, s)) @ v


def unsplit(x, w_q, w_k, w_v, n_heads):
    B, T, D = x.shape
    q = (x @ w_q).reshape(B, n_heads, T, -1)
    k = (x @ w_k).reshape(B, n_heads, T, -1)
    v = (x @ w_v).reshape(B, n_heads, T, -1)
    out = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return out.swapaxes(1, 2).reshape(B, T, D)


def tiled(q, k, v):
    """Query head h reads key/value head h // (H / H_kv)."""
    g = q.shape[1] // k.shape[1]
    k, v = np.tile(k, (1, g, 1, 1)), np.tile(v, (1, g, 1, 1))
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize(
    ("function", "edit"),
    every(
        3,
        [
            (of_the_model, "scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])"),
            (over_heads, "w = e / e.sum(axis=-1, keepdims=True)"),
            (not_itself, "return np.nan_to_num(softmax(np.where(j > i, -np.inf, s))) @ v"),
            (
                overflowing,
                "scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]); "
                "e = np.exp(scores - scores.max(axis=-1, keepdims=True))",
            ),
            (swapped, "return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v"),
            (turned_round, "return softmax(np.where(visible, s, -np.inf)) @ v"),
            (tiled, "k, v = np.repeat(k, g, axis=1), np.repeat(v, g, axis=1)"),
        ],
    ),
)
def test_the_line_is_mended(function, edit):
    sheet = identify(function)
    row = next(row for row in sheet.mistakes if row.line)
    assert row.edit == edit
    assert f"then is: {edit[:20]}" in str(sheet)
    assert edit[:8] in sheet.to_html()


def test_lines_that_need_the_same_are_named():
    [row] = identify(unsplit).mistakes
    start = unsplit.__code__.co_firstlineno
    assert row.edit == (
        "q = (x @ w_q).reshape(B, T, n_heads, -1).swapaxes(1, 2) "
        f"(the same in line {start + 3} and {start + 4})"
    )


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("s = (s + bias) / d", "s = s / d + bias"),
        ("m = np.tril(np.ones((T, S)))", "m = np.tril(np.ones((T, S)), k=S - T)"),
        ("m = m[:, None, :, None]", "m = m[:, None, None, :]"),
        ("k = k.repeat(1, g, 1, 1)", "k = k.repeat_interleave(g, dim=1)"),
        ("s = s - s.max()", "s = s - s.max(axis=-1, keepdims=True)"),
        ("k, q, v = split(x)", "q, k, v = split(x)"),
        ("é = a >= b", "é = a > b"),
    ],
)
def test_edits_that_people_make(line, new):
    text = Text(f"def f(x):\n    {line}\n")
    assert new in [text.edited(edits).splitlines()[1].strip() for edits in edits_of(text, 2)]
