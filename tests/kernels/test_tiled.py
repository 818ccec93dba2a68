"""The tiled kernels through the public API, on problems of many tiles."""

import functools
import itertools
import tracemalloc

import numba
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mha_numpy import attention_backward, attention_forward, merge_heads, split_heads
from mha_numpy.kernels import parallel, tiled
from tests.compare import TOLERANCES, Tolerance, assert_close
from tests.core.configurations import as_dtype, attention_configuration, results
from tests.kernels.drivers import DTYPES, by_dtype
from tests.kernels.problems import LAYOUTS, array_options, random_inputs
from tests.sweeps import sweep

SEEDS = range(100)
# a row's gradient is weights * (d_weights - their mean), where both may be large and nearly equal;
# the mean is taken of the output, so that they do not even cancel where a row sees one key alone
BY_SCORES = {"d_q", "d_k", "d_bias", "out_dot", "lse_dot"}
NARROW = {np.float32: Tolerance(2e-6, 5e-5), np.float64: TOLERANCES["float64"]}


def assert_results(found, expected, dtype):
    """Compare what a kernel found in a dtype with the reference in float64."""
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == dtype, name
        tolerance = NARROW[dtype] if name in BY_SCORES else np.dtype(dtype).name
        assert_close(array, expected[name], tolerance, name=name)


def assert_as_the_reference(inputs, options, dtypes=DTYPES, layout=None):
    """Compare in each dtype; the inputs' floats are float32's."""
    expected = results(inputs, options, "numpy")
    for dtype in dtypes:
        narrow = as_dtype(inputs, dtype), as_dtype(options, dtype)
        assert_results(results(*narrow, "numba", layout=layout), expected, dtype)


tiled_problem = functools.partial(attention_configuration, many_tiles=True)


@functools.lru_cache(maxsize=1)
def problem_and_results(seed):
    problem = tiled_problem(seed)
    return *problem, results(*problem, "numpy")


def anywhere(seed):
    """Return a function that puts each array elsewhere in memory."""
    rng, layouts = np.random.default_rng(seed), list(LAYOUTS.values())
    return lambda array: layouts[rng.integers(len(layouts))](array)


def with_garbage(*args, laid_out_as=tiled.laid_out_as):
    """Return memory for a result as it may come: whatever is not written shows."""
    made = laid_out_as(*args)
    made.fill(np.nan)
    return made


PAIRS = {"forward by loops": ("loops", "numba"), "backward by loops": ("numba", "loops")}


@pytest.mark.parametrize("how", ["as it comes", "arrays anywhere", "chunks of 64", *PAIRS])
@by_dtype
@pytest.mark.parametrize("seed", sweep(SEEDS, 20))
def test_as_the_reference(monkeypatch, seed, dtype, how):
    inputs, options, expected = problem_and_results(seed)
    layout = anywhere(seed) if how == "arrays anywhere" else None
    if how == "chunks of 64":
        monkeypatch.setattr(tiled, "chunk_size", lambda *_: 64)
    monkeypatch.setattr(tiled, "laid_out_as", with_garbage)
    narrow, pair = (as_dtype(inputs, dtype), as_dtype(options, dtype)), PAIRS.get(how, ["numba"])
    assert_results(results(*narrow, *pair, layout=layout), expected, dtype)


@by_dtype
@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_that_all_lie_alike(name, dtype):
    for options in ({}, array_options(2, 4, 70, 130)):
        inputs = random_inputs(2, 4, 2, 70, 130, 16, 32)
        assert_as_the_reference(inputs, options, [dtype], LAYOUTS[name])


@by_dtype
def test_one_row_for_all_costs_no_copy_of_it(dtype):
    inputs = random_inputs(2, 4, 2, 70, 130, 17, 33)
    stretched = {name: np.broadcast_to(x[:1, :1, :1], x.shape) for name, x in inputs.items()}
    found = results(as_dtype(stretched, dtype), {}, "numba", layout=lambda array: array)
    assert_results(found, results(stretched, {}, "numpy"), dtype)
    same = np.broadcast_to(np.arange(1.0, 18.0, dtype=dtype), (1, 2, 200, 17))
    assert_as_the_reference({"q": same / 9, "k": same / 9, "v": same}, {}, [dtype])


class TestChunks:
    @pytest.mark.parametrize("d", [1, 16, 64, 80, 4000])
    @pytest.mark.parametrize("heads", [1, 2, 7, 16, 100])
    def test_size(self, heads, d):
        for T_k in (1, 63, 64, 65, 128, 129, 1000, 4096, 100_000):
            chunk = tiled.chunk_size(T_k, heads, d)
            assert chunk > 0
            assert chunk % 64 == 0 or chunk == T_k
            assert chunk < max(64, tiled.CHUNK_NUMBERS // d) + 64
            assert chunk <= T_k

    @pytest.mark.parametrize("T_q", sweep([1, 200, 700], 2))
    @pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (300, 40)}], ids=str)
    def test_as_many_as_long_sequences_have(self, T_q, options):
        inputs = random_inputs(1, 2, 1, T_q, 1900, 48, 65)
        assert tiled.chunk_size(1900, 1, 65) < 1900 / 4
        assert_as_the_reference(inputs, options | {"q_offset": (1900 - T_q) // 2})


class TestSoftmax:
    @by_dtype
    @pytest.mark.parametrize("order", [1, -1])
    def test_scores_that_rise_or_fall_far(self, dtype, order):
        inputs = random_inputs(1, 2, 2, 70, 300, 16, 16)
        inputs["k"][..., 0] = np.linspace(-30, 30, 300)[::order].astype(np.float32)
        inputs["q"][..., 0] = 10  # scores between -300 and 300
        expected = results(inputs, {"scale": 1.0}, "numpy")
        found = results(as_dtype(inputs, dtype), {"scale": 1.0}, "numba")
        # of scores of 300, times a q of 10 in d_k
        rounding = Tolerance(0, 40_000 * np.finfo(dtype).eps)
        for name, array in found.items():
            assert_close(array, expected[name], rounding, name=name)

    @by_dtype
    def test_scores_too_far_apart_for_a_power(self, dtype):
        inputs = {"q": np.full((1, 1, 3, 1), 100.0), "k": np.zeros((1, 1, 200, 1))}
        inputs["v"] = np.arange(200.0).reshape(1, 1, 200, 1)
        for best in (0, 70, 199):
            inputs["k"][...] = -50
            inputs["k"][0, 0, best] = 50
            found = results(as_dtype(inputs, dtype), {}, "numba", d_lse=0)
            assert (found["out"] == best).all()
            assert (found["lse"] == 5000).all()
            assert not found["d_k"].any()
            assert not found["d_q"].any()
            assert np.flatnonzero(found["d_v"].any(axis=-1)).tolist() == [best]


BLIND = np.isin(np.arange(130), [*range(70), 100])
WAYS_TO_HIDE = {  # inputs and options, and the queries that see nothing
    "mask": ({}, {"mask": ~BLIND[:, None]}, BLIND),
    "bias": ({"bias": np.where(BLIND, -np.inf, 0.5)[:, None]}, {}, BLIND),
    "window": ({}, {"window": (10, None), "q_offset": 60}, np.arange(130) + 60 - 10 >= 130),
    "causal": ({}, {"is_causal": True, "q_offset": -70}, np.arange(130) < 70),
}


class TestNothingToSee:
    @by_dtype
    @pytest.mark.parametrize("how", WAYS_TO_HIDE)
    def test_rows_are_exactly_zero(self, dtype, how):
        bias, options, blind = WAYS_TO_HIDE[how]
        inputs = random_inputs(2, 6, 2, 130, 130, 17, 33) | bias
        found = results(as_dtype(inputs, dtype), options, "numba")
        assert (found["out"][:, :, blind] == 0).all()
        assert (found["lse"][:, :, blind] == -np.inf).all()
        assert (found["d_q"][:, :, blind] == 0).all()
        assert found["out"][:, :, ~blind].all()
        assert np.isfinite(found["lse"][:, :, ~blind]).all()
        assert_results(found, results(inputs, options), dtype)

    @by_dtype
    @pytest.mark.parametrize("T_q", [1, 5, 130])
    def test_by_anybody(self, dtype, T_q):
        inputs = random_inputs(2, 6, 2, T_q, 130, 17, 33)
        found = results(as_dtype(inputs, dtype), {"mask": np.zeros((T_q, 130), bool)}, "numba")
        for name, array in found.items():
            assert (array == (-np.inf if name == "lse" else 0)).all(), name

    @by_dtype
    @pytest.mark.parametrize("T_q", [1, 5, 64, 130])
    def test_in_padding(self, dtype, T_q):
        """Keys of padding may hold anything: what comes out is what came without them."""
        inputs = random_inputs(2, 6, 2, T_q, 200, 17, 33)
        lengths = (200, 61)
        mask = (np.arange(200) < np.array(lengths)[:, None])[:, None, None, :]
        for odd in (np.nan, np.inf, -np.inf):
            for name in ("k", "v"):
                inputs[name][1, :, 61:] = odd
            found = results(as_dtype(inputs, dtype), {"mask": mask}, "numba", d_lse=0.5)
            for b, length in enumerate(lengths):
                only = {"q": inputs["q"], "k": inputs["k"][:, :, :length],
                        "v": inputs["v"][:, :, :length]}  # fmt: skip
                only = {name: x[b : b + 1] for name, x in only.items()}
                d_out = np.random.default_rng(7).normal(size=found["out"].shape)
                d_out = d_out.astype(np.float32)[b : b + 1]
                expected = results(only, {}, "numpy", d_out=d_out, d_lse=0.5)
                mine = {name: x[b : b + 1] for name, x in found.items()}
                for name in ("d_k", "d_v"):
                    assert (mine[name][:, :, length:] == 0).all()
                    mine[name] = mine[name][:, :, :length]
                assert_results(mine, expected, dtype)

    @by_dtype
    def test_in_queries_without_keys(self, dtype):
        inputs = random_inputs(1, 2, 1, 130, 130, 16, 16)
        mask = np.ones((130, 130), bool)
        mask[100:] = False
        expected = results(as_dtype(inputs, dtype), {"mask": mask}, "numba")
        inputs["q"][:, :, 100:] = np.nan
        found = results(as_dtype(inputs, dtype), {"mask": mask}, "numba")
        for name, array in found.items():
            assert_close(array, expected[name], np.dtype(dtype).name, name=name)


@by_dtype
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["bias", "dropout_mask"])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # 0 * inf in the reference
def test_what_is_added_or_dropped_in_hidden_cells_is_never_read(dtype, odd, name, softcap):
    inputs, options = random_inputs(2, 4, 2, 70, 130, 16, 33), array_options(2, 4, 70, 130)
    hidden = ~options["mask"]
    inputs["bias"] = options.pop("bias")
    arrays = inputs if name == "bias" else options
    arrays[name][hidden] = odd
    assert_as_the_reference(inputs, options | {"softcap": softcap}, [dtype])


def poisoned_problem(seed):
    """Return inputs, options, d_out, and the name of which of them holds a few odd numbers."""
    inputs, options = tiled_problem(seed)
    rng = np.random.default_rng(seed)
    d_out = rng.normal(size=(*inputs["q"].shape[:3], inputs["v"].shape[3]))
    arrays = inputs | {"d_out": d_out}
    if "dropout_mask" in options:
        arrays["dropout_mask"] = options["dropout_mask"]
    name = str(rng.choice(list(arrays)))
    for _ in range(rng.integers(1, 4)):
        where = tuple(rng.integers(n) for n in arrays[name].shape)
        arrays[name][where] = rng.choice([np.nan, np.inf, -np.inf])
    return inputs, options, d_out, name


@pytest.mark.parametrize("seed", sweep(range(3000, 3120), 30))
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf: NumPy says so
def test_nan_and_infinity_go_where_they_go_in_the_reference(seed):
    inputs, options, d_out, name_of_poisoned = poisoned_problem(seed)
    expected = results(inputs, options, "numpy", d_out=d_out)
    for dtype in DTYPES:
        narrow = as_dtype(inputs, dtype), as_dtype(options, dtype)
        found = results(*narrow, "numba", d_out=d_out)
        for name, array in found.items():
            wanted = expected[name].copy()
            if name_of_poisoned in ("d_out", "dropout_mask"):
                # weights * (inf - mean): inf or NaN as the sums in the mean fall
                odd = ~np.isfinite(array)
                np.testing.assert_array_equal(odd, ~np.isfinite(wanted), err_msg=name)
                wanted[odd] = array[odd]
            tolerance = NARROW[dtype] if name in BY_SCORES else np.dtype(dtype).name
            assert_close(array, wanted, tolerance, name=name)


@by_dtype
@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf in the reference
def test_a_sink_of_nan_or_infinity_in_rows_without_keys(dtype, odd):
    inputs = random_inputs(1, 2, 2, 70, 70, 16, 16) | {"sink": np.array([0.5, odd])}
    options = {"is_causal": True, "q_offset": -15}  # 15 rows see nothing, in a tile that sees keys
    assert_as_the_reference(inputs, options, [dtype])
    out = results(as_dtype(inputs, dtype), options, "numba")["out"]
    assert not out[:, :, :15].any()


class TestThreads:
    @pytest.fixture
    def set_threads(self, monkeypatch):
        """A function that sets the number of threads, however little there is to do."""
        if numba.config.NUMBA_NUM_THREADS < 2:
            pytest.skip("one thread is all there is")
        monkeypatch.setattr(parallel, "LEAST_WORK", 0)
        before = numba.get_num_threads()
        yield numba.set_num_threads
        numba.set_num_threads(before)

    @pytest.mark.parametrize("seed", range(20))
    def test_bitwise_the_same_for_any_number_and_again(self, set_threads, seed):
        inputs, options = tiled_problem(seed)
        inputs, options = as_dtype(inputs, np.float32), as_dtype(options, np.float32)
        first, *others = (set_threads(n) or results(inputs, options, "numba") for n in (1, 2, 2, 1))
        for other, (name, array) in itertools.product(others, first.items()):
            assert other[name].tobytes() == array.tobytes(), name

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("T", [1, 64])
    def test_without_memory_for_its_tiles_it_raises(self, set_threads, monkeypatch, threads, T):
        """A tile has rows of 2^50 numbers, of which all are the same one: no memory has as many."""
        set_threads(threads)
        monkeypatch.setattr(parallel, "LEAST_WORK", 1)
        wide = as_strided(np.ones(1), (1, 2, T, 2**50 // T), (0, 0, 0, 0))
        k = as_strided(wide, wide.shape, (0, 0, 0, 8)) if T == 1 else wide  # few rows: contiguous
        with pytest.raises(RuntimeError, match="no memory for its scratch"):
            attention_forward(wide, k, np.ones((1, 2, T, 8)), backend="numba")

    def test_little_work_is_left_to_one(self, set_threads, monkeypatch):
        set_threads(2)
        monkeypatch.setattr(parallel, "LEAST_WORK", 100)
        assert parallel.count_threads(99) == 1
        assert parallel.count_threads(100) == 2


@by_dtype
@pytest.mark.parametrize("d", [64, 43])
@pytest.mark.parametrize("T_q", [1, 8, 9, 70])
def test_large_scores_are_rounded_alike_in_forward_and_backward(rng, dtype, T_q, d):
    q, k, v = (1e4 * rng.normal(size=(2, 4, T, d)).astype(dtype) for T in (T_q, 130, 130))
    out, cache = attention_forward(q, k, v, backend="numba")
    d_v = attention_backward(np.ones_like(out), cache).d_v  # at each key, the sum of its weights
    assert_close(d_v.sum(axis=-2), np.full((2, 4, d), T_q), Tolerance(1e-5, 0))


def test_heads_split_from_tokens_come_back_so(rng):
    q, k = split_heads(rng.normal(size=(2, 70, 40)), 4), split_heads(rng.normal(size=(2, 9, 20)), 2)
    v = np.ascontiguousarray(k)
    out, cache = attention_forward(q, k, v, backend="numba")
    grads = attention_backward(out, cache)
    for x in (out, grads.d_q, grads.d_k):
        assert np.shares_memory(merge_heads(x), x)  # nothing is copied
    assert grads.d_v.flags.c_contiguous


MAKE_OPTIONS = {
    "none": lambda T, dtype: {},
    "causal": lambda T, dtype: {"is_causal": True},
    "mask": lambda T, dtype: {"mask": np.tri(T, dtype=bool)},
    "dropout": lambda T, dtype: {"dropout_mask": np.ones((T, T), dtype)},
}


@by_dtype
@pytest.mark.parametrize("name", MAKE_OPTIONS)
def test_memory_grows_with_T_and_not_with_its_square(dtype, name):
    def peak(T):
        inputs = as_dtype(random_inputs(1, 2, 1, T, T, 16, 16), dtype)
        given = MAKE_OPTIONS[name](T, dtype)
        tracemalloc.start()
        out, cache = attention_forward(**inputs, **given, backend="numba")
        attention_backward(out, cache)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(64)  # what is kept for good
    short, long = peak(1024), peak(4096)
    assert long < 4.5 * short
    assert long < 4096**2 / 4  # bytes: not even bits of one head's cells, eight times over
