"""A cache that is passed back: right ones agree with one call, and mistakes are named."""

import numpy as np
import pytest

from mha_numpy.identifying import identify

MISTAKES = ("differs", "not used", "positions", "order", "top left", "no mask")
SOURCE = """
def rotate(x, at):
    half = x.shape[-1] // 2
    angle = at[:, None] * 10000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           a * np.sin(angle) + b * np.cos(angle)], -1)

def attend(q, k, v, cache=None):
    old = 0 if cache is None else len(cache[0][0, 0])
    at = old + np.arange(q.shape[2])
    q, k = rotate(q, at), rotate(k, at)
    if cache is not None:
        k = np.concatenate([cache[0], k], 2)
        v = np.concatenate([cache[1], v], 2)
    s = q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5
    s = np.where(np.arange(k.shape[2]) > old + np.arange(len(at))[:, None], -np.inf, s)
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True) @ v, (k, v)
"""


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("", "", "as all at once"),
        ("(k, v)\n", "np.stack([k, v])\n", "as all at once"),
        ("at = old + ", "at = ", "positions"),
        ("[cache[0], k]", "[k, cache[0]]", "order"),
        ("> old + ", "> ", "top left"),
        ("s = np.where(", "s = s if old else np.where(", "no mask"),
        ("[cache[1], v]", "[cache[1] * 2, v]", "differs"),
        ("None):", "None):\n    cache = None", "not used"),
        ("(k, v)\n", "len(v)\n", "not tried"),
    ],
)
def test_cache_is_passed_back(old, new, value):
    home = {"np": np}
    exec(SOURCE.replace(old, new, 1) if old else SOURCE, home)
    sheet = identify(home["attend"])
    assert sheet.value("cache") == value
    assert [row.setting for row in sheet.mistakes] == (["cache"] if value in MISTAKES else [])


def unpacking(x, w_qkv, n_head, past=None):
    if past is not None:
        pk, pv = past
        past = [pk, pv]
    return decode(x, w_qkv, n_head, past)


def decode(x, w_qkv, n_head, past=None):
    B, T, D = x.shape
    q, k, v = (a.reshape(B, T, n_head, -1).swapaxes(1, 2) for a in np.split(x @ w_qkv, 3, -1))
    if past is not None:
        k = np.concatenate([past[0], k], axis=2)
        v = np.concatenate([v, past[1]], axis=2)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(T, k.shape[2], k.shape[2] - T), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, D), (k, v)


def test_the_line_of_a_cache_is_mended():
    sheet = identify(decode)
    [row] = sheet.mistakes
    assert sheet.arguments[-1].what == "keys and values of earlier tokens"
    assert (row.setting, row.value) == ("cache", "order")
    assert row.edit == "v = np.concatenate([past[1], v], axis=2)"


def test_a_cache_may_be_unpacked():
    sheet = identify(unpacking)
    assert [row.value for row in sheet.mistakes] == ["order"]
    assert {each.what for each in sheet.arguments[-2:]} == {"keys and values of earlier tokens"}


def test_flag_that_asks_for_the_cache():
    class Attention:
        def __init__(self, n_head=4):
            self.c_attn, self.n_head = np.random.default_rng(0).normal(size=(24, 72)) / 5, n_head

        def __call__(self, x, layer_past=None, use_cache=False):
            q, k, v = (
                np.stack(np.split(part, self.n_head, -1), 1)
                for part in np.split(x @ self.c_attn, 3, -1)
            )
            if layer_past:
                k, v = (np.concatenate(pair, 2) for pair in zip(layer_past, (k, v), strict=True))
            a = np.exp(q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5)
            y = np.concatenate([*np.moveaxis(a / a.sum(-1, keepdims=True) @ v, 1, 0)], -1)
            return (y, (k, v)) if use_cache else y

    assert identify(Attention()).value("cache") == "as all at once"
