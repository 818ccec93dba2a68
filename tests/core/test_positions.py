import numpy as np
import pytest

from mha_numpy import alibi_bias, rope_backward, rope_forward, sinusoidal_positions
from mha_numpy.core import scaled_dot_product_attention
from tests.compare import assert_close


class TestRope:
    def test_hand_computed_values(self):
        x = np.array([[1.0, 2.0, 3.0, 4.0]])
        angles = np.array([3.0, 3.0 / 100])
        c, s = np.cos(angles), np.sin(angles)
        half = [1 * c[0] - 3 * s[0], 2 * c[1] - 4 * s[1], 3 * c[0] + 1 * s[0], 4 * c[1] + 2 * s[1]]
        pairs = [1 * c[0] - 2 * s[0], 2 * c[0] + 1 * s[0], 3 * c[1] - 4 * s[1], 4 * c[1] + 3 * s[1]]
        at = np.array([3])
        assert_close(rope_forward(x, positions=at)[0], [half])
        assert_close(rope_forward(x, positions=at, interleaved=True)[0], [pairs])

    @pytest.mark.parametrize("interleaved", [True, False])
    @pytest.mark.parametrize("rotary_dim", [None, 4])
    def test_scores_depend_on_the_distance_alone(self, rng, interleaved, rotary_dim):
        q, k = rng.normal(size=(1, 8)), rng.normal(size=(1, 8))

        def score(at_q, at_k):
            q_at, k_at = (
                rope_forward(
                    x, positions=np.array([p]), interleaved=interleaved, rotary_dim=rotary_dim
                )[0]
                for x, p in ((q, at_q), (k, at_k))
            )
            return (q_at @ k_at.T).item()

        assert_close(score(5, 2), score(105, 102))
        assert abs(score(5, 2) - score(5, 3)) > 1e-3

    def test_layouts_differ_by_a_permutation_of_features(self, rng):
        x = rng.normal(size=(5, 6))
        to_half = [0, 2, 4, 1, 3, 5]  # pairs (0,1), (2,3), (4,5) -> (0,3), (1,4), (2,5)
        interleaved, _ = rope_forward(x, interleaved=True)
        half, _ = rope_forward(x[:, to_half])
        assert_close(half, interleaved[:, to_half])

    def test_backward_undoes_the_rotation_and_norms_are_kept(self, rng):
        x = rng.normal(size=(2, 3, 5, 6))
        out, cache = rope_forward(x, rotary_dim=4)
        assert_close(rope_backward(out, cache).d_x, x)
        assert_close(np.linalg.norm(out, axis=-1), np.linalg.norm(x, axis=-1))
        assert_close(out[..., 4:], x[..., 4:], "exact")

    def test_positions_per_sequence(self, rng):
        x = rng.normal(size=(2, 3, 5, 6))
        positions = np.array([np.arange(5), np.arange(5) + 9])
        out, _ = rope_forward(x, positions=positions)
        assert_close(out[0], rope_forward(x[0])[0])
        assert_close(out[1], rope_forward(x[1], positions=positions[1])[0])
        assert_close(rope_forward(x[:, 0], positions=positions)[0], out[:, 0])

    def test_far_positions_keep_their_precision_in_float32(self, rng):
        x = rng.normal(size=(1, 64))
        at = np.array([1_000_003])
        assert_close(
            rope_forward(x.astype(np.float32), positions=at)[0],
            rope_forward(x, positions=at)[0],
            "float32",
        )

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_dtype_is_kept(self, rng, dtype):
        out, cache = rope_forward(rng.normal(size=(5, 6)).astype(dtype))
        assert out.dtype == rope_backward(out, cache).d_x.dtype == dtype


class TestAlibi:
    def test_slopes_of_the_paper(self):
        assert_close(-alibi_bias(8, 2)[:, 0, 1], 2.0 ** -np.arange(1, 9))
        assert_close(-alibi_bias(16, 2)[:, 0, 1], 2.0 ** (-np.arange(1, 17) / 2))

    def test_other_numbers_of_heads_interleave_the_next_power(self):
        expected = np.concatenate([2.0 ** (-2.0 * np.arange(1, 5)), 2.0 ** -np.array([1.0, 3.0])])
        assert_close(-alibi_bias(6, 2)[:, 0, 1], expected)
        assert_close(-alibi_bias(1, 2)[:, 0, 1], [2.0**-8])

    def test_distance_counts_from_the_offset(self):
        assert_close(alibi_bias(2, 2, 4, q_offset=2), alibi_bias(2, 4)[:, 2:])

    def test_serves_as_a_bias(self, rng):
        x = rng.normal(size=(2, 4, 5, 6))
        shifted = alibi_bias(4, 5) + 3.0  # softmax is shift-invariant
        assert_close(
            scaled_dot_product_attention(x, x, x, bias=alibi_bias(4, 5)),
            scaled_dot_product_attention(x, x, x, bias=shifted),
        )


class TestSinusoids:
    def test_values(self):
        table = sinusoidal_positions(4, 6)
        assert_close(table[:, 0], np.sin(np.arange(4)))
        assert_close(table[:, 3], np.cos(np.arange(4) / 10000 ** (2 / 6)))

    def test_offset_and_odd_width(self):
        assert_close(sinusoidal_positions(2, 5, offset=3), sinusoidal_positions(5, 5)[3:])
        assert sinusoidal_positions(0, 5).shape == (0, 5)


def test_rope_backward_keeps_the_precision_of_its_forward(rng):
    x, d_out = rng.normal(size=(5, 6)), rng.normal(size=(5, 6)).astype(np.float32)
    _, cache = rope_forward(x)
    expected = rope_backward(d_out.astype(np.float64), cache).d_x
    assert_close(rope_backward(d_out, cache).d_x, expected)
