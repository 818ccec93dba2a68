import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    MultiHeadAttention,
    attention_backward,
    attention_forward,
    attention_jvp,
    attention_stages,
    gradcheck,
    scaled_dot_product_attention,
)
from mha_numpy.errors import MaskError
from tests.compare import assert_close
from tests.core.configurations import SEEDS, as_dtype, attention_configuration
from tests.core.naive import naive_attention

pytestmark = pytest.mark.usefixtures("backend")


def forward_and_backward(q, k, v, **options):
    """Return the output and the gradients for a fixed random upstream gradient."""
    out, cache = attention_forward(q, k, v, **options)
    d_out = np.random.default_rng(7).normal(size=out.shape)
    return out, attention_backward(d_out, cache)


class TestValues:
    def test_hand_computed_forward(self):
        # scores log 1, log 3 -> weights 1/4, 3/4
        q, k, v = np.array([[1.0]]), np.log([[1.0], [3.0]]), np.array([[8.0, 0.0], [0.0, 4.0]])
        out, cache = attention_forward(q, k, v)
        assert_close(cache.weights, [[1 / 4, 3 / 4]])
        assert_close(out, [[2, 3]])
        assert_close(cache.lse, [np.log(4)])

    def test_hand_computed_backward(self):
        q, k, v = np.array([[1.0]]), np.log([[1.0], [3.0]]), np.array([[8.0, 0.0], [0.0, 4.0]])
        _, cache = attention_forward(q, k, v)
        d_q, d_k, d_v, *d_options = attention_backward(np.array([[1.0, 0.0]]), cache)
        # d_weights = [8, 0]; row mean 2; d_scores = [1/4 * 6, 3/4 * -2] = [1.5, -1.5]
        assert_close(d_v, [[1 / 4, 0], [3 / 4, 0]])
        assert_close(d_k, [[1.5], [-1.5]])
        assert_close(d_q, [[1.5 * np.log(1) - 1.5 * np.log(3)]])
        assert not any(d is not None for d in d_options)

    @pytest.mark.parametrize("seed", [s for s in SEEDS if s % 5 < 3][:60])
    def test_equals_plain_loops(self, seed):
        inputs, options = attention_configuration(seed)
        out, cache = attention_forward(**inputs, **options)
        expected, weights, lse = naive_attention(**inputs, **options)
        assert_close(out, expected)
        assert_close(cache.weights, weights)
        assert_close(cache.lse, lse)


class TestMeanings:
    @pytest.mark.parametrize("H_kv", [1, 2, 3, 6])
    def test_query_head_h_reads_key_head_h_over_G(self, rng, H_kv):
        q, k, v = (rng.normal(size=(2, h, 5, 4)) for h in (6, H_kv, H_kv))
        out, grads = forward_and_backward(q, k, v)
        k_all, v_all = (np.repeat(x, 6 // H_kv, axis=1) for x in (k, v))
        expected, all_grads = forward_and_backward(q, k_all, v_all)
        assert_close(out, expected)
        assert_close(grads.d_q, all_grads.d_q)
        for mine, repeated in ((grads.d_k, all_grads.d_k), (grads.d_v, all_grads.d_v)):
            groups = repeated.reshape(2, H_kv, 6 // H_kv, *repeated.shape[2:])
            assert_close(mine, groups.sum(axis=2))

    def test_keys_in_another_order_change_nothing(self, qkv, rng):
        q, k, v = qkv
        order = rng.permutation(k.shape[2])
        out, grads = forward_and_backward(q, k, v)
        permuted, permuted_grads = forward_and_backward(q, k[:, :, order], v[:, :, order])
        assert_close(permuted, out)
        assert_close(permuted_grads.d_k, grads.d_k[:, :, order])

    @pytest.mark.parametrize("q_offset", [0, 2, -1])
    def test_causal_output_does_not_react_to_the_future(self, qkv, q_offset):
        q, k, v = qkv
        out, _ = attention_forward(q, k, v, is_causal=True, q_offset=q_offset)
        for j in range(7):
            k_new, v_new = k.copy(), v.copy()
            k_new[:, :, j] += 1
            v_new[:, :, j] += 1
            moved, _ = attention_forward(q, k_new, v_new, is_causal=True, q_offset=q_offset)
            changed = np.abs(moved - out).max(axis=(0, 1, 3)) > 0
            assert changed.tolist() == [j <= i + q_offset for i in range(5)]

    def test_ranks_agree(self, qkv):
        q, k, v = (x[:, 0] for x in qkv)
        out, grads = forward_and_backward(q, k, v)
        for b in range(4):
            assert_close(attention_forward(q[b], k[b], v[b])[0], out[b])
        assert_close(attention_forward(q[:, None], k[:, None], v[:, None])[0][:, 0], out)

    def test_a_mask_of_rank_3_is_refused_where_it_has_two_readings(self, qkv, rng):
        q, k, v = (x[:3, :3] for x in qkv)  # B = H = 3
        mask = rng.random((3, 5, 7)) < 0.7
        for ambiguous in (mask, mask[:, :1]):
            with pytest.raises(MaskError, match=r"mask\[:, None\] .*sequence.*mask\[None\] .*head"):
                attention_forward(q, k, v, mask=ambiguous)
        per_sequence, per_head = np.zeros((2, 3, 3, 5, 7), bool)
        for n in range(3):
            per_sequence[n], per_head[:, n] = mask[n], mask[n]
        for short, full in ((mask[:, None], per_sequence), (mask[None], per_head)):
            out, _ = attention_forward(q, k, v, mask=short)
            assert_close(out, attention_forward(q, k, v, mask=full)[0], "exact")
        bias = np.where(mask, 0.0, -np.inf)  # of rank 3: always for each head
        assert_close(attention_forward(q, k, v, bias=bias)[0], out)
        # one reading: a single row of masks, a single head of a single sequence, B unlike H, rank 3
        for b, h, one in ((3, 3, mask[:1]), (1, 1, mask[:1]), (2, 3, mask)):
            q, k, v = (x[:b, :h] for x in qkv)
            attention_forward(q, k, v, mask=one)
        attention_forward(*(x[:3, 0] for x in qkv), mask=mask)

    def test_returned_weights_are_per_head_and_before_dropout(self, qkv, rng):
        dropout_mask = (rng.random((4, 6, 5, 7)) > 0.5) * 2.0
        out, weights = scaled_dot_product_attention(
            *qkv, dropout_mask=dropout_mask, return_weights=True
        )
        assert weights.shape == (4, 6, 5, 7)
        assert_close(weights.sum(axis=-1), np.ones((4, 6, 5)))
        shared_v = np.repeat(qkv[2], 2, axis=1)
        assert_close(out, (weights * dropout_mask) @ shared_v)
        assert_close(scaled_dot_product_attention(*qkv, dropout_mask=dropout_mask), out, "exact")


class TestRowsThatSeeNothing:
    def test_output_weights_gradients_and_lse(self, qkv):
        mask = np.ones((5, 7), bool)
        mask[3] = False
        out, cache = attention_forward(*qkv, mask=mask)
        assert (out[:, :, 3] == 0).all()
        assert (cache.weights[:, :, 3] == 0).all()
        assert (cache.lse[:, :, 3] == -np.inf).all()
        d_out = np.random.default_rng(1).normal(size=out.shape)
        grads = attention_backward(d_out, cache)
        assert (grads.d_q[:, :, 3] == 0).all()
        d_out[:, :, 3] = 1e6  # nothing comes through
        again = attention_backward(d_out, cache)
        assert_close(again.d_k, grads.d_k, "exact")
        assert_close(again.d_v, grads.d_v, "exact")


class TestNaN:
    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    @pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # inf - inf: NumPy says so
    def test_poison_reaches_only_rows_that_see_it(self, qkv, poison):
        q, k, v = (x.copy() for x in qkv)
        clean, clean_grads = forward_and_backward(q, k, v, is_causal=True, softcap=2.0)
        k[0, 0, 2], v[0, 0, 2], q[1, 5, 4] = poison, poison, poison
        out, grads = forward_and_backward(q, k, v, is_causal=True, softcap=2.0)
        touched = np.zeros(out.shape[:3], bool)
        touched[0, :2, 2:] = True  # group 0 of sequence 0, from key 2 on
        touched[1, 5, 4] = True
        assert_close(out[~touched], clean[~touched])
        if np.isnan(poison):
            assert np.isnan(out[touched]).all()
        assert_close(grads.d_q[~touched], clean_grads.d_q[~touched])
        # keys and values that no touched row sees: other groups, and the future of the row
        assert_close(grads.d_v[0, 1:], clean_grads.d_v[0, 1:])
        assert_close(grads.d_k[2:], clean_grads.d_k[2:])
        assert_close(grads.d_k[1, :2], clean_grads.d_k[1, :2])
        assert_close(grads.d_k[1, 2, 5:], clean_grads.d_k[1, 2, 5:])

    def test_poison_in_padding_touches_nothing(self, qkv):
        q, k, v = (x.copy() for x in qkv)
        mask = np.arange(7) < 4
        clean, clean_grads = forward_and_backward(q, k, v, mask=mask)
        k[:, :, 4:], v[:, :, 4:] = np.nan, np.inf
        out, grads = forward_and_backward(q, k, v, mask=mask)
        assert_close(out, clean, "float64")
        for mine, expected in zip(grads[:3], clean_grads[:3], strict=True):
            assert_close(mine, expected)

    def test_an_infinite_value_arrives_as_infinity(self):
        v = np.array([[np.inf], [1.0]])
        out, _ = attention_forward(
            np.zeros((2, 3)), np.zeros((2, 3)), v, mask=np.eye(2, dtype=bool)
        )
        assert_close(out, [[np.inf], [1.0]])


class TestDtypes:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_kept(self, qkv, rng, dtype):
        shapes = {"bias": (6, 1, 7), "sink": 6, "head_gate": 6}
        options = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
        narrow = [x.astype(dtype) for x in qkv]
        expected, expected_grads = forward_and_backward(
            *(x.astype(np.float64) for x in narrow),
            **{name: x.astype(np.float64) for name, x in options.items()},
        )
        out, grads = forward_and_backward(*narrow, **options)
        assert {x.dtype for x in (out, *grads)} == {np.dtype(dtype)}
        assert_close(out, expected, np.dtype(dtype).name)
        for mine, wide in zip(grads, expected_grads, strict=True):
            assert_close(mine, wide, np.dtype(dtype).name)

    @pytest.mark.parametrize(
        ("dtypes", "options", "expected"),
        [
            ([np.float32, np.float64, np.float64], {}, np.float64),
            ([np.float32] * 3, {"scale": np.float64(0.3), "softcap": np.float64(2)}, np.float32),
            ([np.longdouble] * 3, {}, np.longdouble),
        ],
    )
    def test_arrays_promote_and_numbers_do_not(self, qkv, dtypes, options, expected):
        arrays = [x.astype(dtype) for x, dtype in zip(qkv, dtypes, strict=True)]
        out, grads = forward_and_backward(*arrays, **options)
        assert {x.dtype for x in (out, *grads[:3])} == {np.dtype(expected)}

    @pytest.mark.parametrize("make", [np.asfortranarray, lambda x: np.repeat(x, 2, -1)[..., ::2]])
    def test_memory_order_does_not_matter(self, qkv, make):
        out, grads = forward_and_backward(*qkv)
        other, other_grads = forward_and_backward(*(make(x) for x in qkv))
        assert_close(other, out)
        assert_close(other_grads.d_k, grads.d_k)


def test_an_empty_batch_has_an_offset_for_each_of_no_sequence():
    x = np.ones((0, 2, 3, 4))
    out, _ = attention_forward(x, x, x, is_causal=True, q_offset=np.zeros(0, int))
    assert out.shape == x.shape


@pytest.mark.parametrize("axis", ["B", "T_q", "T_k", "d_k", "d_v"])
@pytest.mark.parametrize("is_causal", [True, False])
def test_empty_axes(axis, is_causal):
    n = {"B": 2, "T_q": 3, "T_k": 4, "d_k": 5, "d_v": 6, axis: 0}
    q = np.ones((n["B"], 4, n["T_q"], n["d_k"]))
    k, v = np.ones((n["B"], 2, n["T_k"], n["d_k"])), np.ones((n["B"], 2, n["T_k"], n["d_v"]))
    out, grads = forward_and_backward(q, k, v, is_causal=is_causal, bias=np.ones((4, 1, 1)))
    assert out.shape == (n["B"], 4, n["T_q"], n["d_v"])
    assert [g.shape for g in grads[:4]] == [q.shape, k.shape, v.shape, (4, 1, 1)]
    if axis == "T_k":
        assert (out == 0).all()
    assert all(np.isfinite(g).all() for g in grads[:4])


def test_stages(qkv):
    bias = np.where(np.arange(7) == 3, -np.inf, 1.0)
    _, cache = attention_forward(*qkv, softcap=2.0, bias=bias, is_causal=True)
    stages = attention_stages(cache)
    assert_close(stages.capped, 2 * np.tanh(stages.scores / 2))
    assert_close(stages.biased, stages.capped + bias)
    hidden = (np.arange(7) > np.arange(5)[:, None]) | (np.arange(7) == 3)
    assert (stages.masked[..., hidden] == -np.inf).all()
    assert_close(stages.masked[..., ~hidden], stages.biased[..., ~hidden])
    assert_close(stages.weights, cache.weights, "exact")


def test_stages_without_options_are_the_stage_before(qkv):
    stages = attention_stages(attention_forward(*qkv)[1])
    assert stages.capped is stages.scores
    assert stages.masked is stages.biased is stages.scores


class TestNaNInOptions:
    def test_in_hidden_cells_and_rows_it_touches_nothing(self, qkv, rng):
        mask = rng.random((5, 7)) < 0.6
        mask[3], mask[0, 0] = False, True
        dropout_mask = np.where(mask, 2.0, np.nan)
        clean, clean_grads = forward_and_backward(
            *qkv, mask=mask, dropout_mask=np.full((5, 7), 2.0)
        )
        out, grads = forward_and_backward(*qkv, mask=mask, dropout_mask=dropout_mask)
        assert_close(out, clean)
        for mine, expected in zip(grads[:3], clean_grads[:3], strict=True):
            assert_close(mine, expected)

    @pytest.mark.parametrize("poison", [np.nan, np.inf])
    @pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # 0 * inf: NumPy says so
    def test_in_a_gate_it_reaches_only_rows_that_see_something(self, qkv, poison):
        mask = np.ones((5, 7), bool)
        mask[3] = False
        gate = np.array([1.0, poison, 1.0, 1.0, poison, 1.0])
        out, cache = attention_forward(*qkv, mask=mask, head_gate=gate)
        assert (out[:, :, 3] == 0).all()
        assert not np.isfinite(out[:, 1, :3]).any()
        assert np.isfinite(out[:, [0, 2, 3, 5]]).all()
        grads = attention_backward(np.ones_like(out), cache)
        assert (grads.d_q[:, :, 3] == 0).all()
        assert np.isfinite(grads.d_head_gate).all()

    def test_upstream_of_a_row_that_sees_nothing_it_reaches_no_gate(self, qkv):
        mask = np.ones((5, 7), bool)
        mask[3] = False
        out, cache = attention_forward(*qkv, mask=mask, head_gate=np.full(6, 2.0))
        d_out = np.ones_like(out)
        clean = attention_backward(d_out, cache)
        d_out[:, :, 3] = np.nan
        for mine, expected in zip(attention_backward(d_out, cache), clean, strict=True):
            if mine is not None:
                assert_close(mine, expected)


class TestExtremePositions:
    @pytest.mark.parametrize("window", [(None, None), (2**62, 2**63 - 1), (7, 7)])
    def test_a_huge_window_hides_nothing(self, qkv, window):
        assert_close(attention_forward(*qkv, window=window)[0], attention_forward(*qkv)[0])

    @pytest.mark.parametrize(("q_offset", "sees_all"), [(2**60, True), (-(2**60), False)])
    def test_a_huge_offset(self, qkv, q_offset, sees_all):
        _, cache = attention_forward(*qkv, is_causal=True, q_offset=q_offset)
        assert ((cache.weights > 0) == sees_all).all()


def test_big_endian_and_half_precision(qkv):
    out, _ = attention_forward(*(x.astype(">f8") for x in qkv))
    assert_close(out, attention_forward(*qkv)[0])
    half = [x.astype(">f2") for x in qkv]
    expected, cache = attention_forward(*(x.astype(np.float16) for x in qkv))
    out, big_cache = attention_forward(*half)
    assert_close(out, expected, "exact")
    assert big_cache.lse.dtype.itemsize == cache.lse.dtype.itemsize == 4


def to_float32(value):
    """Return an array of bfloat16 in float32; anything else as it is."""
    is_narrow = isinstance(value, np.ndarray) and value.dtype.name == "bfloat16"
    return value.astype(np.float32) if is_narrow else value


class TestBfloat16:
    """Computed in float32, as float16 is, and rounded once at the end."""

    def test_it_meets_float16_in_float32(self, qkv):
        half, narrow = (
            [x.astype(dtype) for x in qkv] for dtype in (np.dtype(np.float16), self.dtype)
        )
        _, cache = attention_forward(*half)
        assert attention_jvp({"q": narrow[0]}, cache).out_dot.dtype == np.float16
        kv_cache = KVCache()
        kv_cache.append(*half[1:])
        assert kv_cache.append(*narrow[1:])[0].dtype == np.float32

    def test_it_can_be_checked(self, rng):
        narrow = [x.astype(self.dtype) for x in rng.normal(size=(3, 3, 4))]
        assert gradcheck(attention_forward, attention_backward, narrow)

    @pytest.fixture(autouse=True)
    def bfloat16(self):
        self.dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)

    @pytest.mark.parametrize("seed", range(10))
    def test_all_that_attention_returns(self, seed, backend):
        inputs, options = attention_configuration(seed)
        narrow, options = as_dtype(inputs, self.dtype), as_dtype(options, self.dtype)
        wide = {name: to_float32(x) for name, x in narrow.items()}
        found, cache = attention_forward(**narrow, **options)
        options = {name: to_float32(x) for name, x in options.items()}
        expected, wide_cache = attention_forward(**wide, **options)
        assert cache.lse.dtype == np.float32
        assert_close(found.astype(np.float32), expected.astype(self.dtype), "exact")
        d_out = np.random.default_rng(seed).normal(size=found.shape).astype(self.dtype)
        grads = attention_backward(d_out, cache)
        exact = attention_backward(d_out.astype(np.float32), wide_cache)
        tangents = attention_jvp({"v": narrow["v"]}, cache)
        wide_tangents = attention_jvp({"v": wide["v"]}, wide_cache)
        for name, array, other in [
            *zip(grads._fields, grads, exact, strict=True),
            *zip(tangents._fields, tangents, wide_tangents, strict=True),
        ]:
            if array is not None:
                assert array.dtype == self.dtype, name
                wide_array = array.astype(np.float32)
                assert_close(wide_array, other.astype(self.dtype), "exact", name=name)

    @pytest.mark.parametrize(
        ("other", "expected"),
        [(np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64)],
    )
    def test_with_another_dtype(self, qkv, other, expected):
        q, k, v = qkv
        out, _ = attention_forward(q.astype(self.dtype), k.astype(other), v.astype(other))
        assert out.dtype == expected

    def test_a_bias_of_another(self, qkv):
        q, k, v = (x.astype(np.float32) for x in qkv)
        bias = np.zeros((q.shape[-2], k.shape[-2]), self.dtype)
        assert attention_forward(q, k, v, bias=bias)[0].dtype == np.float32

    def test_a_mask_has_to_be_bool(self, qkv):
        mask = np.ones((qkv[0].shape[-2], qkv[1].shape[-2]), self.dtype)
        with pytest.raises(MaskError, match="mask: expected a bool array"):
            attention_forward(*qkv, mask=mask)

    def test_a_layer(self, backend):
        layer = MultiHeadAttention(8, 2, rng=0).astype(self.dtype)
        x = np.ones((2, 3, 8), self.dtype)
        out = layer(x)
        assert out.dtype == self.dtype
        assert layer.backward(out)[0].dtype == self.dtype
