import math

import numpy as np
import pytest

from mha_numpy import ConfigError, rope_backward, rope_forward
from mha_numpy.core import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ProportionalScaling,
    RopeOptions,
    YarnScaling,
    multi_head_attention_forward,
    rope_frequencies,
    yarn_mscale,
)
from tests.compare import assert_close
from tests.core.test_multihead import square_params

L, BASE = 64, 256.0  # length of training; frequencies of 8 features: 1, 1/4, 1/16, 1/64
PLAIN = np.array([1, 1 / 4, 1 / 16, 1 / 64])
TURNS = L * PLAIN / (2 * math.pi)  # 10.2, 2.5, 0.64, 0.16
EVERY = [
    LinearScaling(4.0), DynamicScaling(4.0, L), YarnScaling(4.0, L), Llama3Scaling(4.0, L),
    LongRopeScaling((1.0, 1.5, 2.0, 3.0), (2.0, 3.0, 5.0, 8.0), L, 4.0),
    ProportionalScaling(0.5, 4.0),
]  # fmt: skip


def scaled(scaling, length=None):
    return rope_frequencies(8, base=BASE, scaling=scaling, length=length)


@pytest.mark.parametrize(
    ("scaling", "length", "slower", "factor"),
    [
        (None, 9 * L, [1, 1, 1, 1], 1),
        (LinearScaling(4.0), None, [4, 4, 4, 4], 1),
        # the first pair keeps its frequency, the last is 1 + 4 (3 - 1) = 9 times as slow
        (DynamicScaling(4.0, L), 3 * L, [1, 9 ** (1 / 3), 9 ** (2 / 3), 9], 1),
        (DynamicScaling(4.0, L), L, [1, 1, 1, 1], 1),
        (DynamicScaling(4.0, L), None, [1, 1, 1, 1], 1),
        # beta_fast turns are made by pair 0, beta_slow by pair 2: half of the first is kept at 1
        (
            YarnScaling(4.0, L, beta_fast=TURNS[0], beta_slow=TURNS[2], truncate=False), None,
            [1, 1 / (0.5 + 0.5 / 4), 4, 4], 0.1 * math.log(4) + 1,
        ),
        # 3.3 and 1.3 turns are between pairs 0 and 1, and 1 and 2: the ramp is from 0 to 2
        (
            YarnScaling(4.0, L, beta_fast=3.3, beta_slow=1.3, attention_factor=1.5), None,
            [1, 1 / (0.5 + 0.5 / 4), 4, 4], 1.5,
        ),
        (YarnScaling(4.0, L, 3.3, 1.3, mscale=1.0, mscale_all_dim=1.0), None,
         [1, 1 / (0.5 + 0.5 / 4), 4, 4], 1),
        # TURNS[1] is (TURNS[1] - 1) / 3 of the way from 1 to 4
        (
            Llama3Scaling(4.0, L), None,
            [1, 1 / ((TURNS[1] - 1) / 3 + (4 - TURNS[1]) / 3 / 4), 4, 4], 1,
        ),
        (EVERY[4], L, [1, 1.5, 2, 3], math.sqrt(1 + math.log(4) / math.log(64))),
        (EVERY[4], None, [1, 1.5, 2, 3], math.sqrt(1 + math.log(4) / math.log(64))),
        (EVERY[4], L + 1, [2, 3, 5, 8], math.sqrt(1 + math.log(4) / math.log(64))),
        (EVERY[4]._replace(attention_factor=1.5), L, [1, 1.5, 2, 3], 1.5),
        (ProportionalScaling(0.5, 4.0), None, [4, 4, np.inf, np.inf], 1),
    ],
)  # fmt: skip
def test_hand_computed_values(scaling, length, slower, factor):
    frequencies, attention_factor = scaled(scaling, length)
    assert_close(frequencies, PLAIN / slower)
    assert attention_factor == pytest.approx(factor, rel=1e-14)


def test_dynamic_is_plain_rope_with_another_base():
    other = BASE * 9 ** (8 / 6)
    assert_close(scaled(DynamicScaling(4.0, L), 3 * L)[0], rope_frequencies(8, base=other)[0])


@pytest.mark.parametrize("scaling", EVERY, ids=lambda s: type(s).__name__)
def test_a_factor_of_1_changes_nothing(scaling):
    short = {"short_factor": (1.0,) * 4, "long_factor": (1.0,) * 4}
    changes = short if isinstance(scaling, LongRopeScaling) else {}
    changes |= {"share": 1.0} if isinstance(scaling, ProportionalScaling) else {}
    frequencies, attention_factor = scaled(scaling._replace(factor=1.0, **changes), L)
    assert_close(frequencies, PLAIN)
    assert attention_factor == 1


def test_a_rotation_takes_its_frequencies_its_factor_and_its_length(rng):
    x = rng.normal(size=(2, 3, 5, 10))
    for scaling in EVERY:
        options = RopeOptions(BASE, 8, scaling=scaling)
        positions = np.array([np.arange(5) + 1, np.arange(5) + 3 * L])
        out, _ = rope_forward(x, positions=positions, **options._asdict())
        frequencies, factor = scaled(scaling, 3 * L + 5)  # that of the longest sequence
        angles = positions[:, None, :, None] * frequencies
        turned = (x[..., :4] + 1j * x[..., 4:8]) * factor * np.exp(1j * angles)
        assert_close(out, np.concatenate([turned.real, turned.imag, x[..., 8:]], axis=-1))
        short, _ = rope_forward(x, positions=positions, **options._replace(length=L)._asdict())
        depends = isinstance(scaling, (DynamicScaling, LongRopeScaling))
        assert (np.abs(out - short).max() > 0.1) == depends


def test_scores_have_the_square_of_the_factor_and_see_distances(rng):
    q, k = rng.normal(size=(2, 7, 8))

    def scores(scaling, shift=0):
        options = {"positions": np.arange(7) + shift, "scaling": scaling, "base": BASE}
        return rope_forward(q, **options)[0] @ rope_forward(k, **options)[0].T

    yarn = YarnScaling(4.0, L, 3.3, 1.3)
    assert_close(scores(yarn), scores(yarn, 1000))
    assert_close(scores(yarn), yarn_mscale(4.0) ** 2 * scores(yarn._replace(attention_factor=1.0)))


def test_nan_is_no_position_and_reaches_its_row_alone():
    x, positions = np.ones((3, 8)), np.array([np.nan, 1.0, 9.0])
    out, _ = rope_forward(x, positions=positions, scaling=DynamicScaling(4.0, 2))
    expected, _ = rope_forward(x, positions=[0, 1, 9], scaling=DynamicScaling(4.0, 2))
    assert np.isnan(out[0]).all()
    assert_close(out[1:], expected[1:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dtype_is_kept(rng, dtype):
    x = rng.normal(size=(5, 8))
    for scaling in EVERY:
        out, cache = rope_forward(x.astype(dtype), base=BASE, scaling=scaling)
        assert out.dtype == rope_backward(out, cache).d_x.dtype == dtype
        expected, _ = rope_forward(x, base=BASE, scaling=scaling)
        assert_close(out, expected, np.dtype(dtype).name)


def test_no_features_and_one_pair():
    for scaling in EVERY:
        if not isinstance(scaling, LongRopeScaling):
            for width in (0, 2):
                assert rope_frequencies(width, scaling=scaling, length=9 * L)[0].size == width // 2


WRONG = [
    (lambda: scaled("yarn"), "scaling: expected LinearScaling, .* or None; got 'yarn'"),
    (lambda: scaled(LinearScaling(0.0)), "scaling.factor: expected a number > 0; got 0"),
    (lambda: scaled(LinearScaling("4")), "scaling.factor: expected a finite number; got '4'"),
    (lambda: scaled(DynamicScaling(4.0, 1)), "scaling.original_length: expected a number >= 2"),
    (lambda: scaled(YarnScaling(4.0, L, truncate=1)), "scaling.truncate: expected True or False"),
    (
        lambda: scaled(EVERY[4]._replace(short_factor=(1.0,))),
        "short_factor: expected 4 numbers",
    ),
    (lambda: scaled(EVERY[4]._replace(long_factor="x")), "long_factor: expected 4 numbers > 0"),
    (lambda: scaled(Llama3Scaling(4.0, L, 4.0, 4.0)), "low_freq_factor: expected less than high"),
    (lambda: rope_frequencies(8, base=1, scaling=YarnScaling(4.0, L)), "base: expected .* than 1"),
    (lambda: scaled(None, length=-1), "length: expected a number >= 0"),
    (lambda: rope_frequencies(7), "rotary_dim: expected an even number; got 7"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_input(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_queries_and_keys_of_different_lengths_have_the_same_frequencies(rng):
    """In cross-attention, a rotated query meets rotated keys: scores know only the distance."""
    rope = RopeOptions(scaling=DynamicScaling(2.0, 4))
    x, memory = rng.normal(size=(1, 3, 8)), rng.normal(size=(1, 9, 8))
    params = square_params(rng, 8, 8)
    out, _ = multi_head_attention_forward(x, memory, params=params, num_heads=2, rope=rope)
    fixed = rope._replace(length=9)
    expected, _ = multi_head_attention_forward(x, memory, params=params, num_heads=2, rope=fixed)
    assert_close(out, expected, "exact")
