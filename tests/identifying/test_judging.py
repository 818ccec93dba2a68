"""Promises that are not kept, and mistakes, each with the line that is to blame."""

import textwrap

import numpy as np
import pytest

from mha_numpy.identifying import identify
from tests.sweeps import every

SOFTMAX = """
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True) @ v
"""
ROTATE = """
def rotate(x):
    T, d = x.shape[-2:]
    a = np.arange(T)[:, None] / 1e4 ** (np.arange(0, d, 2) / d)
    x1, x2 = np.split(x, 2, axis=-1)
    return np.concatenate((x1 * np.cos(a) - x2 * np.sin(a), x1 * np.sin(a) + x2 * np.cos(a)), -1)

def rotate_{}(x):
    T, d = x.shape[-2:]
    a = np.arange(T)[:, None] / 1e4 ** (np.arange(0, d, 2) / d)
    x1, x2 = x[..., ::2], x[..., 1::2]
    return np.stack((x1 * np.cos(a) - x2 * np.sin(a), x1 * np.sin(a) + x2 * np.cos(a)),
                    -1).reshape(x.shape)
"""
MISTAKES = [  # code, the row's setting, and the line that is to blame
    ("""
def f(q, k, v, visible):
    "Queries that are left without a key return zeros."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(visible, s, -np.inf)""", "blind", "s = np.exp("),
    ("""
def f(q, k, v, visible):
    "Any floating dtype, half precision included."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = s + np.where(visible, 0, 1).astype(s.dtype) * -1e9""", "half_masked", "s = s + np"),
    ("""
def f(q, k, v, w):
    "All (T, d). Token i attends to the w tokens before it and to itself."
    i = np.arange(len(q))
    near = i[:, None] - i[None, :]
    s = q @ k.T / q.shape[-1] ** 0.5
    s = np.where((near >= 0) & (near < w), s, -np.inf)""", "window_given", "s = np.where("),
    ("""
def f(q, k, v, bias):
    "The bias is added to the scaled dot products as it is."
    s = q @ k.swapaxes(-1, -2)
    s = (s + bias) / q.shape[-1] ** 0.5""", "bias", "s = (s + bias)"),
    ("""
def f(q, k, v):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    e = np.exp(s - s.max())
    return e / e.sum(-1, keepdims=True) @ v
""", "uneven_scores", "e = np.exp("),
    ("""
def f(x, w_q, w_k, w_v, w_o, heads):
    "x (B, T, D)"
    q, k, v = (np.stack(np.split(x @ w, heads, -1), 1) for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    e = np.exp(s - s.max())
    o = e / e.sum(-1, keepdims=True) @ v
    return np.concatenate([*o.swapaxes(0, 1)], -1) @ w_o
""", "large_scores", "e = np.exp("),
    ("""
def f(q, k, v):
    "All (T, d)."
    m, n, o = np.zeros((3, len(q), 1))
    for j in range(len(k)):
        s = q @ k[j, :, None] / q.shape[-1] ** 0.5
        old, m = m, np.maximum(m, s)
        n, o = n * np.exp(old - m) + np.exp(s - m), o * np.exp(old - m) + np.exp(s - m) * v[j]
    return o / n  # @ v
""", "low_scores", "return o"),
    ("""
def f(q, k, v, mask=None):
    "mask (B, T_k), 1 for tokens"
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = s if mask is None else s - 1e4 * (1 - mask)[:, None, :, None]""", "mask", "s = s if"),
    ("""
def f(q, k, v, causal=False, cap=5.0):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(np.triu(np.ones(s.shape[-2:], bool), 1) & causal, -np.inf, s)
    s = cap * np.tanh(s / cap)""", "softcap_at", "s = cap"),
    ("""
def many(x, n):
    "torch.repeat_interleave(x, n, 1)"
    return np.tile(x, (1, n, 1, 1))

def f(q, k, v):
    k, v = (many(x, q.shape[1] // x.shape[1]) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "grouping", "return np.tile"),
    ("""
def f(q, k, v):
    kt = k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
    s = q @ kt / q.shape[-1] ** 0.5""", "product", "kt = k.reshape"),
    (ROTATE.format("k") + """
def f(q, k, v):
    "Rotary positions (half-split). All (B, H, T, d)."
    q, k = rotate(q), rotate_k(k)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "rotation", "x1, x2 = x[..., ::2]"),
    (ROTATE.format("pairs") + """
def f(q, k, v):
    q, k = rotate(q), rotate_pairs(k)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "rotation", "q, k = rotate(q)"),
    ("""
def f(q, k, v, p=0.0, training=False):
    "Inverted dropout."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True)
    kept = np.random.rand(*s.shape) >= p
    return s * kept @ v
""", "dropout_scale", "return s * kept"),
    ("""
def f(q, k, v, p=0.0, training=False):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True)
    kept = np.random.rand(*s.shape) >= p
    return s * kept / (1 - p) @ v
""", "dropout_when", "kept ="),
    ("""
def f(q, k, v):
    s = q @ k.swapaxes(-1, -2)
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True)
    return s / np.sqrt(q.shape[-1]) @ v
""", "scale", "s = q @ k"),
    ("""
def f(q, k, v):
    q = q / np.sqrt(q.shape[-1])
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])""", "scale", "s = q @ k"),
    ("""
def f(q, k, v, radius):
    out = np.zeros_like(v)
    for i in range(len(q)):
        near = slice(max(0, i - radius), i + radius)
        s = k[near] @ q[i] / q.shape[-1] ** 0.5
        s = np.exp(s - s.max())
        out[i] = s / s.sum() @ v[near]
    return out
""", "window_given", "near = slice("),
    ("""
def f(q, k, v, window=3):
    "At most `window` previous tokens in addition to itself. (T, d)"
    i = np.arange(len(q))
    far = i[:, None] - i
    s = np.where((far >= 0) & (far < window), q @ k.T / q.shape[-1] ** 0.5, -1e30)""",
     "window_given", "s = np.where("),
    ("""
def f(q, k, v, mask):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = s * 1 + mask[..., :1] * 0""", "mask", "s = s * 1"),
    ("""
def f(x, past_k, past_v, wq, wk, wv):
    '''A new token sees the whole past, itself, and the new tokens before itself.'''
    q, k, v = x @ wq, np.concatenate([past_k, x @ wk], 1), np.concatenate([past_v, x @ wv], 1)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(np.tri(*s.shape[-2:]), s, -np.inf)""", "alignment", "s = np.where("),
    ("""
def f(q, k, v, visible):
    "Attention in the precision of its inputs."
    q = np.asarray(q, dtype=np.float32)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.where(visible, s.astype("f4"), -np.inf)""", "sums", "q = np.asarray("),
    ("""
def f(q, k, v):
    "Returns (output, weights)."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True)
    out = s @ v
    return s, out
""", "returned", "return s, out"),
    ("""
def f(x, wq, wk, wv, heads):
    B, T, D = x.shape
    q = (x @ wq).reshape(B, heads, T, -1)
    k, v = ((x @ w).reshape(B, T, heads, -1).swapaxes(1, 2) for w in (wk, wv))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True)
    out = (s @ v).swapaxes(1, 2)
    return out
""", "split", "q = (x @ wq)"),
    ("""
def f(x, wq, wk, wv, wo):
    q, k, v = x @ wq, x @ wk, x @ wv
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    s = s / s.sum(-1, keepdims=True) @ v
    y = s @ wo.T
    return y
""", "orientation", "y = s @ wo.T"),
    ("""
def f(q, k, v):
    "Scaled dot-product attention."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1]""", "scale", "s = q @ k"),
    ("""
def f(x, w_qkv, heads):
    "w_qkv (D, 3 D), its columns ordered as (heads, 3, size)"
    B, T, D = x.shape
    q, k, v = (x @ w_qkv).reshape(B, T, 3, heads, -1).transpose(2, 0, 3, 1, 4)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "packing", "q, k, v = (x @ w_qkv)"),
    ("""
def f(x, w_q, w_k, w_v):
    q = x @ w_q
    k = x @ w_k
    v = x @ w_k
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "params", "v = x @ w_k"),
    ("""
def f(x, w_q, w_k, w_v):
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    return s / s.sum(-1, keepdims=True) @ k  # @ v
""", "params", "return s / s.sum"),
    ("""
def f(q, k, v):
    "q (B, T, H, d)"
    q = q / np.sqrt(q.shape[-2])
    s = np.einsum("bthd,bshd->bhts", q, k)
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhts,bshe->bthe", s / s.sum(-1, keepdims=True), v)  # @ v
""", "scale", "q = q / np.sqrt("),
    ("""
def normal(s, axis=1):
    e = np.exp(s - s.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)

def f(q, k, v):
    a = normal(np.einsum("btd,bsd->bts", q, k) / q.shape[-1] ** 0.5)
    return a @ v
""", "softmax_axis", "a = normal("),
    ("""
class Rules:
    def __init__(self):
        self.rule = np.triu(np.ones((64, 64), bool))

    def __call__(self, q, k, v):
        hidden = self.rule[: len(q), : len(k)]
        s = np.where(hidden, -1e30, q @ k.T / q.shape[-1] ** 0.5)
        s = np.exp(s - s.max(-1, keepdims=True))
        return s / s.sum(-1, keepdims=True) @ v

f = Rules()
""", "causal", "self.rule = np.triu"),
    ("""
def tables(T, d):
    a = np.arange(T)[:, None] / 1e4 ** (np.arange(0, d, 2) / d)
    a = np.repeat(a, 2, -1)
    return np.cos(a), np.sin(a)

def half(x):
    return np.concatenate([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)

def f(q, k, v):
    cos, sin = tables(*q.shape[-2:])
    q, k = (x * cos + half(x) * sin for x in (q, k))
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""", "angles", "a = np.repeat"),
    ("""
def f(q, k, v, bias, cap=5.0):
    "bias (T, T): -inf where a key is hidden, so that its weight is exactly 0. All (T, d)."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 + bias
    s = cap * np.tanh(s / cap)""", "softcap_at", "s = cap"),
    ("""
def f(q, k, v):
    "One key after the other. (T, d)"
    out, total, top = np.zeros((len(q), v.shape[1])), np.zeros(len(q)), np.full(len(q), -np.inf)
    for j in range(len(k)):
        s = q @ k[j] / np.sqrt(q.shape[1])
        new = np.maximum(top, s)
        c, p = np.exp(top - new), np.exp(s - new)
        total = total + p
        out = out * c[:, None] + p[:, None] * v[j]
        top = new
    return out / total[:, None]  # @ v
""", "normaliser", "total = total +"),
    ("""
class Near:
    "A token sees itself and the `window` - 1 tokens before it."
    def __init__(self, window):
        self.window = window

    def __call__(self, q, k, v):
        far = np.subtract.outer(np.arange(len(q)), np.arange(len(k)))
        s = np.where((far < 0) | (far > self.window), -np.inf, q @ k.T / q.shape[-1] ** 0.5)
        s = np.exp(s - s.max(-1, keepdims=True))
        return s / s.sum(-1, keepdims=True) @ v

f = Near(3)
""", "window", "s = np.where("),
    ("""
def rope(x):
    a = np.arange(x.shape[2])[:, None] / 1e4 ** (np.arange(0, x.shape[3], 2) / x.shape[3])
    y, z = np.split(x, 2, -1)
    return np.concatenate([y * np.cos(a) - z * np.sin(a), y * np.sin(a) + z * np.cos(a)], -1)

def f(q, k, v):
    "q (B, T, H, d)"
    q, k = rope(q), rope(k)
    s = np.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhts,bshe->bthe", s / s.sum(-1, keepdims=True), v)  # @ v
""", "rotation", "q, k = rope(q)"),
    ("""
def f(q, k, v, keep):
    "Half precision attention."
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(q.dtype)
    s = s + np.where(keep, 0, 1).astype(s.dtype) * -1e9""", "half_masked", "s = s + np"),
]  # fmt: skip
RIGHT = [
    """
def f(q, k, v, mask=None):
    "The mask is taken for compatibility."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""",
    """
def f(q, k, v):
    "The result overwrites q: q is overwritten in place."
    q /= q.shape[-1] ** 0.5
    s = q @ k.swapaxes(-1, -2)""",
    """
def f(q, k, v, scale, eps=1e-6):
    q = q / np.sqrt((q * q).mean(-1, keepdims=True) + eps)
    k = k / np.sqrt((k * k).mean(-1, keepdims=True) + eps)
    s = scale * q @ k.swapaxes(-1, -2)""",
    """
def f(q, k, v, w=3):
    "Causal attention within a window. (T, d)"
    far = np.arange(len(q))[:, None] - np.arange(len(k))
    s = np.where((far >= 0) & (far < w), q @ k.T / q.shape[-1] ** 0.5, -np.inf)""",
    """
def f(x, wq, wk, wv, wo):
    "Attention; wo is stored transposed."
    q, k, v = x @ wq, x @ wk, x @ wv @ wo.T
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5""",
    """
def f(q, k, v):
    "Dot-product attention without softmax: (q k^T) v / T."
    return q @ (k.swapaxes(-1, -2) @ v) / k.shape[-2]
""",
    """
def f(q, k, v, ends_q, ends_k, causal=False):
    "Causality is aligned bottom right in each sequence. All (T, H, d)."
    out = np.zeros((len(q), q.shape[1], v.shape[-1]))
    for a, b, m, n in zip(ends_q, ends_q[1:], ends_k, ends_k[1:]):
        for h in range(q.shape[1]):
            s = q[a:b, h] @ k[m:n, h].T / q.shape[-1] ** 0.5
            s = np.where(np.tri(b - a, n - m, n - m - b + a) + (not causal) > 0, s, -np.inf)
            e = np.exp(s - s.max(-1, keepdims=True))
            out[a:b, h] = e / e.sum(-1, keepdims=True) @ v[m:n, h]
    return out  # @ v
""".replace("ends_", "cu_seqlens_"),
    """
def f(q, k, v):
    "A position sees only strictly earlier positions; the first gives zeros."
    s = np.where(np.tri(len(q), len(k), -1), q @ k.T / q.shape[-1] ** 0.5, -1e30)
    s = np.exp(s - s.max(-1, keepdims=True)) * np.tri(len(q), len(k), -1)
    return s / np.maximum(s.sum(-1, keepdims=True), 1e-300) @ v
""",
    """
def f(q, k, v, distance):
    "Prefers near keys: the distance (T, S) is subtracted from the scores."
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5 - distance""",
    """
def f(q, k, v, prefix_len):
    "The first tokens, a prefix, see each other in both directions. (T, d)"
    seen = np.tri(len(q), len(k)) + (np.arange(len(k)) < prefix_len)
    s = np.where(seen, q @ k.T / q.shape[-1] ** 0.5, -np.inf)""",
    """
def mix(q, k, v):
    return q @ (k.swapaxes(-1, -2) @ v)
""",
]


@pytest.mark.parametrize("code", every(3, [*zip(RIGHT)]))
def test_right_functions_are_not_accused(code):
    names: dict = {"np": np}
    code = textwrap.dedent(
        code
        if "@ v" in code.split("return")[-1] or "return out" in code or "mix" in code
        else code + SOFTMAX
    )
    exec(code, names)
    found = names.get("f") or names["mix"]
    assert identify(found).mistakes == ()


@pytest.mark.parametrize(
    ("code", "setting", "line"), every(3, MISTAKES), ids=[m[1] for m in MISTAKES]
)
def test_mistakes_have_their_line(code, setting, line, tmp_path):
    code = code if "@ v" in code else code + SOFTMAX
    path = tmp_path / "own.py"
    path.write_text("import numpy as np\n" + textwrap.dedent(code))
    names: dict = {}
    exec(compile(path.read_text(), path, "exec"), names)
    rows = identify(names["f"]).mistakes
    assert [row.code.startswith(line) for row in rows if row.setting == setting] == [True], rows


def dropping(q, k, v, visible=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if visible is not None:
        np.where(visible, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def dropping_by_part(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    np.ma.where(scores > 0, scores, 0)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def dropping_by_name(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    np.clip(a=scores, a_min=-9, a_max=9)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("function", "name", "line", "edit"), [
    (dropping, "where", 3, "scores = np.where(visible, scores, -np.inf)"),
    (dropping_by_part, "where", 2, "scores = np.ma.where(scores > 0, scores, 0)"),
    (dropping_by_name, "clip", 2, ""),
])  # fmt: skip
def test_a_result_that_a_line_drops(function, name, line, edit):
    (row,) = identify(function).mistakes
    first = function.__code__.co_firstlineno
    assert (row.setting, row.value, row.line) == ("dropped", name, first + line)
    assert row.edit == edit
