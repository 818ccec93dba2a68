"""What a datasheet says of special inputs is true, and missing from none."""

import numpy as np
import pytest

from mha_numpy.identifying import identify
from tests.sweeps import every


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def mix(scores, v):
    return softmax(scores / np.sqrt(8)) @ v


def square(q, k, v):
    """Take as many queries as keys, or one query."""
    T = q.shape[2]
    return mix(np.where(np.tri(T, dtype=bool), q @ k.swapaxes(-1, -2), -np.inf), v)


def strictly_square(q, k, v):
    assert q.shape == k.shape
    return square(q, k, v)


def loops(q, k, v):
    """Sum over keys up to the query's own, as linear attention does."""
    q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for t in range(q.shape[2]):
        weights = q[:, :, t, None] @ k[:, :, : t + 1].swapaxes(-1, -2)
        weights = weights / weights.sum(-1, keepdims=True)
        out[:, :, t] = (weights @ v[:, :, : t + 1])[:, :, 0]
    return out


def decode(q, k, v, window=4):
    T, S = q.shape[2], k.shape[2]
    distance = np.arange(T)[:, None] + S - T - np.arange(S)
    see = (distance >= 0) & (distance < window)
    return mix(np.where(see, q @ k.swapaxes(-1, -2), -np.inf), v)


def banded(q, k, v, w):
    i = np.arange(q.shape[2])
    distance = i[:, None] - i
    see = (distance >= 0) & (distance < w)
    return mix(np.where(see, q @ k.swapaxes(-1, -2), -np.inf), v)


def one_more(q, k, v, lens):
    see = np.arange(k.shape[2]) <= lens[:, None, None, None]
    return mix(np.where(see, q @ k.swapaxes(-1, -2), -np.inf), v)


def by_lengths(q, k, v, lens):
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for b, n in enumerate(lens):
        if n:
            out[b] = mix(q[b] @ k[b, :, :n].swapaxes(-1, -2), v[b, :, :n])
    return out


def largest_of_all(q, k, v, pad):
    scores = np.where(pad[:, None, None], -np.inf, q @ k.swapaxes(-1, -2)) / np.sqrt(8)
    e = np.exp(scores - scores.max())
    return e / e.sum(-1, keepdims=True) @ v


def in_float32(q, k, v):
    scores = (q @ k.swapaxes(-1, -2) / np.sqrt(8)).astype(np.float32)
    return softmax(scores).astype(q.dtype) @ v


def narrow_scores(q, k):
    return (q @ k.swapaxes(-1, -2)).astype(np.float32)


def by_helper(q, k, v):
    return mix(narrow_scores(q, k), v)


class Narrow:
    """A layer that narrows its inputs, with params in float64."""

    def __init__(self):
        self.w_q, self.w_k, self.w_v = np.random.default_rng(0).normal(size=(3, 8, 8))

    def __call__(self, x):
        x = x.astype("f4")
        w_q, w_k, w_v = (w.astype("f4") for w in (self.w_q, self.w_k, self.w_v))
        return mix(x @ w_q @ (x @ w_k).swapaxes(-1, -2), x @ w_v)


class Heads:
    def __init__(self):
        self.w_q, self.w_k, self.w_v = np.random.default_rng(0).normal(size=(3, 16, 16))

    def __call__(self, x):
        q, k, v = (
            (x @ w).reshape(*x.shape[:2], 2, 8).swapaxes(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        return mix(q @ k.swapaxes(-1, -2), v).swapaxes(1, 2).reshape(x.shape)


def grouped(q, k, v):
    k, v = (x.repeat(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return mix(q @ k.swapaxes(-1, -2), v)


def at_offset(q, k, v, start_pos=0):
    see = np.arange(k.shape[2]) <= start_pos + np.arange(q.shape[2])[:, None]
    return mix(np.where(see, q @ k.swapaxes(-1, -2), -np.inf), v)


def make_unstable():
    w_q, w_k, w_v = np.random.default_rng(0).normal(size=(3, 8, 8))

    def unstable(x):
        e = np.exp((x @ w_q) @ (x @ w_k).swapaxes(-1, -2) / np.sqrt(8))
        return e / e.sum(-1, keepdims=True) @ (x @ w_v)

    return unstable


def capped_late(q, k, v, attn_bias=None, cap=30.0):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    scores = scores if attn_bias is None else scores + attn_bias
    return softmax(cap * np.tanh(scores / cap)) @ v


def of_queries(q, k, v, pad=None):
    scores = q @ k.swapaxes(-1, -2)
    return mix(scores if pad is None else np.where(pad[:, None, :, None], -1e9, scores), v)


def zeroed(q, k, v, window):
    i, j = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], np.arange(k.shape[2])
    see = (j <= i) & (j > i - window)
    e = np.exp(np.where(see, q @ k.swapaxes(-1, -2), -np.inf)) * see
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-9) @ v


def by_blocks(q, k, v, causal=False, block=32):
    total, out = 0, 0
    for j in range(0, len(k), block):
        if causal and j > len(q) - 1:
            break
        s = q @ k[j : j + block].T
        see = np.arange(len(k))[j : j + block] <= np.arange(len(q))[:, None] if causal else True
        e = np.exp(np.where(see, s, -np.inf))
        total, out = total + e.sum(-1, keepdims=True), out + e @ v[j : j + block]
    return out / total


def by_tiles(q, k, v):
    """Leave out tiles that causality hides whole. All (T, d)."""
    out = np.zeros((len(q), v.shape[-1]))
    for i in range(0, len(q), 2):
        end = i + 2 + len(k) - len(q)
        s = q[i : i + 2] @ k[:end].T / np.sqrt(q.shape[-1])
        see = np.arange(len(k))[:end] <= np.arange(len(q))[i : i + 2, None] + len(k) - len(q)
        out[i : i + 2] = softmax(np.where(see, s, -np.inf)) @ v[:end]
    return out


class WithTable:
    def __init__(self):
        self.relative_position_index = np.arange(5)[:, None] - np.arange(5) + 4
        self.relative_position_bias_table = np.random.default_rng(0).normal(size=(9, 4))
        self.w_q, self.w_k, self.w_v = np.random.default_rng(1).normal(size=(3, 32, 32)) / 6

    def __call__(self, x, mask=None):
        table = self.relative_position_bias_table[self.relative_position_index]
        q, k, v = (
            (x @ w).reshape(*x.shape[:2], 4, 8).swapaxes(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        s = q @ k.swapaxes(-1, -2) / np.sqrt(8) + table.transpose(2, 0, 1)
        out = softmax(s if mask is None else s + mask[:, None]) @ v
        return out.swapaxes(1, 2).reshape(x.shape)


def over_queries(q, k, v):
    assert q.dtype == np.float32
    q[:] = mix(q @ k.swapaxes(-1, -2), v)
    return q


def over_the_first(x, w_q, w_k, w_v):
    """Take x of shape (batch, seq, dim), and attend over the batch."""
    q, k, v = (np.moveaxis(x @ w, 0, -2) for w in (w_q, w_k, w_v))
    return np.moveaxis(mix(q @ k.swapaxes(-1, -2), v), -2, 0)


def over_heads(q, k, v):
    s = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), q @ k.swapaxes(-1, -2), -1e9)
    return softmax(s.swapaxes(1, -1) / np.sqrt(8)).swapaxes(1, -1) @ v


def by_distance(q, k, v, table):
    """Add row (K - 1) / 2 + j - i of a table (K, H)."""
    most = (len(table) - 1) // 2
    distance = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    bias = table[most + distance.clip(-most, most)].transpose(2, 0, 1)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(8) + bias) @ v


@pytest.mark.parametrize(
    ("function", "setting", "value"),
    every(3, [
        (by_distance, "buckets", "j - i"), (over_heads, "hidden_nan", "spreads"),
        (over_the_first, "order", "tokens first"), (square, "order", None),
        (largest_of_all, "groups", "one"), (square, "groups", "one"),
        (over_queries, "inputs", "changed"),
        (square, "alignment", "one query"), (strictly_square, "alignment", "error"),
        (loops, "alignment", "top left"), (loops, "scale", "none"), (loops, "softmax_axis", None),
        (decode, "alignment", "bottom right"), (at_offset, "alignment", "top left"),
        (square, "hidden_nan", "spreads"), (banded, "blind", "nan"), (decode, "blind", "nan"),
        (one_more, "blind", None), (by_lengths, "no_keys", "zeros"), (one_more, "no_keys", "error"),
        (largest_of_all, "blind", "nan"), (in_float32, "sums", "float32"),
        (by_helper, "sums", "float32"), (Narrow(), "sums", "float32"),
        (grouped, "grouping", "repeat"), (square, "grouping", None),
        (capped_late, "blind", "mean of all values"), (capped_late, "hidden_nan", "spreads"),
        (by_tiles, "hidden_nan", "spreads"), (of_queries, "hidden_nan", "spreads"),
        (by_blocks, "hidden_nan", "spreads"),
        (zeroed, "no_keys", "zeros"), (make_unstable(), "large_scores", "not finite"),
    ]),
)  # fmt: skip
def test_facts(function, setting, value):
    assert identify(function).value(setting) == value


def test_what_is_stored_hides_nothing():
    sheet = identify(WithTable())
    assert [row.argument for row in sheet.rows if row.setting == "blind"] == ["mask"]
    assert (sheet.value("blind"), sheet.value("hidden_nan")) == ("nan", "spreads")


class Optional(Heads):
    def __call__(self, query, key=None, is_causal=False):
        key = query if key is None else key
        q, k, v = query @ self.w_q, key @ self.w_k, key @ self.w_v
        scores = q @ k.swapaxes(-1, -2) / 4
        see = np.tri(*scores.shape[-2:], dtype=bool) | (not is_causal)
        return softmax(np.where(see, scores, -np.inf)) @ v if key.size else 0 * q


def test_keys_that_may_be_passed_have_lengths_of_their_own():
    sheet = identify(Optional())
    assert (sheet.value("alignment"), sheet.value("no_keys")) == ("top left", "zeros")


def test_params_of_as_many_heads_say_so():
    axes = {each.what: each.axes for each in identify(Heads()).arguments}
    assert axes["params of the keys"] == "(D, H*d_k)"


def test_a_cap_is_at_one_place():
    said = [row.value for row in identify(capped_late).rows if row.setting == "softcap_at"]
    assert said == ["after the bias"]


def test_shapes_are_those_of_most_inputs():
    sheet = identify(decode)
    assert sheet.returns[0].axes == "(B, H, T_q, d_v)"
    assert identify(square).returns[0].axes == "(B, H, T_q, d_v)"


def test_a_small_number_is_not_said_to_change_nothing():
    def with_eps(q, k, v, eps=1e-9):
        e = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(8))
        return e / (e.sum(-1, keepdims=True) + eps) @ v

    assert [a.note for a in identify(with_eps).arguments if a.name == "eps"] == [""]


def test_the_mask_of_each_sequence_has_an_axis_of_sequences():
    def attend(q, k, v, mask):
        return mix(np.where(mask, q @ k.swapaxes(-1, -2), -np.inf), v)

    def single(q, k, v, mask):
        return mix(np.where(mask, np.einsum("btd,bsd->bts", q, k), -np.inf), v)

    assert identify(single).arguments[3].axes == "(B, T_q, T_k)"
    assert identify(attend).arguments[3].axes == "(B, H, T_q, T_k)"


def test_positive_floats_may_multiply_the_weights():
    def weighed(q, k, v, mass):
        scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        e = np.exp(scores - scores.max(-1, keepdims=True)) * mass[:, None]
        return e / e.sum(-1, keepdims=True) @ v

    assert identify(weighed).value("float_mask") == "weights"


def test_a_small_number_in_a_sum_is_no_narrow_dtype():
    def linear(q, k, v):
        q, k = np.maximum(q, 0), np.maximum(k, 0)
        return q @ (k.swapaxes(-1, -2) @ v) / (q @ k.sum(-2)[..., None] + 1e-6)

    sheet = identify(linear)
    assert sheet.is_found
    assert sheet.value("sums") in (None, "float64")
