"""The atlas of rounded steps: its second backward, its digits by hand, and its picture."""

import re

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
    STEPS,
    digits_lost,
    measure,
    scale_for,
    spread_of_formats,
    traced,
)
from mha_numpy.show.pictures import precision_atlas
from mha_numpy.show.pictures.labels import MINUS
from tests.compare import assert_close


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
    assert scale_for(np.zeros(3), name) == scale_for(np.zeros(0), name) == 1


def made_up(errors, stored=0.01):
    """Return a result in which each row has these errors, for scores of 1, 4 and 16."""
    runs = {}
    for arm, (_, size) in ARMS.items():
        of_row = [errors[SIZES.index(size)]] * len(ROWS)
        runs[arm] = {f"{kind}: {of}": [of_row] for kind in ("error", "bound") for of in RESULTS}
        runs[arm] |= {f"stored: {of}": [stored] for of in RESULTS}
    return Result("rounding", (0,), runs, 1.0)


def test_digits_by_hand():
    """Ten times the error of storing is one digit, and as much is none."""
    lost = digits_lost(made_up([0.01, 0.1, 5.0]), "d_k", "bfloat16")
    assert list(lost) == list(ROWS)
    assert_close(lost["q"], [0, 1, np.log10(500)])
    nothing = digits_lost(made_up([1e-15, np.inf, np.nan]), "d_k", "bfloat16")["q"]
    assert nothing[0] == -np.inf
    assert nothing[1] == np.inf
    assert np.isnan(nothing[2])


def test_digits_of_what_is_not_there():
    with pytest.raises(ConfigError, match="of: expected one of .*; got 'foo'"):
        digits_lost(made_up([1, 1, 1]), "foo", "bfloat16")
    with pytest.raises(ConfigError, match="name: expected one of .*; got 'half'"):
        digits_lost(made_up([1, 1, 1]), "d_k", "half")


def test_the_median_of_seeds_counts():
    result = made_up([0.01, 0.1, 5.0])
    seeds = {
        arm: {name: [runs[0], runs[0], 1000 * np.array(runs[0])] for name, runs in of_arm.items()}
        for arm, of_arm in result.runs.items()
    }
    for of_arm in seeds.values():
        of_arm |= {f"stored: {of}": [0.01, 0.01, 7.0] for of in RESULTS}
    lost = digits_lost(Result("rounding", (0, 1, 2), seeds, 1.0), "d_k", "bfloat16")
    assert_close(lost["q"], [0, 1, np.log10(500)])


def test_the_spread_of_formats_by_hand():
    """Only steps that reach a result count, and only formats of 16 bits or more."""
    runs = made_up([0.1, 0.1, 0.1]).runs
    for arm, of_arm in runs.items():
        factor = {"float16": 10**0.25, "e4m3": 100.0}.get(ARMS[arm][0], 1.0)
        of_arm["error: d_k"][0][1] *= factor
        of_arm["error: d_q"][0][0] = 0.0
        of_arm["error: d_q"][0][list(ROWS).index(f"{KERNEL}lse")] *= factor**2
    assert spread_of_formats(Result("rounding", (0,), runs, 1.0)) == pytest.approx(0.25)


def test_what_is_measured_by_hand():
    """One head of three tokens: a backward whose own scores are rounded, and rounded values."""
    shape = 1, 1, 3, 2
    q, k, v, d_out = np.random.default_rng(5).normal(size=(4, *shape))
    found = measure("e4m3", 4, 5, shape)
    scores = 4 * q @ k.swapaxes(-1, -2) / np.sqrt(2)
    lse = np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    weights, rounded = (
        np.exp(array - lse)
        for array in (scores, round_to(scores, "e4m3", scale=scale_for(scores, "e4m3")))
    )
    d_v, off = weights.swapaxes(-1, -2) @ d_out, (rounded - weights).swapaxes(-1, -2) @ d_out

    def of(name):
        return dict(zip(ROWS, found[name], strict=True))

    def share(off, exact):
        return pytest.approx(np.linalg.norm(off) / np.linalg.norm(exact))

    assert of("error: d_v")[f"{KERNEL}backward scores"] == share(off, d_v)
    assert of("error: d_v")["scores"] != share(off, d_v)
    exact, narrow = weights @ v, round_to(v, "e4m3", scale=scale_for(v, "e4m3"))
    assert of("error: heads")["v"] == share(weights @ (narrow - v), exact)
    stored = round_to(exact, "e4m3", scale=scale_for(exact, "e4m3"))
    assert found["stored: heads"] == share(stored - exact, exact)
    assert found["all: d_k"] == of("error: d_k")[ALL]
    assert 0.3 < found["used"] <= 1
    assert of("bound: heads")["v"] >= of("error: heads")["v"]


def test_what_each_step_reaches():
    """Values reach heads, d_q and d_k, but no d_v; what backward computes reaches no heads."""
    for name in NAMES:
        lost = {of: digits_lost(load_result("rounding"), of, name) for of in RESULTS}
        nothing = {
            of: {row for row, digits in rows.items() if (digits == -np.inf).all()}
            for of, rows in lost.items()
        }
        of_backward = {f"{KERNEL}{row}" for row in ("backward scores", "lse", "row mean")}
        assert nothing["heads"] == {"d_heads", "d_weights", "d_scores", *of_backward}
        assert nothing["d_q"] == nothing["d_k"] == {"heads"}
        assert nothing["d_v"] == {
            "v", "heads", "d_weights", "d_scores", f"{KERNEL}heads, for mean", f"{KERNEL}row mean"
        }  # fmt: skip
        assert (lost["d_k"][ALL] > np.max([lost["d_k"][step] for step in STEPS], axis=0)).all()


def test_the_picture_has_a_number_for_each_cell():
    picture = precision_atlas("bfloat16", ["d_k"])
    text = picture.svg()
    for row in ROWS:
        assert f">{row.removeprefix(KERNEL)}<" in text
    lost = digits_lost(load_result("rounding"), "d_k", "bfloat16")
    assert text.count('class="n') == np.isfinite(list(lost.values())).sum()
    assert f">{lost['q'][2]:.1f}<" in text
    assert "Cross-hatched" not in text
    assert MINUS not in text  # where rounding costs less than storing
    whole = precision_atlas("bfloat16")
    assert len(whole.panels) == 2
    across = [float(x) for x in re.findall(r'class="m" x="([\d.]+)"', whole.panels[0].svg())]
    assert len(across) == 2
    assert across[1] > across[0] + 3 * 27  # above its own columns
    assert all(f">{of}<" in whole.svg() for of in RESULTS)


def test_a_picture_shows_where_nothing_is_left():
    text = precision_atlas("e4m3", ["d_k"], result=made_up([0.01, np.inf, np.nan])).svg()
    assert "Cross-hatched: nothing is left." in text
    assert "-broken)" in text
    assert text.count('class="n') == len(ROWS)  # where something is known
    bounds = precision_atlas("e4m3", ["d_k"], kind="bound", result=made_up([0.01, np.inf, 1]))
    assert "Cross-hatched: no bound." in bounds.notes
    words = bounds.panels[0].desc
    assert words.startswith('d_k: up to 2.0 digits, in the row "q" for scores of size 16; all may')
    assert f'"{KERNEL}row mean"' in words


def test_the_strongest_colour_is_one_and_a_half_digits():
    of = [10**-1.25, 1.0, 100.0]  # 0.75, 2 and 4 digits
    text = precision_atlas("bfloat16", ["d_k"], result=made_up(of)).svg()
    assert text.count('opacity="1"') == 3  # of both 2 and 4 digits, in one path for each block
    assert text.count('opacity="0.5"') == 3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["float8"], {}, "name: expected one of .*; got 'float8'"),
        (["float16", "d_k"], {}, "results: expected a list of some of .*; got 'd_k'"),
        (["float16", ["d_x"]], {}, "results: expected a list of some of"),
        (["float16", []], {}, "results: expected a list of some of"),
        (["float16", 5], {}, "results: expected a list of some of .*; got 5"),
        (["float16"], {"result": 5}, "result: expected the Result of run_experiment"),
        (["float16"], {"kind": "most"}, "kind: expected one of .*; got 'most'"),
    ],
)
def test_wrong_calls(arguments, options, message):
    with pytest.raises(ConfigError, match=message):
        precision_atlas(*arguments, **options)
