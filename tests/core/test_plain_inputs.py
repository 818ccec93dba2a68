"""Inputs checked at one look are those checked one by one: results, errors and all."""

import inspect

import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward
from mha_numpy.core import attention_inputs
from mha_numpy.core.attention_inputs import check_attention_inputs, plain_inputs
from mha_numpy.dtypes import LARGEST
from mha_numpy.errors import MhaError
from tests.backends import EACH_BACKEND

B, H, H_kv, T_q, T_k, d_k, d_v = 4, 6, 3, 5, 7, 11, 13


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def qkv(dtype=np.float32, heads=(H, H_kv), lengths=(T_q, T_k), width=d_k, batch=B):
    (H, H_kv), (T_q, T_k) = heads, lengths
    shapes = {"q": (H, T_q, width), "k": (H_kv, T_k, width), "v": (H_kv, T_k, d_v)}
    return {name: drawn(batch, *shape, dtype=dtype) for name, shape in shapes.items()}


Q, K, V = GIVEN = tuple(qkv().values())


def changed(change):
    """Return q, k, v, each changed in the same way."""
    return {name: change(x) for name, x in zip("qkv", GIVEN, strict=True)}


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def with_nan(x):
    x = x.copy()
    x[1, 2, 3, 4] = np.nan
    return x


class Subclass(np.ndarray):
    """An array, and more."""


# by name; what is not given is Q, K, V
PLAIN = {
    "float32": {},
    "float64": qkv(np.float64),
    "causal": {"is_causal": True},
    "a step of decoding": qkv(lengths=(1, T_k)) | {"is_causal": True, "q_offset": 6},
    "an offset before the first key": {"is_causal": True, "q_offset": -3},
    "one head each": qkv(heads=(1, 1)),
    "NaN": changed(with_nan),
    "infinity": changed(lambda x: np.where(x > 1, np.float32(np.inf), x)),
    "read-only": changed(read_only),
    "tokens before heads": changed(lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2)),
    "every second number": changed(lambda x: np.repeat(x, 2, axis=3)[..., ::2]),
    "no sequences": qkv(batch=0),
    "no queries": qkv(lengths=(0, T_k)),
    "no keys": qkv(lengths=(T_q, 0)),
    "no features": qkv(width=0),
    "no query heads": qkv(heads=(0, H_kv)),
}  # fmt: skip

UNUSUAL = {
    "float16": qkv(np.float16),
    "longdouble": qkv(np.longdouble),
    "the other byte order": changed(lambda x: x.astype(x.dtype.newbyteorder())),
    "q is wider": {"q": Q.astype(np.float64)},
    "k is wider": {"k": K.astype(np.float64)},
    "v is narrower": {"v": V.astype(np.float16)},
    "a subclass": changed(lambda x: x.view(Subclass)),
    "lists": changed(np.ndarray.tolist),
    "single head": changed(lambda x: x[:, 0]),
    "no batch": changed(lambda x: x[0, 0]),
    "mask": {"mask": np.arange(T_k) > 2},
    "bias": {"bias": drawn(T_q, T_k)},
    "window": {"window": (2, 1)},
    "softcap": {"softcap": 3.0},
    "scale": {"scale": 0.5},
    "dropout": {"dropout_mask": np.ones((T_q, T_k), np.float32)},
    "gate": {"head_gate": drawn(H)},
    "flag of NumPy": {"is_causal": np.True_},
    "offset of NumPy": {"is_causal": True, "q_offset": np.int8(2)},
    "offset of each sequence": {"is_causal": True, "q_offset": np.arange(B)},
}

WRONG = {
    "rank 1": {"q": Q[0, 0, 0]},
    "rank 5": {"q": Q[None]},
    "k of rank 3": {"k": K[0]},
    "v of rank 3": {"v": V[0]},
    "all of rank 5": changed(lambda x: x[None]),
    "batch of k": {"k": K[:1]},
    "batch of v": {"v": V[:1]},
    "batch of q": {"q": Q[:1]},
    "length of v": {"v": V[:, :, :6]},
    "heads of v": {"v": V[:, :2]},
    "width of k": {"k": K[..., :7]},
    "width of q": {"q": Q[..., :7]},
    "heads not divided": qkv(heads=(H, 4)),
    "more key heads": qkv(heads=(H, 12)),
    "no key heads": qkv(heads=(H, 0)),
    "no heads at all": qkv(heads=(0, 0)),
    "tokens where heads belong": changed(lambda x: x.swapaxes(1, 2)),
    "integers": changed(lambda x: x.astype(int)),
    "bool q": {"q": Q > 0},
    "complex v": {"v": V + 0j},
    "objects": {"k": K.astype(object)},
    "None": {"q": None},
    "a word": {"v": "v"},
    "ragged": {"k": [[1.0], [1.0, 2.0]]},
    "masked": {"q": np.ma.masked_array(Q, Q > 0)},
    "integer mask": {"mask": np.ones((T_q, T_k), int)},
    "float mask": {"mask": np.ones((T_q, T_k))},
    "shape of mask": {"mask": np.ones((T_k, T_q), bool)},
    "shape of bias": {"bias": np.ones((T_k, T_q))},
    "shape of dropout": {"dropout_mask": np.ones((T_k, T_q))},
    "shape of gate": {"head_gate": np.ones(H_kv)},
    "flag as a number": {"is_causal": 1},
    "no flag": {"is_causal": None},
    "flag as an array": {"is_causal": np.ones((T_q, T_k), bool)},
    "offset as a flag": {"q_offset": False},
    "offset as a float": {"q_offset": 0.0},
    "no offset": {"q_offset": None},
    "offset out of reach": {"q_offset": LARGEST + 1},
    "offset of too many": {"q_offset": np.zeros(B + 1, int)},
    "window": {"window": 3},
    "softcap": {"softcap": 0},
    "scale": {"scale": np.inf},
    "backend": {"backend": "gpu"},
    "no backend": {"backend": None},
    "a list of backends": {"backend": ["numpy"]},
    "an array of a word": {"backend": np.array("numpy")},
    "foreign": {"attn_mask": None},
    "two at once: q comes first": {"q": Q[..., :7], "is_causal": 1},
    "two at once: the offset comes last": {"k": K[:1], "q_offset": LARGEST + 1},
}  # fmt: skip

OPTIONS = {
    name: parameter.default
    for name, parameter in inspect.signature(attention_forward).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
}


@pytest.fixture
def one_by_one(monkeypatch):
    """Return a function after which every argument is checked by itself."""
    return lambda: monkeypatch.setattr(attention_inputs, "plain_inputs", lambda *_: None)


def arguments(given):
    return {"q": Q, "k": K, "v": V, **OPTIONS, **given}


def computed(given):
    """Return out, lse and gradients as dtype, shape, strides and bytes: those of float64.

    Of the 16 bytes of a longdouble, 6 are anything.
    """
    with np.errstate(invalid="ignore"):  # of NaN and infinity
        out, cache = attention_forward(**arguments(given))
        d_out = np.random.default_rng(7).normal(size=out.shape).astype(out.dtype)
        found = (out, cache.lse, *attention_backward(d_out, cache))
    return [
        x if x is None else (x.dtype, x.shape, x.strides, x.astype(np.float64).tobytes())
        for x in found
    ]


def error(given):
    with pytest.raises(MhaError) as raised:
        attention_forward(**arguments(given))
    return type(raised.value), str(raised.value)


def is_plain(given):
    names = inspect.signature(plain_inputs).parameters
    return plain_inputs(*(arguments(given)[name] for name in names)) is not None


@pytest.mark.parametrize("name", PLAIN)
def test_plain_calls_need_one_look(name):
    assert is_plain(PLAIN[name])


@pytest.mark.parametrize("name", PLAIN | UNUSUAL)
def test_the_inputs_are_the_same(name, one_by_one):
    given = arguments((PLAIN | UNUSUAL)[name])
    at_one_look = check_attention_inputs(**given)
    one_by_one()
    expected = check_attention_inputs(**given)
    for field, found, other in zip(expected._fields, at_one_look, expected, strict=True):
        if isinstance(other, np.ndarray):
            assert found.dtype == other.dtype, field
            assert np.array_equal(found, other, equal_nan=True), field
        else:
            assert type(found) is type(other), field
            assert found == other, field


@pytest.mark.parametrize("backend", EACH_BACKEND)
@pytest.mark.parametrize("name", PLAIN | UNUSUAL)
def test_the_results_are_the_same(name, backend, one_by_one):
    given = (PLAIN | UNUSUAL)[name] | {"backend": backend}
    at_one_look = computed(given)
    one_by_one()
    assert at_one_look == computed(given)


@pytest.mark.parametrize("name", WRONG)
def test_the_errors_are_the_same(name, one_by_one):
    at_one_look = error(WRONG[name])
    one_by_one()
    assert at_one_look == error(WRONG[name])
