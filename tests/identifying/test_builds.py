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


class WithBackward:
    """Only the backward meets the transposed maps."""

    def __init__(self, Wqkv, Wo, heads):
        self.Wqkv, self.Wo, self.heads = Wqkv, Wo, heads

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = np.split(x @ self.Wqkv, 3, axis=-1)
        q, k, v = (a.reshape(B, T, self.heads, -1).swapaxes(1, 2) for a in (q, k, v))
        self.weights = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
        return (self.weights @ v).swapaxes(1, 2).reshape(B, T, D) @ self.Wo

    def backward(self, d_out, d_qkv):
        return d_out @ self.Wo.T, d_qkv @ self.Wqkv.T


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
    sheet = identify(attend, given={"packed": "a", "key": "b", "value": "c"})
    assert "c = values, nothing that is known gives its numbers." in sheet.notes[0]
    assert not sheet.is_as_given


@pytest.mark.slow
def test_an_argument_with_another_role_is_not_ignored():
    def attend(q, k, v, attn):
        return softmax(np.where(attn, q @ k.swapaxes(-1, -2), -np.inf)) @ v

    sheet = identify(attend, given={"bias": "attn"})
    assert not sheet.mistakes
    assert sheet.notes[0].endswith("argument is ignored. This report is without them: attn = mask.")
    assert identify(attend, given={"mask": "attn"}).is_as_given


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


@pytest.mark.parametrize("kind", [OfState, WithBackward, OfLetters, OfImages])
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


def attended(layer, x, w_q, w_k, w_v, w_o):
    q, k, v = (x @ w for w in (w_q, w_k, w_v))
    q, k, v = (a.reshape(*a.shape[:2], layer.heads, -1).swapaxes(1, 2) for a in (q, k, v))
    mixed = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    return mixed.swapaxes(1, 2).reshape(x.shape) @ w_o


class OfObjects:
    """Params of an object of layers, as another library has them."""

    def __init__(self, block, heads):
        self.block, self.heads = block, heads
        self.width = block.query.weight.shape[0] // heads

    def __call__(self, x):
        w_q, w_k = self.block.query.weight.T, self.block.key.weight.T
        w_v, w_o = self.block.value.weight.T, self.block.output.weight.T
        return attended(self, x, w_q, w_k, w_v, w_o)


class OfOptional:
    """Params of a dict, one of which may be missing, but not for the sum."""

    def __init__(self, sd, prefix, heads):
        self.w = [sd[prefix + f"{name}.weight"].T for name in "qkvo"]
        self.bias, self.heads = sd.get(prefix + "o.bias"), heads

    def __call__(self, x):
        return attended(self, x, *self.w) + self.bias


class OfTuple:
    """Params in their order."""

    def __init__(self, params, heads):
        self.w_q, self.w_k, self.w_v, self.w_o = params
        self.heads = heads

    def __call__(self, x):
        return attended(self, x, self.w_q, self.w_k, self.w_v, self.w_o)


class OfGenerator(OfTuple):
    """Params that are drawn, of sizes whose names say little."""

    def __init__(self, c_s, heads, generator):
        super().__init__([generator.normal(size=(c_s, c_s)) / 4 for _ in range(4)], heads)


@pytest.mark.parametrize("kind", [OfObjects, OfOptional, OfTuple, OfGenerator])
def test_a_constructor_gets_what_its_source_reads(kind):
    sheet = identify(kind)
    assert sheet.is_found
    assert not sheet.mistakes


def test_an_error_says_what_could_not_be_made():
    class Named:
        def __init__(self, spec, dim):
            self.kind, self.dim = spec.kind.upper(), dim

    with pytest.raises(ConfigError, match="it may need something else for spec: build one"):
        identify(Named)


@pytest.mark.slow
def test_a_seed_of_jax_is_a_key():
    jax = pytest.importorskip("jax")

    class Keyed(OfTuple):
        def __init__(self, key, dim, heads):
            keys = jax.random.split(key, 4)
            super().__init__([np.array(jax.random.normal(k, (dim, dim))) / 4 for k in keys], heads)

    sheet = identify(Keyed)
    assert sheet.is_found
    assert sheet.notes == ("Built as Keyed(key=<array (2,)>, dim=32, heads=4).",)


class Remembering:
    """Takes the query of one token in each call."""

    def __init__(self, keys, values):
        self.keys, self.values = keys, values

    def read(self, query):
        weights = softmax(query @ self.keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
        return weights @ self.values


def with_queries(q):
    return lambda k: lambda v: softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize("maker", [Remembering, Remembering.read, with_queries])
def test_tokens_may_be_given_when_something_is_made(maker):
    sheet = identify(maker)
    assert sheet.is_found
    assert {each.what for each in sheet.arguments} == {"queries", "keys", "values"}
    assert "both are listed" in sheet.notes[0]


class Growing:
    """Takes one token in each call, and keeps keys and values in lists."""

    def __init__(self, w_q, w_k, w_v):
        self.maps = w_q, w_k, w_v
        self.clear()

    def clear(self):
        self.past = {"k": [], "v": []}

    def advance(self, token):
        q, k, v = (token @ w for w in self.maps)
        self.past["k"].append(k)
        self.past["v"].append(v)
        keys, values = (np.stack(self.past[name], -2) for name in "kv")
        weights = softmax((q[..., None, :] * keys).sum(-1) / np.sqrt(q.shape[-1]))
        return (weights[..., None] * values).sum(-2)


def test_an_object_that_takes_one_token_is_fed_with_all():
    sheet = identify(Growing)
    assert sheet.value("causal") == "past and itself"
    assert sheet.arguments[0][:3] == ("token", "tokens of queries, keys and values", "(B, T, D)")
    assert sheet.notes[1].startswith("Each call takes one token, and the object keeps its key")
    assert identify(Growing(*(draw(12, 12) for _ in range(3))).advance).is_found


def make_pair(dim, heads):
    layer = type("", (), {"heads": heads})

    def init(seed):
        rng = np.random.default_rng(seed)
        return {name: rng.normal(size=(dim, dim)) / 4 for name in ("wq", "wk", "wv", "wo")}

    def apply(params, x):
        return attended(layer, x, *(params[name] for name in ("wq", "wk", "wv", "wo")))

    return init, apply


def of_functions(x, q_proj, k_proj, v_proj):
    q, k, v = (project(x) for project in (q_proj, k_proj, v_proj))
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def of_rules(q, k, v, mask_mod, activation):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    i, j = np.indices(scores.shape[-2:])
    return activation(np.where(mask_mod(i, j), scores, -np.inf)) @ v


def of_caches(q, k, v, cache):
    k, v = cache.update(k, v)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize("function", [make_pair, of_functions, of_rules, of_caches])
def test_pairs_functions_and_caches_are_taken(function):
    sheet = identify(function)
    assert sheet.is_found
    assert not sheet.mistakes


class Filled:
    """One token at a time, into arrays that have room for all."""

    def __init__(self, n_heads, d_head, max_len=16):
        self.keys, self.values = np.zeros((2, n_heads, max_len, d_head))
        self.at, self.d_head = 0, d_head

    def step(self, q, k, v):
        self.keys[:, self.at], self.values[:, self.at] = k, v
        self.at += 1
        scores = np.einsum("hd,htd->ht", q, self.keys[:, : self.at]) / np.sqrt(q.shape[-1])
        return np.einsum("ht,htd->hd", softmax(scores), self.values[:, : self.at])


def test_a_cache_may_have_room_for_later_tokens():
    sheet = identify(Filled)
    assert sheet.value("causal") == "past and itself"
    assert not sheet.mistakes


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def of_maps(params, x, num_heads):
    parts = (dense(params[name], x) for name in ("query", "key", "value"))
    q, k, v = (a.reshape(*a.shape[:2], num_heads, -1).swapaxes(1, 2) for a in parts)
    out = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    return dense(params["out"], out.swapaxes(1, 2).reshape(x.shape))


def test_a_helper_is_given_one_map_after_the_other():
    sheet = identify(of_maps)
    assert sheet.is_found
    assert "params['key']['bias']" in [each.name for each in sheet.arguments]


class OfPart:
    """Half of the features of each head are rotated, as settings say."""

    def __init__(self, config):
        self.n_heads, dim = config.num_attention_heads, config.hidden_size
        self.turned = int(dim // self.n_heads * config.partial_rotary_factor)
        self.rates = config.rope_theta ** (-np.arange(0, self.turned, 2) / self.turned)
        self.wq, self.wk, self.wv = np.random.default_rng(0).normal(size=(3, dim, dim)) / 6

    def turn(self, x):
        angles = np.arange(x.shape[2])[:, None] * self.rates
        a, b = np.split(x[..., : self.turned], 2, -1)
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([a * c - b * s, b * c + a * s, x[..., self.turned :]], -1)

    def forward(self, x):
        parts = (x @ w for w in (self.wq, self.wk, self.wv))
        q, k, v = (a.reshape(*x.shape[:2], self.n_heads, -1).swapaxes(1, 2) for a in parts)
        scores = self.turn(q) @ self.turn(k).swapaxes(2, 3) / np.sqrt(q.shape[-1])
        return (softmax(scores) @ v).swapaxes(1, 2).reshape(x.shape)


def test_settings_have_the_base_and_the_share_of_a_rotation():
    sheet = identify(OfPart)
    assert (sheet.value("rotation"), sheet.value("turned")) == ("halves", 0.5)
