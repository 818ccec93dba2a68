"""What is done in one pass against the equations in float64; `tests/layers` has the gradients."""

import functools

import numba
import numpy as np
import pytest

from mha_numpy import backend, layers
from mha_numpy.backends import chosen_backend
from mha_numpy.kernels import one_pass, parallel
from mha_numpy.kernels.one_pass import ROWS
from mha_numpy.layers import LayerNorm
from mha_numpy.layers.residual import add
from mha_numpy.models.train import gradient_norm
from mha_numpy.models.train.optimizers import adam_step
from tests.compare import Tolerance, assert_close
from tests.kernels.drivers import by_dtype
from tests.kernels.test_matmul import LAYOUTS

D = 33  # no multiple of any register
ADAM = {"learning_rate": 0.3, "betas": (0.8, 0.95), "eps": 0.2, "weight_decay": 0.4}


def adam(param, gradient, mean, root):
    return adam_step(param, gradient, mean, root**2, 3, **ADAM, backend=chosen_backend())


def both_passes(name, **options):
    """Return what gives the output, what forward keeps, and the gradients of a pair."""
    forward, backward = (getattr(layers, f"{name}_{way}") for way in ("forward", "backward"))

    def run(*arrays):
        *inputs, d_out = arrays
        out, cache = forward(*inputs, **options)
        kept = [x for x in cache if isinstance(x, np.ndarray)]
        return [out, *kept, *(x for x in backward(d_out, cache) if x is not None)]

    return run


CASES = {  # what is computed, and of which arrays: T for (tokens, D), D for (D,)
    "relu": (both_passes("relu"), "TT"),
    "gelu": (both_passes("gelu"), "TT"),
    "gelu by tanh": (both_passes("gelu", approximate="tanh"), "TT"),
    "swiglu": (both_passes("swiglu"), "TTT"),
    "layer norm": (both_passes("layer_norm", eps=0.1), "TDDT"),
    "rms norm": (both_passes("rms_norm", eps=0.1), "TDT"),
    "adam": (adam, "TTTT"),
    "sum": (lambda a, b: [add(a, b)], "TT"),
}
each_case = pytest.mark.parametrize("name", CASES)


def draw(name, dtype, tokens=2 * ROWS + 5):
    """Return inputs, and the upstream gradient if there is one, the same in every dtype."""
    rng = np.random.default_rng(0)
    drawn = [3 * rng.normal(size=(tokens, D) if axes == "T" else D) for axes in CASES[name][1]]
    return [x.astype(np.float32).astype(dtype) for x in drawn]


def run(name, arrays, name_of_backend):
    with backend(name_of_backend):
        return CASES[name][0](*arrays)


def assert_twins(name, arrays, dtype):
    """Fail unless the kernel gives what the equations give in float64, and leaves arrays alone."""
    before = [x.copy() for x in arrays]
    expected = run(name, [x.astype(np.float64) for x in arrays], "numpy")
    assert_all_close(run(name, arrays, "numba"), expected, dtype)
    for array, copy in zip(arrays, before, strict=True):
        assert_close(array, copy, "exact")


def assert_all_close(found, expected, dtype):
    for array, other in zip(found, expected, strict=True):
        assert array.dtype == dtype
        assert_close(array, other, np.dtype(dtype).name)


@each_case
@by_dtype
def test_is_what_the_equations_are(name, dtype):
    assert_twins(name, draw(name, dtype), dtype)


@each_case
@pytest.mark.parametrize("layout", [x for x in LAYOUTS if "for all" not in x])
def test_every_layout(name, layout):
    arrays = [LAYOUTS[layout](x) if x.ndim == 2 else x for x in draw(name, np.float32, 7)]
    assert_twins(name, arrays, np.float32)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 5)])
def test_params_of_any_rank(rng, shape):
    assert_twins("adam", [np.asarray(rng.normal(size=shape)) for _ in range(4)], np.float64)


@each_case
@by_dtype
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf: NumPy says so
def test_poison_goes_where_it_goes_by_the_equations(name, dtype, poison):
    for poisoned in (0, -1):
        arrays = draw(name, dtype, 5)
        arrays[poisoned][3, 17] = poison
        pairs = zip(run(name, arrays, "numba"), run(name, arrays, "numpy"), strict=True)
        for array, expected in pairs:
            odd = ~np.isfinite(expected)
            assert np.array_equal(~np.isfinite(array), odd)
            tame = ~odd & (np.abs(expected) < 1e3)
            assert_close(array[tame], expected[tame], Tolerance(1e-5, 1e-5))


def a_loss():
    rng = np.random.default_rng(0)
    logits, targets = rng.normal(size=(71, D)).astype(np.float32), rng.integers(0, D, 71)
    return loss_and_all(logits, targets, LOSSES[2], "numba")


def collected():
    rng = np.random.default_rng(0)
    x, ids = rng.normal(size=(999, D)).astype(np.float32), rng.integers(0, 4, 999)
    return [one_pass.collect(x, ids, 5)]


RUNS = {name: functools.partial(run, name, draw(name, np.float32), "numba") for name in CASES}
RUNS |= {"loss": a_loss, "ids": collected}


@pytest.mark.parametrize("name", RUNS)
def test_bitwise_the_same_for_any_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)
    found = set()
    for threads in range(1, numba.get_num_threads() + 1):
        numba.set_num_threads(threads)
        found |= {b"".join(x.tobytes() for x in RUNS[name]()) for _ in range(2)}
    assert len(found) == 1


LOSSES = [
    {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": ignored}
    for reduction in ("mean", "none") for smoothing in (0.0, 0.3, 1.0) for ignored in (None, 2)
]  # fmt: skip
each_loss = pytest.mark.parametrize("options", LOSSES, ids=str)


def loss_and_all(logits, targets, options, name_of_backend):
    """Return the loss, what forward keeps, and the gradient of the logits."""
    with backend(name_of_backend):
        loss, cache = layers.cross_entropy_forward(logits, targets, **options)
    d_loss = (3 - np.arange(loss.size) % 7).reshape(loss.shape).astype(logits.dtype)
    kept = [cache.log_probs, cache.expected, cache.losses]
    return [loss, *kept, layers.cross_entropy_backward(d_loss, cache).d_logits]


@each_loss
@by_dtype
@pytest.mark.parametrize("tokens", [(), (70,), (2, 5)])
def test_cross_entropy(rng, dtype, tokens, options):
    logits, targets = 3 * rng.normal(size=(*tokens, D)), rng.integers(0, 4, tokens)
    logits[..., 5] = logits[..., 9] + 40  # a logit far above the others
    logits = logits.astype(dtype)
    expected = loss_and_all(logits.astype(np.float64), targets, options, "numpy")
    assert_all_close(loss_and_all(logits, targets, options, "numba"), expected, dtype)


@each_loss
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # inf - inf: NumPy says so
def test_a_loss_is_poisoned_as_by_the_equations(rng, poison, options):
    logits = rng.normal(size=(7, D)).astype(np.float32)
    targets = np.array([0, 1, 2, 3, 0, 1, 2])
    for token, v in enumerate((5, 1, 2, 0, 0, 32)):  # the last token's logits are sound
        logits[token, v] = poison
    found, expected = (loss_and_all(logits, targets, options, x) for x in ("numba", "numpy"))
    for array, other in zip(found, expected, strict=True):
        for is_odd in (np.isnan, np.isposinf, np.isneginf):
            assert np.array_equal(is_odd(array), is_odd(other))
        assert_close(array[np.isfinite(other)], other[np.isfinite(other)], "float32")


def test_a_sum_of_other_shapes_is_numpys(rng):
    a, b = rng.normal(size=(5, 1, 7)), rng.normal(size=(3, 7))
    with backend("numba"):
        assert_close(add(a, b), a + b, "exact")


@by_dtype
@pytest.mark.parametrize("shape", [(), (3,), (2 * ROWS + 5, D), (2, 3, 5)])
def test_the_length_of_a_gradient(rng, dtype, shape):
    layer = LayerNorm(2, backend="numba")
    gradient = (1e30 * rng.normal(size=shape)).astype(dtype)  # whose squares overflow in float32
    layer.params, layer.grads = {"gain": gradient}, {"gain": gradient}
    assert_close(gradient_norm(layer) / 1e30, np.linalg.norm(gradient / 1e30), "float32")


@by_dtype
@pytest.mark.parametrize("width", [1, D, 100])
def test_embedding_and_positions(rng, dtype, width):
    """Whole numbers, so that sums in any order are the same."""
    draw = functools.partial(rng.integers, -9, 9)
    ids, table = rng.integers(0, 7, (3, 29)).T, draw(size=(8, width)).astype(dtype)
    d_out = np.asfortranarray(draw(size=(29, 3, width)).astype(dtype))
    x, places = draw(size=(2, 29, 3, width)).astype(dtype), draw(size=(5, width)).astype(dtype)
    found, expected = [], []
    for name, results in (("numba", found), ("numpy", expected)):
        with backend(name):
            out, cache = layers.embedding_forward(ids, table)
        results += [out, *layers.embedding_backward(d_out, cache)]
        with backend(name):
            out, cache = layers.learned_positions_forward(x, places, offset=1)
        results += [out, *layers.learned_positions_backward(x[::-1], cache)]
    for array, other in zip(found, expected, strict=True):
        assert array.dtype == dtype
        assert_close(array, other, "exact")
