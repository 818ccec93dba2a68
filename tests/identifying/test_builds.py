"""Classes, factories and what is beside a function: how each is built, and what is used."""

from dataclasses import dataclass

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.identifying import identify


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def draw(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape) / np.sqrt(shape[0])


class Grouped:
    """Attention whose groups are tiled where they should be repeated, which only groups show."""

    def __init__(self, dim, n_heads=4, n_kv_heads=None):
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d = dim // n_heads
        self.wq, self.wo = draw(dim, n_heads * self.d), draw(n_heads * self.d, dim)
        self.wk, self.wv = (draw(dim, self.n_kv_heads * self.d) for _ in range(2))

    def __call__(self, x):
        B, T, D = x.shape
        q, k, v = ((x @ w).reshape(B, T, -1, self.d) for w in (self.wq, self.wk, self.wv))
        q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
        k, v = (np.tile(a, (1, self.n_heads // self.n_kv_heads, 1, 1)) for a in (k, v))
        weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(self.d))
        return (weights @ v).swapaxes(1, 2).reshape(B, T, D) @ self.wo


class OfState:
    """Params under the names of a module, with outputs first, and a text before each name."""

    def __init__(self, sd, prefix, num_heads=4):
        self.qkv_w, self.proj_b = sd[prefix + "qkv.weight"], sd[f"{prefix}proj.bias"]
        self.proj_w, self.heads = sd[prefix + "proj.weight"], num_heads

    def __call__(self, x):
        B, T, D = x.shape
        q, k, v = (x @ self.qkv_w.T).reshape(B, T, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
        return (weights @ v).swapaxes(1, 2).reshape(B, T, D) @ self.proj_w.T + self.proj_b


class OfLetters:
    """Params in a dict of a short name, under keys that are put together."""

    def __init__(self, p, d_kv, num_heads):
        self.p, self.h = p, num_heads
        self.root = d_kv**0.5

    def __call__(self, x):
        q, k, v = (self.split(x @ self.p["W" + name]) for name in "qkv")
        mixed = softmax(q @ k.swapaxes(2, 3) / self.root) @ v
        return mixed.swapaxes(1, 2).reshape(x.shape) @ self.p["Wo"]

    def split(self, x):
        return x.reshape(*x.shape[:2], self.h, -1).swapaxes(1, 2)


class OfImages(Grouped):
    """Attention among the patches of an image, whose height and width are one argument."""

    def __init__(self, dim, size, n_heads=4):
        super().__init__(dim, n_heads)
        height, width = size
        self.most = height * width


class Even(Grouped):
    """A layer that is particular about its sizes."""

    def __init__(self, width, parts):
        if width % 128 or parts % 8:
            raise ValueError("width must be a multiple of 128, and parts of 8")
        super().__init__(width, parts)


@dataclass
class Config:
    n_head: int
    n_embd: int
    bias: bool = True


class Configured(Grouped):
    """A layer with the usual object of settings."""

    def __init__(self, config):
        assert config.bias is True
        super().__init__(config.n_embd, config.n_head)


class ByKeys(Grouped):
    """A layer with a dict of settings, some of which are only asked for elsewhere."""

    def __init__(self, cfg):
        self.cfg = cfg
        super().__init__(cfg["emb_dim"], cfg["n_heads"], cfg.get("n_kv", 2))


class ByParams:
    """A layer whose params come in a dict, and that looks whether all are there."""

    def __init__(self, params, n_head):
        assert all(name in params for name in ("w_qkv", "w_o"))
        self.params, self.n_head = params, n_head

    def __call__(self, x):
        B, T, D = x.shape
        parts = np.split(x @ self.params["w_qkv"] + self.params["b_qkv"], 3, -1)
        q, k, v = (a.reshape(B, T, self.n_head, -1).swapaxes(1, 2) for a in parts)
        weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
        return (weights @ v).swapaxes(1, 2).reshape(B, T, D) @ self.params["w_o"]


def make_attention(num_heads, scale=None):
    def attend(q, k, v):
        B, T, D = q.shape
        q, k, v = (x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2) for x in (q, k, v))
        weights = softmax(q @ k.swapaxes(2, 3) * (scale or q.shape[-1] ** -0.5))
        return (weights @ v).swapaxes(1, 2).reshape(B, T, -1)

    return attend


@pytest.mark.parametrize(
    ("maker", "built"),
    [
        (Grouped, "Grouped(dim=32, n_heads=4, n_kv_heads=2)"),
        (Even, "Even(width=128, parts=8)"),
        (Configured, "Configured(config=Config(n_head=4, n_embd=32, bias=True))"),
        (ByKeys, "ByKeys(cfg={emb_dim=32, n_heads=4})"),
        (
            ByParams,
            "ByParams(params={w_qkv=<array (32, 96)>, w_o=<array (32, 32)>, "
            "b_qkv=<array (96,)>}, n_head=4)",
        ),
        (make_attention, "make_attention(num_heads=4)"),
    ],
)
def test_the_datasheet_says_how_it_was_built(maker, built):
    sheet = identify(maker)
    assert sheet.is_found
    assert f"Built as {built}." in sheet.notes
    assert "Built as " in str(sheet)


def test_it_is_built_so_that_conventions_show():
    assert identify(Grouped).value("grouping") == "tile"


def test_a_method_of_a_class_is_that_of_an_object():
    assert identify(Grouped.__call__).value("grouping") == "tile"


def test_roles_of_a_constructor_can_be_given():
    class Odd(Grouped):
        def __init__(self, first, second):
            assert second > first
            super().__init__(second, first)

    with pytest.raises(ConfigError, match=r"cannot build Odd .*Odd\(first=\.\.\., second=\.\.\.\)"):
        identify(Odd)
    sheet = identify(Odd, given={"heads": "first"})
    assert "Built as Odd(first=4, second=32)." in sheet.notes


def test_roles_that_do_not_fit_are_not_blamed_on_the_code():
    def attend(a, b, c):
        return softmax(a @ b.swapaxes(-1, -2) / np.sqrt(a.shape[-1])) @ c

    sheet = identify(attend, given={"key": "c", "value": "b"})
    assert not sheet.mistakes
    text = "The roles that you gave do not fit. With c = keys, b = values, keys and values"
    assert text in str(sheet)
    assert sheet.notes[0].endswith("This report is without them: c = values, b = keys.")
    sheet = identify(attend, given={"packed": "a", "key": "b", "value": "c"}, seconds=10)
    assert "c = values, nothing that is known gives its numbers." in sheet.notes[0]


def attn_fwd(q, k, v):
    p = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return p @ v, (q, k, v, p)


def attn_bwd(d_out, cache):
    q, k, v, p = cache
    d_p = d_out @ v.swapaxes(-1, -2)
    d_s = p * (d_p - (d_p * p).sum(-1, keepdims=True))
    return d_s @ k, d_s.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ d_out


class Static:
    forward, backward = staticmethod(attn_fwd), staticmethod(attn_bwd)


@pytest.mark.parametrize("function", [attn_fwd, Static])
def test_a_backward_beside_it_is_used(function):
    sheet = identify(function)
    assert [row.says for row in sheet.mistakes] == ["the scale is missing in d_q and d_k"]
    assert "Its gradients are those of attn_bwd, in the same file." in str(sheet)


class Decoder:
    """A layer that keeps the keys and values of all its calls."""

    counts = True

    def __init__(self, dim, heads):
        self.heads, self.w = heads, draw(dim, 3 * dim)
        self.k = self.v = None

    def __call__(self, x):
        B, T, D = x.shape
        parts = np.split(x @ self.w, 3, axis=-1)
        q, k, v = (a.reshape(B, T, self.heads, -1).swapaxes(1, 2) for a in parts)
        if self.k is not None:
            k, v = np.concatenate([self.k, k], 2), np.concatenate([self.v, v], 2)
        self.k, self.v = k, v
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        visible = np.tri(T, k.shape[2], self.counts * (k.shape[2] - T), dtype=bool)
        return (softmax(np.where(visible, scores, -np.inf)) @ v).swapaxes(1, 2).reshape(B, T, D)


class AtPlace(Decoder):
    """One that is told at which place the tokens begin."""

    def __call__(self, x, start_pos=0):
        if self.k is not None:
            self.k, self.v = self.k[:, :, :start_pos], self.v[:, :, :start_pos]
        return super().__call__(x)


def test_what_an_object_keeps_does_not_reach_the_next_call():
    sheet = identify(Decoder)
    assert sheet.value("cache") == "kept"
    assert not sheet.mistakes
    assert identify(AtPlace).value("cache") == "kept by place"
    assert identify(Grouped).value("cache") is None
    forgetful = type("Forgetful", (Decoder,), {"counts": False})
    assert [row.value for row in identify(forgetful(32, 4)).mistakes] == ["top left"]
    layer = Decoder(24, 3)
    layer(np.ones((2, 1, 24)))
    identify(layer)
    assert layer.k.shape == (2, 3, 1, 8)


@pytest.mark.parametrize("kind", [OfState, OfLetters, OfImages])
def test_params_that_a_constructor_takes_are_drawn(kind):
    sheet = identify(kind)
    assert sheet.is_found
    assert not sheet.mistakes
    assert sheet.value("scale") == "1/sqrt(d)"


def both(q, k, v, d_out=None):
    p = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    if d_out is None:
        return p @ v, {"v": v, "scale": q.shape[-1] ** -0.5, "size": 3.0}
    d_p = d_out @ v.swapaxes(-1, -2)
    d_s = p * (d_p - (d_p * p).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return p @ v, d_s @ k, d_s.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ d_out


def test_what_comes_back_is_known():
    sheet = identify(both)
    assert [each.what for each in sheet.returns] == ["output", "values", "scale", "a number"]
    assert sheet.arguments[-1].what == "gradient of the output"
    sheet = identify(lambda q, k, v, d_out: both(q, k, v, d_out))
    found = [(each.what, each.axes) for each in sheet.returns[1:]]
    assert found[1] == ("gradient of k", "(B, H_kv, T_k, d_k)")
    assert [what for what, _ in found] == ["gradient of q", "gradient of k", "gradient of v"]
