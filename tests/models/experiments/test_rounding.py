"""The atlas of rounded steps: its second backward, its digits by hand, and its picture."""

import numpy as np
import pytest

from mha_numpy.checking.rounding import FORMATS, round_to
from mha_numpy.errors import ConfigError
from mha_numpy.models.experiments import Result, load_result
from mha_numpy.models.experiments.rounding import (
    ALL,
    ARMS,
    KERNEL,
    NAMES,
    RESULTS,
    ROWS,
    SIZES,
    arm_of,
    bounds_by_errors,
    digits_lost,
    scale_for,
    traced,
)
from mha_numpy.show.pictures import precision_atlas
from mha_numpy.show.pictures.labels import MINUS
from tests.compare import assert_close

ROW = {name: i for i, name in enumerate(ROWS)}


def test_the_backward_that_computes_weights_again_has_the_same_gradients(rng):
    t = traced(*rng.normal(size=(4, 2, 3, 6, 5)))
    for name in ("scores", "weights", "d_scores", "d_q", "d_k", "d_v"):
        assert_close(t[f"{name}_again"], t[name], name=name)
    assert_close(np.exp(t["lse"]), np.exp(t["scores"]).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_a_scale_brings_an_array_near_the_largest_number(name, rng):
    for size in (1e-9, 1.0, 1e9):
        array = size * rng.normal(size=100)
        scale = scale_for(array, name)
        assert np.frexp(scale)[0] == 0.5  # a power of two
        assert 1 / 8 < scale * np.abs(array).max() / FORMATS[name].largest <= 1 / 4
        assert np.isfinite(round_to(array, name, scale=scale)).all()
    assert scale_for(1e9 * np.ones(3), "float16") == 1


def made_up(errors, stored=0.01):
    """Return a result in which each row has these errors, for scores of 1, 4 and 16."""
    runs = {}
    for arm, (_, size) in ARMS.items():
        of_row = [errors[SIZES.index(size)]] * len(ROWS)
        runs[arm] = {f"{kind}: {of}": [of_row] for kind in ("one", "bound") for of in RESULTS}
        runs[arm] |= {f"stored: {of}": [stored] for of in RESULTS}
    return Result("rounding", (0,), runs, 1.0)


def test_digits_by_hand():
    """Ten times the error of storing is one digit, and as much is none."""
    lost = digits_lost(made_up([0.01, 0.1, 5.0]), "d_k", "bfloat16")
    assert lost.shape == (len(ROWS), 3)
    assert_close(lost[0], [0, 1, np.log10(500)])
    nothing = digits_lost(made_up([1e-15, np.inf, np.nan]), "d_k", "bfloat16")
    assert nothing[0, 0] == -np.inf
    assert nothing[0, 1] == np.inf
    assert np.isnan(nothing[0, 2])


def test_the_median_of_seeds_counts():
    result = made_up([0.01, 0.1, 5.0])
    seeds = {
        arm: {name: [runs[0], runs[0], 1000 * np.array(runs[0])] for name, runs in of_arm.items()}
        for arm, of_arm in result.runs.items()
    }
    for of_arm in seeds.values():
        of_arm |= {f"stored: {of}": [0.01] * 3 for of in RESULTS}
    lost = digits_lost(Result("rounding", (0, 1, 2), seeds, 1.0), "d_k", "bfloat16")
    assert_close(lost[0], [0, 1, np.log10(500)])


def test_what_each_step_reaches():
    """Values reach heads, d_q and d_k, but no d_v; what backward computes reaches no heads."""
    for name in NAMES:
        lost = {of: digits_lost(load_result("rounding"), of, name) for of in RESULTS}
        nothing = {
            of: {row for row in ROWS if (lost[of][ROW[row]] == -np.inf).all()} for of in lost
        }
        of_backward = {f"{KERNEL}{row}" for row in ("scores", "lse", "mean")}
        assert nothing["heads"] == {"d_heads", "d_weights", "d_scores", *of_backward}
        assert nothing["d_q"] == nothing["d_k"] == {"heads"}
        assert nothing["d_v"] == {
            "v", "heads", "d_weights", "d_scores", f"{KERNEL}heads", f"{KERNEL}mean"
        }  # fmt: skip
        assert (lost["d_k"][ROW[ALL]] > lost["d_k"][: ROW[ALL]].max(axis=0)).all()


def test_no_bound_of_the_atlas_is_exceeded():
    found = bounds_by_errors(load_result("rounding"))
    assert found.min() >= 1
    assert np.median(found) < 50


def test_the_picture_has_a_number_for_each_cell():
    picture = precision_atlas("bfloat16", ["d_k"])
    text = picture.svg()
    for row in ROWS:
        assert f">{row}<" in text
    lost = digits_lost(load_result("rounding"), "d_k", "bfloat16")
    assert text.count('class="n') == np.isfinite(lost).sum()
    assert f">{lost[ROW['q'], 2]:.1f}<" in text
    assert "Cross-hatched" not in text
    assert MINUS not in text  # where rounding costs less than storing
    whole = precision_atlas("bfloat16")
    assert len(whole.panels) == 2
    assert all(f">{of}<" in whole.svg() for of in RESULTS)


def test_a_picture_shows_where_nothing_is_left():
    text = precision_atlas("e4m3", ["d_k"], result=made_up([0.01, np.inf, np.nan])).svg()
    assert "Cross-hatched: nothing is left." in text
    assert "-broken)" in text
    assert text.count('class="n') == len(ROWS)  # where something is known
    bounds = precision_atlas("e4m3", ["d_k"], kind="bound", result=made_up([0.01, np.inf, 1])).svg()
    assert "Cross-hatched: no bound." in bounds


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["float8"], {}, "name: expected one of .*; got 'float8'"),
        (["float16", "d_k"], {}, "results: expected some of .*; got 'd_k'"),
        (["float16", ["d_x"]], {}, "results: expected some of"),
        (["float16", []], {}, "results: expected some of"),
        (["float16"], {"kind": "most"}, "kind: expected one of .*; got 'most'"),
    ],
)
def test_wrong_calls(arguments, options, message):
    with pytest.raises(ConfigError, match=message):
        precision_atlas(*arguments, **options)


def test_arms_have_names():
    assert list(ARMS) == [arm_of(name, size) for name in NAMES for size in SIZES]
