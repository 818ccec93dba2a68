"""A cache that is passed back: right ones agree with one call, and mistakes are named."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.reporting.report import verdict

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


def turned(x, w_qkv, n_head, past=None):
    B, T, D = x.shape
    q, k, v = (a.reshape(B, T, n_head, -1).swapaxes(1, 2) for a in np.split(x @ w_qkv, 3, -1))
    start = 0 if past is None else past[0].shape[1]
    at = start + np.arange(T)
    angles = at[:, None] / 1e4 ** (np.arange(0, D // n_head, 2) / (D // n_head))
    c, s = (np.concatenate([a, a], -1) for a in (np.cos(angles), np.sin(angles)))
    q, k = (
        x * c
        + s
        * np.concatenate(np.split(x, 2, -1)[::-1], -1)
        * np.where(np.arange(D // n_head) < D // n_head // 2, -1, 1)
        for x in (q, k)
    )
    if past is not None:
        k, v = (np.concatenate(pair, axis=2) for pair in zip(past, (k, v), strict=True))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(T, k.shape[2], k.shape[2] - T), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, D), (k, v)


def test_the_line_of_positions_after_a_cache():
    [row] = identify(turned).mistakes
    assert (row.value, row.code) == ("positions", "at = start + np.arange(T)")


def test_a_cache_may_be_unpacked():
    sheet = identify(unpacking)
    assert [row.value for row in sheet.mistakes] == ["order"]
    last = sheet.arguments[-1]
    assert (last.name, last.what) == ("past", "keys and values of earlier tokens")


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


def written_into(x, w_qkv, n_head, cache=None):
    B, T, D = x.shape
    q, k, v = (a.reshape(B, T, n_head, -1).swapaxes(1, 2) for a in np.split(x @ w_qkv, 3, -1))
    if cache is not None:
        if "k" in cache:
            k = np.concatenate([cache["k"], k], axis=2)
            v = np.concatenate([cache["v"], v], axis=2)
        cache["k"], cache["v"] = k, v
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(T, k.shape[2]), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, D)


def test_a_dict_that_is_written_into_is_passed_again():
    [row] = identify(written_into).mistakes
    assert (row.setting, row.value, row.argument) == ("cache", "top left", "cache")
    assert row.code.startswith("scores = np.where(np.tri(T, k.shape[2])")


class Growing:
    """Causal attention; keys and values of earlier calls stay."""

    def __init__(self):
        self.past = None

    def __call__(self, x, w_qkv, n_head):
        B, T, D = x.shape
        q, k, v = (a.reshape(B, T, n_head, -1).swapaxes(1, 2) for a in np.split(x @ w_qkv, 3, -1))
        if self.past is not None:
            k = np.concatenate([self.past[0], k], axis=2)
            v = np.concatenate([self.past[1], v], axis=2)
        self.past = k, v
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(T, k.shape[2]), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, D)


def test_the_line_after_an_earlier_call_of_an_object():
    [row] = identify(Growing()).mistakes
    assert (row.setting, row.value) == ("cache", "top left")
    assert row.code.startswith("scores = np.where(np.tri(T, k.shape[2])")


def test_a_dict_that_gets_other_arrays_is_filled():
    def again(q, k, v, cache):
        cache["k"] = np.concatenate([cache["k"], k], axis=2)
        cache["v"] = np.concatenate([cache["v"], v], axis=2)
        scores = q @ cache["k"].swapaxes(2, 3) / np.sqrt(q.shape[-1])
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ cache["v"]

    filled = [row.argument for row in identify(again).rows if row.value == "filled"]
    assert filled == ["cache['k']", "cache['v']"]


UNKNOWN = SOURCE.replace("cache", "mem")  # a name that says nothing


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("", "", "as all at once"),
        ("at = old + ", "at = ", "positions"),
        ("> old + ", "> ", "top left"),
        ("[mem[1], v]", "[mem[1] * 2, v]", "differs"),  # what comes back grows all the same
        ("(k, v)\n", "len(v)\n", None),
        ("(k, v)\n", "a\n", None),  # weights are no cache
        ("None):", "None):\n    mem = None", None),
    ],
)
def test_a_cache_has_any_name(old, new, value):
    home = {"np": np}
    exec(UNKNOWN.replace(old, new, 1) if old else UNKNOWN, home)
    sheet = identify(home["attend"])
    assert sheet.value("cache") == value
    assert [row.setting for row in sheet.mistakes] == (["cache"] if value in MISTAKES else [])
    whats = {each.what for each in sheet.arguments if each.name.startswith("mem")}
    assert ("keys and values of earlier tokens" in whats) == (value is not None)


def test_a_cache_of_a_module_has_any_name():
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.c_attn = torch.nn.Linear(24, 72)

        def forward(self, x, dropout=None, mem=None):
            q, k, v = self.c_attn(x).split(24, -1)
            if mem is not None:
                k, v = torch.cat([k, mem["k"]], 1), torch.cat([mem["v"], v], 1)
            a = q @ k.mT / 24**0.5
            a = a.masked_fill(torch.ones_like(a).triu(1 + a.shape[-1] - a.shape[-2]) > 0, -1e9)
            return a.softmax(-1) @ v, {"v": v, "k": k}

    [row] = identify(Attention()).mistakes
    assert (row.setting, row.value, row.argument) == ("cache", "order", "mem")


def counting(q, k, v, mem=None):
    old = 0
    if mem is not None:
        ko, vo, old = mem
        k, v = np.concatenate([ko, k], 2), np.concatenate([vo, v], 2)
    s = q @ k.swapaxes(2, 3) / q.shape[3] ** 0.5
    s = np.where(np.arange(k.shape[2]) > old + np.arange(q.shape[2])[:, None], -np.inf, s)
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True) @ v, (k, v, k.shape[2])


def test_a_cache_with_more_than_keys_and_values_is_passed_whole():
    assert identify(counting).value("cache") == "as all at once"


def test_an_argument_that_is_no_cache():
    def attend(q, k, v, memo=None):
        if memo is not None:
            v = v * memo[1].mean() + memo[0].sum()
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        a = np.exp(s - s.max(-1, keepdims=True))
        return a / a.sum(-1, keepdims=True) @ v, (k, v)

    sheet = identify(attend)
    assert sheet.value("cache") is None
    assert not sheet.mistakes
    assert verdict(sheet) == "Nothing looks like a mistake, but what memo does was not found out."


def alone(z):
    n, d = z.shape[-2:]
    rates = 1.0 / 10000 ** (np.arange(0, d, 2) / d)
    angles = np.outer(np.arange(n), rates)
    c, s = np.cos(angles), np.sin(angles)
    a, b = z[..., : d // 2], z[..., d // 2 :]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def streaming(new, w_qkv, n_head, mem=None):
    B, T, D = new.shape
    q, k, v = (a.reshape(B, T, n_head, -1).swapaxes(1, 2) for a in np.split(new @ w_qkv, 3, -1))
    q, k = alone(q), alone(k)
    if mem is not None:
        k, v = (np.concatenate(pair, axis=2) for pair in zip(mem, (k, v), strict=True))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(T, k.shape[2], k.shape[2] - T), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(B, T, D), (k, v)


def test_positions_are_to_blame_and_not_the_frequencies():
    """The angles at position 1 are the frequencies, which are right."""
    [row] = identify(streaming).mistakes
    assert (row.value, row.code) == ("positions", "angles = np.outer(np.arange(n), rates)")
