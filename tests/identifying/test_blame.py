"""The line that is to blame for a deviation, in code of many styles with one mistake edited in."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mha_numpy.identifying.blaming.blame import find_blame
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot, Way
from mha_numpy.identifying.family import Sizes, evaluate
from mha_numpy.identifying.searching.search import Seen, explain
from tests.sweeps import every

PLAIN = Sizes(G=2, d=6, e=6)
INSIDE = Sizes(G=2, d=6, e=6, S=5)
GIVEN = {"q": "query B H T d", "k": "key B G S d", "v": "value B G S e"}
PROJECTED = {
    "x": "x B T D", "w_q": "w_q D M", "w_k": "w_k C N", "w_v": "w_v E O", "w_o": "w_o U W",
    "b_o": "b_o W",
}  # fmt: skip

SELF = """
import numpy as np

def turn(t, base=10000.0):
    half = t.shape[-1] // 2
    speed = 1.0 / base ** (np.arange(half) / half)
    angles = np.outer(np.arange(0, t.shape[-2]), speed)
    c, s = np.cos(angles), np.sin(angles)
    a, b = t[..., :half], t[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)

def cut(t, heads):
    batch, length, width = t.shape
    return t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

def softmax(t, axis=-1):
    e = np.exp(t - t.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)

def attend(x, w_q, w_k, w_v, w_o, b_o):
    batch, length, width = x.shape
    q = cut(x @ w_q, 4)
    k = cut(x @ w_k, 2)
    v = cut(x @ w_v, 2)
    q = turn(q)
    k = turn(k)
    k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
    scores = q @ k.swapaxes(-1, -2)
    scores = scores / np.sqrt(q.shape[-1])
    future = np.triu(np.ones((length, length)), k=1)
    scores = scores - 1e30 * future
    weights = softmax(scores)
    mixed = weights @ v
    merged = mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)
    out = merged @ w_o
    return out + b_o
"""
LOOPS = """
import math
import numpy as np

def attend(q, k, v):
    out = np.zeros(q.shape[:3] + v.shape[3:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h // 2
            for i in range(q.shape[2]):
                row = []
                for j in range(i + 1):
                    row.append(q[b, h, i] @ k[b, g, j] / math.sqrt(q.shape[-1]))
                row = np.array(row)
                e = np.exp(row - row.max())
                p = e / e.sum()
                out[b, h, i] = p @ v[b, g, :len(p)]
    return out
"""
HEADS = """
import numpy as np

class Attention:
    def __call__(self, q, k, v, mask):
        k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
        return self.join([self.head(q[:, h], k[:, h], v[:, h], mask[:, h]) for h in range(4)])

    def head(self, q, k, v, mask):
        s = np.einsum("btd,bsd->bts", q, k)
        s = s * q.shape[-1] ** -0.5
        s[~mask] = -np.inf
        w = np.exp(s)
        w /= w.sum(axis=2, keepdims=True)
        return np.einsum("bts,bse->bte", w, v)

    def join(self, heads):
        return np.stack(heads, axis=1)

attend = Attention()
"""
LINE = """
import functools
import numpy as np

def documented(function):
    @functools.wraps(function)
    def inner(*args, **named):
        return function(*args, **named)
    return inner

softmax = lambda t: np.exp(t) / np.exp(t).sum(-1, keepdims=True)

@documented
def attend(q, k, v):
    k, v = (a.repeat(2, 1) for a in (k, v))
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v
"""
SCALED = """
import numpy as np

def make(scale):
    def attend(q, k, v, mask, bias):
        q = q * scale(q)
        k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
        s = np.einsum("bhtd,bhsd->bhts", q, k)
        s = s + bias
        s = np.where(mask, s, -np.inf)
        s -= s.max(-1, keepdims=True)
        w = np.exp(s)
        w = w / w.sum(-1, keepdims=True)
        return np.einsum("bhts,bhsd->bhtd", w, v)
    return attend

attend = make(lambda q: q.shape[-1] ** -0.5)
"""
PADDED = """
import numpy as np

def attend(q, k, v, lengths):
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    seen = np.arange(k.shape[2])[None] < lengths[:, None]
    s = np.where(seen[:, None, None], s, -np.inf)
    w = np.exp(s - s.max(-1, keepdims=True))
    return w / w.sum(-1, keepdims=True) @ v
"""
CUT = """
import numpy as np

def attend(q, k, v, lengths):
    out = []
    for b, n in enumerate(lengths):
        keys = k[b].repeat(2, axis=0)[:, :n]
        s = q[b] @ keys.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        w = np.exp(s)
        w = w / w.sum(-1, keepdims=True)
        out.append(w @ v[b].repeat(2, axis=0)[:, :w.shape[-1]])
    return np.stack(out)
"""
TORCH = """
import torch
from torch import nn

class Scores(nn.Module):
    def forward(self, q, k):
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = Scores()

    def forward(self, q, k, v):
        k, v = (torch.repeat_interleave(a, 2, dim=1) for a in (k, v))
        s = self.scores(q, k)
        hidden = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)
        s = s.masked_fill(hidden, float("-inf"))
        w = torch.softmax(s, dim=-1)
        return w @ v

attend = Attention()
"""
JAX = """
import jax
import jax.numpy as jnp

@jax.jit
def attend(q, k, v):
    k, v = (jnp.repeat(a, 2, axis=1) for a in (k, v))
    s = jnp.einsum("bhtd,bhsd->bhts", q, k)
    s = s / jnp.sqrt(q.shape[-1])
    w = jax.nn.softmax(s, axis=-1)
    return w @ v
"""
FLASH = """
import numpy as np

def attend(q, k, v):
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    top = np.full(q.shape[:3] + (1,), -np.inf)
    below = np.zeros_like(top)
    above = np.zeros(q.shape[:3] + v.shape[3:])
    for start in range(0, k.shape[2], 2):
        s = q @ k[:, :, start:start + 2].swapaxes(-1, -2) * q.shape[-1] ** -0.5
        new = np.maximum(top, s.max(-1, keepdims=True))
        e, old = np.exp(s - new), np.exp(top - new)
        below = old * below + e.sum(-1, keepdims=True)
        above = old * above + e @ v[:, :, start:start + 2]
        top = new
    return above / below
"""
MASK = {**GIVEN, "mask": "mask B H T S"}
BIAS = {**MASK, "bias": "bias B H T S"}
LENGTHS = {**GIVEN, "lengths": "lengths B"}
numbers = itertools.count()

CASES = [  # source, edits, settings of the deviations, and for each of these a part of its line
    ("SELF", {"np.sqrt(q.shape[-1])": "np.sqrt(width)"}, {"scale": "1/sqrt(D)"}, ["sqrt(width)"]),
    ("SELF", {"scores / np.sqrt(q.shape[-1])": "scores"}, {"scale": "1"}, ["q @ k.swap"]),
    ("SELF", {"k=1": "k=0"}, {"causal": "past", "hide": "-1e9"}, ["k=0", "1e30"]),
    ("SELF", {"k=1": "k=2"}, {"causal": "one ahead"}, ["k=2"]),
    ("SELF", {"softmax(scores)": "softmax(scores, 2)"}, {"softmax_axis": "queries"}, ["scores, 2"]),
    ("SELF", {"t.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)":
              "t.reshape(batch, heads, length, width // heads)"},
     {"split": "reshape without transpose"}, ["return t.reshape"]),
    ("SELF", {"mixed.transpose(0, 2, 1, 3).reshape": "mixed.reshape"},
     {"merge": "reshape without transpose"}, ["mixed.reshape"]),
    ("SELF", {"merged @ w_o": "merged"}, {"w_o": "left out"}, ["return out"]),
    ("SELF", {"out + b_o": "out"}, {"b_o": "left out"}, ["return out"]),
    ("SELF", {"out + b_o": "out + b_o + x"}, {"after": "+ x"}, ["+ x"]),
    ("SELF", {"k.repeat(2, axis=1), v.repeat(2, axis=1)":
              "np.tile(k, (1, 2, 1, 1)), np.tile(v, (1, 2, 1, 1))"},
     {"grouping": "tile"}, ["tile"]),
    ("SELF", {"(np.arange(half) / half)": "(np.arange(half) / (2 * half))"},
     {"frequencies": "base^(-i/d)"}, ["speed = "]),
    ("SELF", {"base=10000.0": "base=12.0"}, {"base": 12.0}, ["speed = "]),
    ("SELF", {"np.arange(0, t.shape[-2])": "np.arange(1, t.shape[-2] + 1)", "k = turn(k)": "pass"},
     {"first_position": 1, "rotated": "q"}, ["np.outer", "k = cut"]),
    ("SELF", {"c - b * s, b * c + a": "c + b * s, b * c - a", "k = turn(k)": "pass"},
     {"direction": "backwards", "rotated": "q"}, ["a * c + b", "k = cut"]),
    ("SELF", {"cut(x @ w_k, 2)": "cut(x @ w_v, 2)", "v = cut(x @ w_v": "v = cut(x @ w_k"},
     {"params": "k v"}, ["k = cut(x @ w_v"]),
    ("SELF", {"k = turn(k)":
              "k = turn(k[..., [0, 2, 4, 1, 3, 5]])[..., [0, 3, 1, 4, 2, 5]]"},
     {"rotation": "halves of q, pairs of k"}, ["k = turn"]),
    ("LOOPS", {" / math.sqrt(q.shape[-1])": ""}, {"scale": "1"}, ["row.append"]),
    ("LOOPS", {"math.sqrt(q.shape[-1])": "q.shape[-1]"}, {"scale": "1/d"}, ["row.append"]),
    ("LOOPS", {"range(i + 1)": "range(i + 2)"}, {"causal": "one ahead"}, ["row.append"]),
    ("LOOPS", {"p = e / e.sum()": "p = e / (1 + e.sum())", "row - row.max()": "row"},
     {"normaliser": "one more in the sum"}, ["p = "]),
    ("HEADS", {"-0.5": "-1"}, {"scale": "1/d"}, ["-1"]),
    ("HEADS", {"~mask": "mask"}, {"mask": "true = blocked"}, ["s[mask]"]),
    ("HEADS", {"-np.inf": "0"}, {"hide": "0"}, ["s[~mask]"]),
    ("HEADS", {"axis=2": "axis=1"}, {"softmax_axis": "queries"}, ["axis=1"]),
    ("HEADS", {"s[~mask] = -np.inf": "pass", "        return np.ein":
               "        w = w * mask\n        return np.ein"},
     {"hide": "after the softmax"}, ["w = w * mask"]),
    ("HEADS", {"s[~mask] = -np.inf": "pass"}, {"mask": "ignored"}, ["w /= "]),
    ("LINE", {" / q.shape[-1] ** 0.5": ""}, {"scale": "1"}, ["return softmax"]),
    ("LINE", {"np.exp(t) /": "t /", "np.exp(t).sum": "t.sum"}, {"normaliser": "sum"}, ["t / t."]),
    ("LINE", {"@ v": "@ k", "q @ k": "q @ v"}, {"exchanged": "k v"}, ["return softmax"]),
    ("SCALED", {"-0.5)": "-1.0)"}, {"scale": "1/d"}, ["q = q * scale(q)"]),
    ("SCALED", {"s + bias": "s"}, {"bias": "ignored"}, ["einsum"]),
    ("SCALED", {"q * scale(q)": "q", "s + bias": "(s + bias) * scale(q)"},
     {"bias": "added before the scale"}, ["(s + bias) *"]),
    ("SCALED", {"mask, s, -np": "~mask, s, -np"}, {"mask": "true = blocked"}, ["np.where"]),
    ("PADDED", {"<": "<="}, {"lengths": "j <= n"}, ["<="]),
    ("TORCH", {" ** 0.5": ""}, {"scale": "1/d"}, ["return q @ k"]),
    ("TORCH", {"u(1)": "u(2)", "torch.repeat_interleave(a, 2, dim=1)": "a.repeat(1, 2, 1, 1)"},
     {"causal": "one ahead", "grouping": "tile"}, ["triu(2)", "a.repeat"]),
    ("JAX", {"axis=-1": "axis=-2"}, {"softmax_axis": "queries"}, ["softmax"]),
    ("JAX", {"@jax.jit\ndef attend": "def one", "axis=1": "axis=0", "bhtd,bhsd->b": "htd,hsd->",
             "@ v": "@ v\n\ndef attend(q, k, v):\n    return jax.vmap(one)(q, k, v)",
             " / jnp.sqrt(q.shape[-1])": ""}, {"scale": "1"}, ["einsum"]),
    ("FLASH", {"old * below": "below"}, {"normaliser": "streamed, sum not rescaled"}, ["below = "]),
    ("FLASH", {"old * above": "above"}, {"normaliser": "streamed, output not rescaled"}, ["above"]),
    ("FLASH", {" * q.shape[-1] ** -0.5": ""}, {"scale": "1"}, ["s = q @ k"]),
    ("FLASH", {"-0.5": "-1"}, {"scale": "1/d"}, ["s = q @ k"]),
    ("CUT", {"[:, :n]": "[:, :n + 1]"}, {"lengths": "j <= n"}, ["keys = "]),
]  # fmt: skip
ARGUMENTS = {"SELF": PROJECTED, "HEADS": MASK, "SCALED": BIAS, "PADDED": LENGTHS, "CUT": LENGTHS}
BASE: dict[str, dict[str, Any]] = {  # what the code does without an edit
    "SELF": {"rotation": "halves", "causal": "past and itself"},
    "LOOPS": {"causal": "past and itself"},
    "TORCH": {"causal": "past and itself"},
}


def load(text: str, folder: Path) -> ModuleType:
    """Return a module with this text."""
    name = f"blamed_{next(numbers)}"
    file = folder / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def look(source: str, function: Any) -> tuple[Subject, Seen]:
    """Return what a function of some source returns for a problem."""
    slots = {}
    for name, text in ARGUMENTS.get(source, GIVEN).items():
        role, layout = text.split(" ", 1)
        slots[name] = Slot(role, layout)
    is_inside = source == "SELF"
    way = Way(slots, {}, INSIDE if is_inside else PLAIN, is_inside)
    subject, problem = Subject(function), way.problem(Subject(function))
    return subject, Seen(way, problem, subject.call(way.given(problem)))


@pytest.mark.parametrize(("source", "edits", "deviant", "parts"), every(3, CASES))
def test_the_line_of_a_mistake_is_named(
    source: str, edits: dict[str, str], deviant: dict[str, Any], parts: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(
        "mha_numpy.identifying.blaming.blame.SECONDS", 20
    )  # a busy machine compiles slowly
    if source in ("TORCH", "JAX"):
        pytest.importorskip(source.lower())
    text = globals()[source]
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new, 1)
    module = load(text, tmp_path)
    subject, seen = look(source, module.attend)
    settings = {**BASE.get(source, {}), **deviant}
    values = evaluate(seen.problem, settings)
    assert values, settings
    assert explain(seen, settings), seen.called.trouble
    for setting, part in zip(deviant, parts, strict=True):
        blame = find_blame(subject, seen, settings, setting)
        assert blame, setting
        assert part in blame.text, (setting, blame)
        assert blame.text in text.splitlines()[blame.line - 1]


def test_functions_are_as_before_afterwards(tmp_path: Path) -> None:
    module = load(LINE, tmp_path)
    subject, seen = look("LINE", module.attend)
    before = module.softmax.__code__, {*vars(module)}
    find_blame(subject, seen, {"scale": "1"}, "scale")
    assert (module.softmax.__code__, {*vars(module)}) == before


def test_no_line_is_named_for_a_right_function_or_without_source(tmp_path: Path) -> None:
    subject, seen = look("LINE", load(LINE, tmp_path).attend)
    assert find_blame(subject, seen, {"scale": "1/d"}, "scale") is None
    space: dict[str, Any] = {}
    exec(LINE, space)
    subject, seen = look("LINE", space["attend"])
    assert find_blame(subject, seen, {"scale": "1"}, "scale") is None


def test_a_slow_function_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mha_numpy.identifying.blaming.blame.SECONDS", 0.1)
    text = LINE.replace("    k, v =", "    for _ in range(attend.slow): abs(q)\n    k, v =")
    module = load(text + "\nattend.slow = 0\n", tmp_path)
    subject, seen = look("LINE", module.attend)
    subject.state = None  # which would put it back
    module.attend.slow = 10**9
    start = clock()
    assert find_blame(subject, seen, {"scale": "1"}, "scale") is None
    assert clock() - start < 0.6
