"""What holds for each pair alike."""

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.errors import ConfigError, DTypeError, ShapeError
from tests.compare import assert_close
from tests.gradients import assert_gradients
from tests.layers.pairs import PAIRS, D
from tests.slopes import assert_slopes, inner_product, random_tangents, slopes
from tests.sweeps import sweep

pytestmark = pytest.mark.usefixtures("backend")
each_pair = pytest.mark.parametrize("name", PAIRS)
each_that_maps_tokens = pytest.mark.parametrize("name", [n for n in PAIRS if PAIRS[n].maps_tokens])
RANKS = [(), (4,), (2, 3), (2, 1, 3), (1, 2, 1, 3)]


def run(pair, rng, tokens, dtype=np.float64):
    """Return output and gradients of both passes, the upstream gradient being random."""
    forward, inputs = pair.ready(rng, tokens, dtype)
    out, cache = forward(**inputs)
    d_out = np.asarray(rng.normal(size=out.shape)).astype(dtype)
    return out, arrays(pair.backward(d_out, cache)), arrays(inputs)


def arrays(tree):
    """Return the arrays of inputs, or of grads, by name and without the `d_`."""
    tree = tree if isinstance(tree, dict) else tree._asdict()
    found = leaves({name.removeprefix("d_"): part for name, part in tree.items()})
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        pytest.param(name, tokens, marks=() if tokens == (2, 3) else pytest.mark.slow)
        for name in PAIRS
        for tokens in RANKS[PAIRS[name].least_rank :]
    ],
)
def test_gradients(name, tokens, rng):
    forward, inputs = PAIRS[name].ready(rng, tokens)
    assert_gradients(forward, PAIRS[name].backward, inputs)


@each_pair
@pytest.mark.parametrize("tokens", [(2, 3), (2, 1, 3)])
def test_forward_mode(name, tokens, rng):
    """Against a complex step, and as the transpose of backward."""
    pair = PAIRS[name]
    forward, inputs = pair.ready(rng, tokens)
    out, cache = forward(**inputs)
    tangents = random_tangents(inputs, 0)
    out_dot = pair.jvp(tangents, cache)
    assert out_dot.dtype == out.dtype
    assert_slopes([out_dot], slopes(lambda **x: forward(**x)[:1], inputs, tangents))
    d_out = np.asarray(rng.normal(size=out.shape))
    grads, dots = arrays(pair.backward(d_out, cache)), arrays(tangents)
    columns, size = inner_product([(d_out, np.asarray(out_dot))])
    rows, more = inner_product([(grads[part], dots[part]) for part in dots])
    assert abs(columns - rows) <= 1e-12 * max(1, size, more)
    for part in inputs:  # one moves alone
        alone = pair.jvp({part: tangents[part]}, cache)
        still = {n: zeros_like(x) for n, x in inputs.items()}
        both = pair.jvp(still | {part: tangents[part]}, cache)
        assert np.array_equal(alone, both)


def zeros_like(tree):
    """Return 0 for each number of an array, or of the arrays of a tuple."""
    return replaced(tree, {n: np.zeros_like(x) for n, x in leaves(tree).items() if x is not None})


@each_pair
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_dtype_is_kept_and_close_to_float64(name, dtype):
    pair, tokens = PAIRS[name], (4, 50)
    if "positions" in name:
        tokens = (50, 4)
    out, grads, _ = run(pair, np.random.default_rng(0), tokens, dtype)
    exact_out, exact_grads, _ = run(pair, np.random.default_rng(0), tokens)
    assert {out.dtype, *(g.dtype for g in grads.values())} == {np.dtype(dtype)}
    # inputs and upstream gradient are rounded, too
    allowed = 12 * float(np.finfo(dtype).eps)
    grads, exact_grads = grads | {"out": out}, exact_grads | {"out": exact_out}
    for part, exact in exact_grads.items():
        actual = grads[part]
        assert np.abs(actual - exact).max() <= allowed * max(1, np.abs(exact).max())


@each_pair
def test_mixed_floats_promote(name, rng):
    pair = PAIRS[name]
    forward, inputs = pair.ready(rng, (2, 3))
    first, *others = inputs
    narrow = inputs | {first: inputs[first].astype(np.float32)}
    out, cache = forward(**narrow)
    assert out.dtype == (np.float64 if others or "dropout" in name else np.float32)
    d_out = np.ones(out.shape, np.longdouble)  # a gradient is as wide as what it is of
    assert arrays(pair.backward(d_out, cache))[first].dtype <= np.float64


@each_pair
@pytest.mark.parametrize("tokens", sweep([(2, 0), (0,), (0, 3)], 1))
def test_empty_axes(name, tokens, rng):
    pair = PAIRS[name]
    out, grads, inputs = run(pair, rng, tokens)
    assert {n: g.shape for n, g in grads.items()} == {n: x.shape for n, x in inputs.items()}
    assert not any(gradient.any() for gradient in grads.values())
    assert out.size == 0 if pair.maps_tokens else not out.any()


@each_that_maps_tokens
def test_nan_stays_in_its_token(name, rng):
    pair = PAIRS[name]
    forward, inputs = pair.ready(rng, (2, 3))
    first = next(iter(inputs))
    spoilt = inputs | {first: inputs[first].copy()}
    spoilt[first][1, 2] = np.nan
    others = np.ones((2, 3), bool)
    others[1, 2] = False
    (out, cache), (odd_out, odd_cache) = forward(**inputs), forward(**spoilt)
    d_out = rng.normal(size=out.shape)
    grads, odd_grads = (arrays(pair.backward(d_out, c)) for c in (cache, odd_cache))
    # a product of another number of tokens may be rounded differently
    tolerance = "float64" if "experts" in name else "exact"
    assert_close(odd_out[others], out[others], tolerance)
    assert_close(odd_grads[first][others], grads[first][others], tolerance)
    is_ignored = "ignore_index" in forward.keywords and forward.keywords["targets"][1, 2] < 0
    assert np.isnan(odd_out[1, 2]).any() != is_ignored


@each_pair
def test_wrong_calls_of_backward(name, rng):
    pair = PAIRS[name]
    forward, inputs = pair.ready(rng, (2, 3))
    out, cache = forward(**inputs)
    asked = type(cache).__name__
    with pytest.raises(ConfigError, match=f"^cache: expected the {asked} of .*_forward; got None$"):
        pair.backward(out, None)
    with pytest.raises(ShapeError, match=r"^d_(out|loss): expected .*\), as (out|loss); got \("):
        pair.backward(out[..., None], cache)
    with pytest.raises(DTypeError, match="^d_(out|loss): expected a float array; got .*int64"):
        pair.backward(np.zeros(out.shape, int), cache)


@each_pair
def test_the_first_input_has_to_be_floats(name, rng):
    pair = PAIRS[name]
    forward, inputs = pair.ready(rng, (2, 3))
    first = next(iter(inputs))
    with pytest.raises(DTypeError, match=f"^{first}: expected a float array; got .*int64"):
        forward(**inputs | {first: inputs[first].astype(int)})


@each_pair
def test_long_double_is_kept(name, rng):
    out, grads, _ = run(PAIRS[name], rng, (2, 3), np.longdouble)
    assert {out.dtype, *(g.dtype for g in grads.values())} == {np.dtype(np.longdouble)}


def test_norms_of_float16_do_not_overflow(rng):
    """The square of 300 is beyond float16."""
    for name in ("layer norm", "rms norm"):
        forward, inputs = PAIRS[name].ready(rng, (4,))
        exact, _ = forward(**inputs | {"x": 300 * inputs["x"]})
        inputs = {n: x.astype(np.float16) for n, x in inputs.items()}
        out, _ = forward(**inputs | {"x": np.float16(300) * inputs["x"]})
        assert out.shape == (4, D)
        assert_close(out, exact, "float16")
