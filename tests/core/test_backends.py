"""Every forward with every backward; what the kernels are given, and when they are not asked."""

import itertools
import os
import subprocess
import sys
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
from tests.core.configurations import SEEDS, attention_configuration
from tests.core.test_multihead import square_params
from tests.sweeps import sweep

by_kernel = pytest.mark.parametrize("kernel", EACH_KERNEL)
PAIRS = list(itertools.product(BACKENDS_UNDER_TEST, repeat=2))


def results(inputs, options, forward="numpy", backward="numpy", dtype=np.float64):
    """Return out, lse and the gradients of one pair, by name."""
    arrays = {name: array.astype(dtype) for name, array in (inputs | options).items()
              if isinstance(array, np.ndarray) and array.dtype.kind == "f"}  # fmt: skip
    out, cache = attention_forward(**(inputs | options | arrays), backend=forward)
    d_out = np.random.default_rng(7).normal(size=out.shape).astype(dtype)
    grads = attention_backward(d_out, cache, backend=backward)._asdict()
    found = {"out": out, "lse": cache.lse, **grads}
    return {name: array for name, array in found.items() if array is not None}


def assert_twins(inputs, options, tolerance, dtype=np.float64):
    """Fail unless all pairs of forward and backward give what the reference gives in float64."""
    narrow = {name: array.astype(dtype).astype(np.float64) for name, array in inputs.items()}
    expected = results(narrow, options)
    for pair in PAIRS:
        found = results(inputs, options, *pair, dtype=dtype)
        assert found.keys() == expected.keys()
        for name, array in found.items():
            assert array.dtype == dtype
            assert_close(array, expected[name], tolerance, name=f"{name} of {pair}")


@pytest.mark.kernel
@pytest.mark.parametrize("seed", sweep(SEEDS, 60))
def test_all_pairs_agree(seed):
    assert_twins(*attention_configuration(seed), "float64")


@pytest.mark.kernel
@pytest.mark.parametrize("seed", SEEDS[:60])
def test_all_pairs_agree_in_float32(seed):
    assert_twins(*attention_configuration(seed), "float32", np.float32)


LARGER = {
    "plain": ((65, 130, 7, 40), {}),
    "causal": ((130, 130, 16, 16), {"is_causal": True}),
    "bottom right": ((70, 200, 33, 64), {"is_causal": True, "q_offset": 130}),
    "offsets": ((129, 64, 16, 8), {"is_causal": True, "q_offset": np.array([-70, 40])}),
    "window": ((150, 150, 8, 8), {"window": (70, 3), "softcap": 2.0}),
    "far window": ((80, 300, 8, 8), {"window": (0, 1), "q_offset": 200}),
    "one query": ((1, 200, 64, 64), {}),
    "one key": ((200, 1, 3, 33), {}),
    "mask": ((100, 100, 20, 12), {"mask": "random"}),
    "mask and bias": ((64, 129, 12, 20), {"mask": "random", "bias": "random", "is_causal": True}),
    "dropout": ((66, 66, 5, 5), {"dropout_mask": "random", "mask": "random"}),
}


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LARGER)
def test_all_pairs_agree_beyond_one_tile(rng, name, dtype):
    (T_q, T_k, d_k, d_v), options = LARGER[name]
    q = rng.normal(size=(2, 6, T_q, d_k))
    inputs = {
        "q": q,
        "k": rng.normal(size=(2, 3, T_k, d_k)),
        "v": rng.normal(size=(2, 3, T_k, d_v)),
    }
    drawn = {
        "mask": rng.random((2, 1, T_q, T_k)) < 0.6,
        "bias": np.where(rng.random((6, T_q, T_k)) < 0.9, rng.normal(size=(6, T_q, T_k)), -np.inf),
        "dropout_mask": (rng.random((2, 6, T_q, T_k)) < 0.8) / 0.8,
    }
    drawn["mask"][:, :, T_q // 2] = False
    options = {
        key: drawn[key] if isinstance(value, str) else value for key, value in options.items()
    }
    if "bias" in options:
        inputs["bias"] = options.pop("bias")
    assert_twins(inputs, options, np.dtype(dtype).name, dtype)


@pytest.mark.kernel
@pytest.mark.parametrize("q_offset", [2**60, -(2**60), 2**60 - 1])
@pytest.mark.parametrize("window", [None, (None, 2**60), (2**60, None)])
def test_an_open_side_reaches_from_any_offset(qkv, q_offset, window):
    inputs = dict(zip("qkv", qkv, strict=True))
    assert_twins(inputs, {"q_offset": q_offset, "window": window}, "float64")


@by_kernel
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("seed", sweep(SEEDS[:80], 20))
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf: NumPy says so
def test_poison_goes_where_it_goes_in_the_reference(kernel, poison, seed):
    inputs, options = attention_configuration(seed)
    rng = np.random.default_rng(seed)
    name = rng.choice([name for name in inputs if name != "bias"])
    inputs[name][tuple(rng.integers(n) for n in inputs[name].shape)] = poison
    expected = results(inputs, options)
    for name, array in results(inputs, options, kernel, kernel).items():
        odd, there = ~np.isfinite(array), ~np.isfinite(expected[name])
        assert np.array_equal(odd, there), name
        assert_close(array[~odd], expected[name][~odd], name=name)


class TestInfiniteScores:
    """One query, two keys, of which the first is visible; values 2 and 4."""

    @staticmethod
    def out_and_lse(scores, backend, **options):
        k, v = np.array(scores)[:, None], np.array([[2.0], [4.0]])
        with np.errstate(invalid="ignore"):
            out, cache = attention_forward(np.ones((1, 1)), k, v, backend=backend, **options)
        return out.item(), cache.lse.item()

    @pytest.mark.parametrize("backend", EACH_BACKEND)
    def test_of_minus_infinity(self, backend):
        assert self.out_and_lse([-np.inf, 3.0], backend) == (4, 3)  # 0 / 1 and 1 / 1
        assert self.out_and_lse([3.0, -np.inf], backend) == (2, 3)
        assert np.isnan(self.out_and_lse([-np.inf, -np.inf], backend)).all()  # 0 / 0
        hidden = self.out_and_lse([-np.inf, 3.0], backend, mask=np.array([True, False]))
        assert np.isnan(hidden).all()

    @pytest.mark.parametrize("backend", EACH_BACKEND)
    def test_of_infinity(self, backend):
        assert np.isnan(self.out_and_lse([np.inf, 3.0], backend)).all()
        assert np.isnan(self.out_and_lse([3.0, np.inf], backend)).all()


class TestCache:
    @by_kernel
    def test_a_kernel_keeps_no_cells(self, qkv, kernel):
        _, cache = attention_forward(*qkv, backend=kernel)
        assert cache.cells is None
        assert cache.heads.shape == (4, 6, 5, 13)
        assert cache.lse.shape == (4, 6, 5)

    @by_kernel
    def test_weights_and_stages_are_the_reference_s(self, qkv, kernel):
        options = {"is_causal": True, "softcap": 2.0, "bias": np.ones((6, 1, 7))}
        _, cache = attention_forward(*qkv, **options, backend=kernel)
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


class TestChoice:
    def test_backward_is_forward_s_unless_it_is_named(self, qkv, monkeypatch):
        asked = []
        monkeypatch.setattr(backends, "_load", lambda name, _: asked.append(name) or KERNEL)
        out, cache = attention_forward(*qkv, backend="loops")
        with backends.backend("numpy"):
            attention_backward(out, cache)
        attention_backward(out, cache, backend="numba")
        attention_backward(out, cache, backend="numpy")
        assert asked == ["loops", "loops", "numba"]

    @pytest.mark.parametrize("name", backends.KERNELS)
    def test_what_kernels_do_not_cover_is_the_reference_s(self, qkv, monkeypatch, name):
        def load(*_):
            raise AssertionError("no kernel is expected here")

        monkeypatch.setattr(backends, "_load", load)
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

    @by_kernel
    def test_products_of_a_layer_are_its_backend_s(self, rng, monkeypatch, kernel):
        asked, load = [], backends._load
        monkeypatch.setattr(
            backends, "_load", lambda name, kernels: asked.append(kernels) or load(name, kernels)
        )
        x, layer = rng.normal(size=(2, 5, 8)), MultiHeadAttention(8, 2, backend=kernel)
        layer.backward(layer(x))
        products = asked.count("mha_numpy.kernels.matmul")
        assert products == (8 if kernel == "numba" else 0)  # forward and backward, four times
        asked.clear()
        layer(x, kv_cache=KVCache())
        assert asked.count("mha_numpy.kernels.matmul") == products // 2

    @pytest.mark.parametrize("backend", ["numba"], indirect=True)
    @pytest.mark.usefixtures("backend")
    def test_maps_that_tiles_do_not_cover_are_numpy_s(self, rng, monkeypatch):
        def load(*_):
            raise AssertionError("no kernel is expected here")

        monkeypatch.setattr(backends, "_load", load)
        x, w = rng.normal(size=(2, 5, 8)), rng.normal(size=(8, 3))
        for a, b in [(x.astype(np.longdouble), w.astype(np.longdouble)),
                     (x[:0], w), (x[..., :0], w[:0]), (x, w[:, :0]), (x + 0j, w + 0j)]:  # fmt: skip
            with allow_complex():
                assert np.array_equal(linear_forward(a, b)[0], a @ b)
        with pytest.raises(AssertionError, match="no kernel"):
            linear_forward(x, w)

    @pytest.mark.parametrize("name", backends.KERNELS)
    def test_without_numba(self, name):
        lines = run(
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
    "q", "k", "v", "mask", "bias", "dropout_mask", "q_offset", "left", "right", "scale", "softcap",
)  # fmt: skip


def ones_forward(q, k, v, *others):
    return np.ones((*q.shape[:3], v.shape[3])), np.zeros(q.shape[:3])


def ones_backward(d_heads, heads, lse, q, k, v, mask, bias, *others):
    d_biased = None if bias is None else np.ones(bias.shape)
    return *(np.ones(x.shape) for x in (q, k, v)), d_biased


KERNEL = SimpleNamespace(attention_forward=ones_forward, attention_backward=ones_backward)


class TestWhatAKernelIsGiven:
    @pytest.fixture
    def given(self, monkeypatch):
        """A dict that holds the arguments of the last call."""
        given = {}

        def forward(*inputs):
            given.update(zip(KERNEL_INPUTS, inputs, strict=True))
            return ones_forward(*inputs)

        def backward(d_heads, heads, lse, *inputs):
            given.update(zip(KERNEL_INPUTS, inputs, strict=True))
            given.update(d_heads=d_heads, heads=heads, lse=lse)
            return ones_backward(d_heads, heads, lse, *inputs)

        kernel = SimpleNamespace(attention_forward=forward, attention_backward=backward)
        monkeypatch.setattr(backends, "_load", lambda *_: kernel)
        return given

    @pytest.mark.parametrize("rank", [2, 3, 4])
    def test_rank_4_and_cells_stretched_without_a_copy(self, qkv, given, rank):
        q, k, v = (x[(0,) * (4 - rank)] if rank < 3 else x[:, 0] if rank == 3 else x for x in qkv)
        B, H, H_kv = {2: (1, 1, 1), 3: (4, 1, 1), 4: (4, 6, 3)}[rank]
        cells = {name: np.ones(7) for name in ("bias", "dropout_mask")} | {"mask": np.ones(7, bool)}
        out, cache = attention_forward(q, k, v, **cells, backend="loops")
        shapes = {"q": (B, H, 5, 11), "k": (B, H_kv, 7, 11), "v": (B, H_kv, 7, 13)}
        shapes |= dict.fromkeys(cells, (B, H, 5, 7))
        assert {name: given[name].shape for name in shapes} == shapes
        for name in "qkv":
            assert np.shares_memory(given[name], locals()[name])
        for name, array in cells.items():
            assert np.shares_memory(given[name], array)
            assert given[name].strides[2] == 0
        assert out.shape == cache.heads.shape == (*q.shape[:-1], 13)
        assert cache.lse.shape == q.shape[:-1]

        grads = attention_backward(out.astype(np.longdouble), cache)
        rows = {"d_heads": (B, H, 5, 13), "heads": (B, H, 5, 13), "lse": (B, H, 5)}
        assert {name: given[name].shape for name in (shapes | rows)} == shapes | rows
        assert given["d_heads"].dtype == np.float64
        assert [d_x.shape for d_x in grads[:4]] == [q.shape, k.shape, v.shape, (7,)]
        assert (grads.d_bias == B * H * 5).all()  # the sum of ones

    def test_options(self, qkv, given):
        attention_forward(*qkv, backend="loops")
        assert [given[name] for name in ("mask", "bias", "dropout_mask", "softcap")] == [None] * 4
        assert given["scale"] == pytest.approx(11**-0.5)
        assert given["left"] == given["right"] == 2**61
        assert given["q_offset"].tolist() == [0] * 4
        attention_forward(*qkv, backend="loops", window=(3, None), q_offset=2, scale=0.5, softcap=7)
        assert (given["left"], given["right"]) == (3, 2**61)
        assert (given["scale"], given["softcap"]) == (0.5, 7.0)
        assert given["q_offset"].tolist() == [2] * 4
        assert given["q_offset"].dtype == np.int64
        offsets = np.array([3, 1, 4, 1], np.uint8)
        attention_forward(*qkv, backend="loops", is_causal=True, window=(None, 5), q_offset=offsets)
        assert (given["left"], given["right"]) == (2**61, 0)
        assert given["q_offset"].tolist() == offsets.tolist()
        assert given["q_offset"].dtype == np.int64

    def test_the_head_gate_stays_outside(self, qkv, given):
        gate = np.array([1.0, 0.0, 2.0, -1.0, 3.0, 1.0])
        out, cache = attention_forward(*qkv, head_gate=gate, backend="loops")
        assert (out == gate[:, None, None]).all()
        assert (cache.heads == 1).all()
        grads = attention_backward(np.ones_like(out), cache)
        assert (given["d_heads"] == gate[:, None, None]).all()
        assert (grads.d_head_gate == 4 * 5 * 13).all()


def run(*lines, **environment):
    """Run Python in a process of its own and return the lines that it prints."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.kernel
def test_loops_run_as_plain_python():
    assert run(
        "from tests.core.test_backends import *",
        "from mha_numpy.kernels import loops",
        "print(type(loops.forward).__name__)",
        "for seed in SEEDS[:40]:",
        "    inputs, options = attention_configuration(seed)",
        "    expected = results(inputs, options)",
        "    for name, array in results(inputs, options, 'loops', 'loops').items():",
        "        assert_close(array, expected[name], name=name)",
        NUMBA_DISABLE_JIT="1",
    ) == ["function"]


@by_kernel
def test_bitwise_the_same_for_any_number_of_threads(kernel):
    digests = run(
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
    (megabytes,) = run(
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
