"""Every forward with every backward; what the kernels are given, and when they are not asked."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    attention_backward,
    attention_forward,
    attention_stages,
    backends,
    multi_head_attention_decode,
    scaled_dot_product_attention,
)
from mha_numpy.core import linear_forward
from mha_numpy.core.attention import AttentionCache
from mha_numpy.dtypes import allow_complex
from mha_numpy.layers import MultiHeadAttention
from tests.backends import BACKENDS_UNDER_TEST, EACH_BACKEND, EACH_KERNEL
from tests.compare import assert_close
from tests.core.configurations import SEEDS, as_dtype, attention_configuration, results
from tests.core.test_multihead import square_params
from tests.processes import run_python
from tests.sweeps import sweep

by_kernel = pytest.mark.parametrize("kernel", EACH_KERNEL)
PAIRS = list(itertools.product(BACKENDS_UNDER_TEST, repeat=2))


def assert_twins(inputs, options, dtype=np.float64):
    """Fail unless all pairs of forward and backward give what the reference gives in float64."""
    narrow = as_dtype(inputs, dtype), as_dtype(options, dtype)
    expected = results(as_dtype(narrow[0], np.float64), options)
    for pair in PAIRS:
        found = results(*narrow, *pair)
        assert found.keys() == expected.keys()
        for name, array in found.items():
            assert array.dtype == dtype
            assert_close(array, expected[name], np.dtype(dtype).name, name=f"{name} of {pair}")


@pytest.mark.kernel
@pytest.mark.parametrize("seed", sweep(SEEDS, 60, every=4))
def test_all_pairs_agree(seed):
    assert_twins(*attention_configuration(seed), np.float64)


@pytest.mark.kernel
@pytest.mark.parametrize("seed", SEEDS[:60])  # in some others a gradient is truly 0: all rounding
def test_all_pairs_agree_in_float32(seed):
    assert_twins(*attention_configuration(seed), np.float32)


@pytest.mark.kernel
@pytest.mark.parametrize("q_offset", [2**60, -(2**60), 2**60 - 1])
@pytest.mark.parametrize("window", [None, (None, 2**60), (2**60, None)])
def test_an_open_side_reaches_from_any_offset(qkv, q_offset, window):
    inputs = dict(zip("qkv", qkv, strict=True))
    assert_twins(inputs, {"q_offset": q_offset, "window": window})


@by_kernel
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("seed", sweep(SEEDS[:80], 20, every=3))
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf: NumPy says so
def test_poison_goes_where_it_goes_in_the_reference(kernel, poison, seed):
    inputs, options = attention_configuration(seed)
    rng = np.random.default_rng(seed)
    name = rng.choice([name for name in inputs if name != "bias"])
    inputs[name][tuple(rng.integers(n) for n in inputs[name].shape)] = poison
    expected = results(inputs, options)
    for name, array in results(inputs, options, kernel).items():
        odd, there = ~np.isfinite(array), ~np.isfinite(expected[name])
        assert np.array_equal(odd, there), name
        assert_close(array[~odd], expected[name][~odd], name=name)


@pytest.mark.parametrize("backend", EACH_BACKEND)
@pytest.mark.parametrize(
    ("scores", "options", "out", "lse"),
    [
        ([-np.inf, 3.0], {}, 4, 3),  # 0 / 1 and 1 / 1
        ([3.0, -np.inf], {}, 2, 3),
        ([-np.inf, -np.inf], {}, np.nan, np.nan),  # 0 / 0
        ([-np.inf, 3.0], {"mask": np.array([True, False])}, np.nan, np.nan),
        ([np.inf, 3.0], {}, np.nan, np.nan),
        ([3.0, np.inf], {}, np.nan, np.nan),
    ],
)
def test_infinite_scores_of_two_keys(backend, scores, options, out, lse):
    k, v = np.array(scores)[:, None], np.array([[2.0], [4.0]])
    with np.errstate(invalid="ignore"):
        found, cache = attention_forward(np.ones((1, 1)), k, v, backend=backend, **options)
    assert_close([found.item(), cache.lse.item()], [out, lse], "exact")


class TestCache:
    @by_kernel
    def test_a_kernel_keeps_no_cells_and_shows_the_reference_s(self, qkv, kernel):
        options = {"is_causal": True, "softcap": 2.0, "bias": np.ones((6, 1, 7))}
        _, cache = attention_forward(*qkv, **options, backend=kernel)
        assert cache.cells is None
        assert (cache.heads.shape, cache.lse.shape) == ((4, 6, 5, 13), (4, 6, 5))
        _, expected = attention_forward(*qkv, **options)
        assert_close(cache.weights, expected.weights, "exact")
        for stage, other in zip(attention_stages(cache), attention_stages(expected), strict=True):
            assert_close(stage, other, "exact")
        _, weights = scaled_dot_product_attention(
            *qkv, **options, backend=kernel, return_weights=True
        )
        assert_close(weights, expected.weights, "exact")

    @pytest.mark.usefixtures("backend")
    def test_nobody_computes_weights_unasked(self, rng, qkv, monkeypatch):
        def weights(cache):
            raise AssertionError("nobody has asked for the weights")

        monkeypatch.setattr(AttentionCache, "weights", property(weights))
        x = rng.normal(size=(2, 5, 8))
        layer = MultiHeadAttention(8, 2)
        layer.backward(layer(x))
        layer(x, kv_cache=KVCache())
        params = square_params(rng, 8, 8)
        multi_head_attention_decode(x, kv_cache=KVCache(), params=params, num_heads=2)
        scaled_dot_product_attention(*qkv)
        with pytest.raises(AssertionError, match="nobody has asked"):
            layer(x, return_weights=True)


def no_kernel(*_):
    raise AssertionError("no kernel is expected here")


class TestChoice:
    def test_backward_is_forward_s_unless_it_is_named(self, qkv, monkeypatch):
        asked = []
        monkeypatch.setattr(backends, "_load", lambda name, _: asked.append(name) or KernelOfOnes())
        out, cache = attention_forward(*qkv, backend="loops")
        with backends.backend("numpy"):
            attention_backward(out, cache)
        attention_backward(out, cache, backend="numba")
        attention_backward(out, cache, backend="numpy")
        assert asked == ["loops", "loops", "numba"]

    @pytest.mark.parametrize("name", backends.KERNELS)
    def test_what_kernels_do_not_cover_is_the_reference_s(self, qkv, monkeypatch, name):
        monkeypatch.setattr(backends, "_load", no_kernel)
        q, k, v = qkv
        wide = [x.astype(np.longdouble) for x in qkv]
        empty = [(q[:0], k[:0], v[:0]), (q[:, :, :0], k, v), (q, k[:, :, :0], v[:, :, :0]),
                 (q[..., :0], k[..., :0], v), (q, k, v[..., :0])]  # fmt: skip
        for arrays in (wide, *empty):
            out, cache = attention_forward(*arrays, backend=name)
            attention_backward(out, cache)
        with allow_complex():
            attention_forward(q + 0j, k, v, backend=name)
        with pytest.raises(AssertionError, match="no kernel"):
            attention_forward(q.astype(np.float16), k.astype(np.float16), v, backend=name)

    def test_maps_that_tiles_do_not_cover_are_numpy_s(self, rng, monkeypatch):
        monkeypatch.setattr(backends, "_load", no_kernel)
        x, w = rng.normal(size=(2, 5, 8)), rng.normal(size=(8, 3))
        for a, b in [(x.astype(np.longdouble), w.astype(np.longdouble)),
                     (x[:0], w), (x[..., :0], w[:0]), (x, w[:, :0]), (x + 0j, w + 0j)]:  # fmt: skip
            with allow_complex(), backends.backend("numba"):
                assert np.array_equal(linear_forward(a, b)[0], a @ b)
        with backends.backend("numba"), pytest.raises(AssertionError, match="no kernel"):
            linear_forward(x, w)

    @by_kernel
    def test_products_of_a_layer_are_its_backend_s(self, rng, monkeypatch, kernel):
        asked, load = [], backends._load
        monkeypatch.setattr(
            backends, "_load", lambda name, kernels: asked.append(kernels) or load(name, kernels)
        )
        x, layer = rng.normal(size=(2, 5, 8)), MultiHeadAttention(8, 2, backend=kernel)
        layer.backward(layer(x))
        products = asked.count("mha_numpy.kernels.matmul")
        # forward and backward: three projections at once, and that of the output
        assert products == (4 if kernel == "numba" else 0)
        asked.clear()
        layer(x, kv_cache=KVCache())
        assert asked.count("mha_numpy.kernels.matmul") == products // 2

    @pytest.mark.parametrize("name", backends.KERNELS)
    def test_without_numba(self, name):
        lines, _ = run_python(
            "import sys; sys.modules['numba'] = None",
            "import numpy as np, mha_numpy",
            "x = np.ones((2, 3))",
            f"try: mha_numpy.attention_forward(x, x, x, backend={name!r})",
            "except mha_numpy.BackendError as error: print(error)",
            f"try: mha_numpy.layers.MultiHeadAttention(4, 2, backend={name!r})(np.ones((1, 3, 4)))",
            "except mha_numpy.BackendError as error: print(error)",
        )
        assert len(lines) == 2
        for line in lines:
            assert line.startswith(f"backend: '{name}' needs numba")
            assert line.endswith("; pip install numba, or write backend='numpy'")


# what every kernel takes, in this order
KERNEL_INPUTS = (
    "q", "k", "v", "mask", "bias", "dropout_mask", "sink", "q_offset", "left", "right", "scale",
    "softcap",
)  # fmt: skip


class KernelOfOnes(SimpleNamespace):
    """A kernel that keeps what it is given last, and returns ones."""

    def attention_forward(self, *inputs):
        self.given = dict(zip(KERNEL_INPUTS, inputs, strict=True))
        q, _, v, *_ = inputs
        return np.ones((*q.shape[:3], v.shape[3])), np.zeros(q.shape[:3])

    def attention_backward(self, d_heads, d_lse, heads, lse, *inputs):
        self.given = dict(zip(KERNEL_INPUTS, inputs, strict=True))
        self.given |= {"d_heads": d_heads, "d_lse": d_lse, "heads": heads, "lse": lse}
        q, k, v, _, bias, *_ = inputs
        d_biased = None if bias is None else np.ones((*q.shape[:3], k.shape[2]))
        return [*(np.ones(x.shape) for x in (q, k, v)), d_biased, None]  # no means of rows


class TestWhatAKernelIsGiven:
    @pytest.fixture
    def kernel(self, monkeypatch):
        kernel = KernelOfOnes()
        monkeypatch.setattr(backends, "_load", lambda *_: kernel)
        return kernel

    @pytest.mark.parametrize("rank", [2, 3, 4])
    def test_rank_4_and_cells_not_stretched_and_not_copied(self, qkv, kernel, rank):
        q, k, v = (x[(0,) * (4 - rank)] if rank < 3 else x[:, 0] if rank == 3 else x for x in qkv)
        B, H, H_kv = {2: (1, 1, 1), 3: (4, 1, 1), 4: (4, 6, 3)}[rank]
        cells = {name: np.ones(7) for name in ("bias", "dropout_mask")} | {"mask": np.ones(7, bool)}
        out, cache = attention_forward(q, k, v, **cells, backend="loops")
        given = kernel.given
        shapes = {"q": (B, H, 5, 11), "k": (B, H_kv, 7, 11), "v": (B, H_kv, 7, 13)}
        shapes |= dict.fromkeys(cells, (1, 1, 1, 7))
        assert {name: given[name].shape for name in shapes} == shapes
        for name in "qkv":
            assert np.shares_memory(given[name], locals()[name])
        for name, array in cells.items():
            assert np.shares_memory(given[name], array)
        assert out.shape == cache.heads.shape == (*q.shape[:-1], 13)
        assert cache.lse.shape == q.shape[:-1]

        grads = attention_backward(out.astype(np.longdouble), cache)
        given = kernel.given
        rows = {"d_heads": (B, H, 5, 13), "heads": (B, H, 5, 13), "lse": (B, H, 5)}
        assert {name: given[name].shape for name in (shapes | rows)} == shapes | rows
        assert given["d_heads"].dtype == np.float64
        assert [d_x.shape for d_x in grads[:4]] == [q.shape, k.shape, v.shape, (7,)]
        assert (grads.d_bias == B * H * 5).all()  # the sum of ones

    def test_options(self, qkv, kernel):
        attention_forward(*qkv, backend="loops")
        given = kernel.given
        assert [given[name] for name in ("mask", "bias", "dropout_mask", "softcap")] == [None] * 4
        assert given["scale"] == pytest.approx(11**-0.5)
        assert given["left"] == given["right"] == 2**61
        assert given["q_offset"].tolist() == [0]
        attention_forward(*qkv, backend="loops", window=(3, None), q_offset=2, scale=0.5, softcap=7)
        given = kernel.given
        assert (given["left"], given["right"]) == (3, 2**61)
        assert (given["scale"], given["softcap"]) == (0.5, 7.0)
        assert given["q_offset"].tolist() == [2]
        assert given["q_offset"].dtype == np.int64
        offsets = np.array([3, 1, 4, 1], np.uint8)
        attention_forward(*qkv, backend="loops", is_causal=True, window=(None, 5), q_offset=offsets)
        given = kernel.given
        assert (given["left"], given["right"]) == (2**61, 0)
        assert given["q_offset"].tolist() == offsets.tolist()
        assert given["q_offset"].dtype == np.int64

    def test_the_head_gate_stays_outside(self, qkv, kernel):
        gate = np.array([1.0, 0.0, 2.0, -1.0, 3.0, 1.0])
        out, cache = attention_forward(*qkv, head_gate=gate, backend="loops")
        assert (out == gate[:, None, None]).all()
        assert (cache.heads == 1).all()
        grads = attention_backward(np.ones_like(out), cache)
        assert (kernel.given["d_heads"] == gate[:, None, None]).all()
        assert (grads.d_head_gate == 4 * 5 * 13).all()


@pytest.mark.slow
@pytest.mark.kernel
def test_loops_run_as_plain_python():
    printed, _ = run_python(
        "from tests.core.test_backends import *",
        "from mha_numpy.kernels import loops",
        "print(type(loops.forward).__name__)",
        "for seed in SEEDS[:40]:",
        "    inputs, options = attention_configuration(seed)",
        "    expected = results(inputs, options)",
        "    for name, array in results(inputs, options, 'loops').items():",
        "        assert_close(array, expected[name], name=name)",
        NUMBA_DISABLE_JIT=1,
    )
    assert printed == ["function"]


@pytest.mark.slow
@by_kernel
def test_bitwise_the_same_for_any_number_of_threads(kernel):
    digests, _ = run_python(
        "import hashlib, numba, numpy as np",
        "from mha_numpy import attention_backward, attention_forward",
        "rng = np.random.default_rng(0)",
        "q, k, v = (rng.normal(size=(2, H, 150, 20)).astype(np.float32) for H in (6, 2, 2))",
        "for threads in (1, 2, 3, 3):",
        "    numba.set_num_threads(threads)",
        f"    out, cache = attention_forward(q, k, v, is_causal=True, backend={kernel!r})",
        "    grads = attention_backward(out, cache)[:3]",
        "    digest = hashlib.sha256(b''.join(x.tobytes() for x in (out, cache.lse, *grads)))",
        "    print(digest.hexdigest())",
        NUMBA_NUM_THREADS="3",
    )
    assert len(digests) == 4
    assert len(set(digests)) == 1


@by_kernel
@pytest.mark.slow
def test_memory_grows_with_T_and_not_with_its_square(kernel):
    (megabytes,), _ = run_python(
        "import resource, numpy as np",
        "from mha_numpy import attention_backward, attention_forward",
        "def peak():",
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024",
        "def both(T):",
        "    q = np.ones((1, 4, T, 8), np.float32)",
        f"    out, cache = attention_forward(q, q, q, is_causal=True, backend={kernel!r})",
        "    attention_backward(out, cache)",
        "both(128)",
        "before = peak()",
        "both(2048)",
        "print(peak() - before)",
    )
    assert float(megabytes) < 20  # one array of (1, 4, 2048, 2048) has 64


class TestOutputChangedInPlace:
    """A kernel's backward reads heads, which without a head gate are the output."""

    @by_kernel
    def test_of_a_kernel_cannot_be_changed(self, qkv, kernel):
        out, _ = attention_forward(*qkv, backend=kernel)
        with pytest.raises(ValueError, match="read-only"):
            out += 1

    @by_kernel
    def test_of_the_reference_changes_no_gradient(self, qkv, kernel):
        out, cache = attention_forward(*qkv, is_causal=True)
        expected = attention_backward(np.cos(out), cache, backend=kernel)
        d_out = np.cos(out)
        out += 1
        found = attention_backward(d_out, cache, backend=kernel)
        for name in ("d_q", "d_k", "d_v"):
            assert_close(getattr(found, name), getattr(expected, name))

    @by_kernel
    def test_without_a_backward_may_be_changed(self, qkv, kernel):
        for one in (np.s_[:], np.s_[:, 0], np.s_[0, 0]):
            out = scaled_dot_product_attention(*(x[one] for x in qkv), backend=kernel)
            out += 1
