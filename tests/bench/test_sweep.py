"""Random calls, and the report on them."""

from collections import Counter

import numpy as np
import pytest

from mha_numpy.bench import Cell, Ratio, Results, Settings
from mha_numpy.bench.chart import sweep_chart
from mha_numpy.bench.plan import plan
from mha_numpy.bench.problems import Case, LayerProblem, joint_mask, parse, written
from mha_numpy.bench.report import name_of, sections, to_markdown
from mha_numpy.bench.spread import sweep_tables
from mha_numpy.bench.sweep import MOST_OPERATIONS, draw_calls
from mha_numpy.errors import ConfigError
from tests.show.pictures.helpers import assert_readable, root_of


def test_a_seed_draws_the_same_calls_and_more_of_them_begin_alike():
    calls = draw_calls(30, seed=5)
    assert len(calls) == 30
    assert calls == draw_calls(40, seed=5)[:30]
    assert calls != draw_calls(30, seed=6)


def test_every_kind_is_drawn_and_none_takes_minutes():
    found = Counter()
    for shape, case in draw_calls(300, seed=1):
        problem = parse(shape)
        assert written(problem) == shape
        assert problem.operations(case) <= MOST_OPERATIONS
        assert not case.window or case.is_causal
        found.update([type(problem).__name__, *case.name.split()])
        if isinstance(problem, LayerProblem):
            continue
        found["step"] += problem.T_q <= 8 < problem.T_k
        found["grouped"] += problem.H_kv != problem.H
        found["odd width"] += problem.d % 16 != 0
        found["long"] += problem.T_k > 8192
    kinds = ["LayerProblem", "fwd", "fwd+bwd", "causal", "window", "padding", "mask", "bias"]
    kinds += ["float64", "step", "grouped", "odd width", "long"]
    assert min(found[kind] for kind in kinds) >= 5, found


@pytest.mark.parametrize("shape", ["2,3,9,4", "2,3,5,9,4", "2,3,9,5,4"])
@pytest.mark.parametrize("window", [0, 1, 3, 50])
def test_cells_outside_a_window_do_not_count(shape, window):
    problem, case = parse(shape), Case(is_causal=True, window=window)
    visible = joint_mask(problem.T_q, problem.T_k, case, None)
    i, j = np.indices(visible.shape)
    assert np.array_equal(visible, (j <= i) & (j > i - (window or 99)))
    assert problem.operations(case) == 2 * 2 * 6 * visible.sum() * 4
    padded = case._replace(mask="padding")
    both = visible & problem.draw(padded).mask
    assert problem.operations(padded) == 2 * 2 * 3 * both.sum() * 4


def test_a_bias_and_float64():
    drawn = parse("2,6/3,5,7,4").draw(Case(mask="bias", is_double=True))
    assert drawn.bias.shape == (1, 6, 5, 7)
    assert {x.dtype for x in (*drawn[:4], drawn.bias)} == {np.dtype(float)}
    assert drawn.mask is None


def test_the_plan_has_a_measurement_for_each_call_and_nothing_else():
    settings = Settings(ours="numpy", against=("numpy",), threads=1, sweep=7, seed=2)
    assert settings.command.endswith(" --threads 1 --sweep 7 --seed 2")
    assert [task.name for task in plan(settings)] == [
        f"{shape} {case.name}" for shape, case in draw_calls(7, seed=2)
    ]


def test_the_numbers_of_a_sweep_are_checked():
    for name in ("sweep", "seed"):
        with pytest.raises(ConfigError, match=f"^{name}: expected an integer >= 0; got -1$"):
            Settings(ours="numpy", **{name: -1})


def cell(shape, case, ratio, **rest):
    return Cell(shape, case, "numpy", Ratio(ratio, ratio / 2, 2 * ratio), 3.0, 4.0, 5, 0.0, **rest)


CELLS = [
    cell("1,2,5,4", "fwd", 2.0),
    cell("1,4/2,1,64,4", "fwd padding", 0.5, ours_fraction=0.125, other_fraction=0.25),
    cell("layer 1,2,4,2", "fwd+bwd", 1.0),
    cell("1,2,6,4", "fwd+bwd causal float64", 0.8),
    cell("1,2,7,4", "fwd", 9.0)._replace(difference=None),
]
SWEPT = Results(
    Settings(ours="numpy", against=("numpy",), sweep=5), {"family": "Abacus, beads"}, CELLS, []
)


def test_tables():
    spread, behind = sweep_tables(SWEPT, "numpy")
    assert spread.rows[0] == ["all", "2 of 4", "0.50", "0.59", "0.90", "1.70"]
    assert [row[:3] for row in spread.rows[1:]] == [
        ["fwd", "1 of 2", "0.50"], ["fwd+bwd", "1 of 2", "0.80"], ["layers", "1 of 1", "1.00"],
        ["few queries, more keys", "0 of 1", "0.50"], ["causal", "0 of 1", "0.80"],
        ["padding, mask or bias", "0 of 1", "0.50"], ["float64", "0 of 1", "0.80"],
    ]  # fmt: skip
    assert behind.rows == [
        ["1,2,7,4", "fwd", "RESULTS DIFFER: NaN", "", ""],
        ["1,4/2,1,64,4", "fwd padding", "0.50 (0.25-1.00)", "12.5% / 25.0%", "3"],
        ["1,2,6,4", "fwd+bwd causal float64", "0.80 (0.40-1.60)", "", "3"],
    ]
    assert behind.bad_rows == {0}


def test_the_report_has_a_place_of_its_own_in_a_page():
    assert name_of(SWEPT) == "Abacus, beads, random calls"
    assert to_markdown(SWEPT).startswith("### Abacus, beads, random calls\n")
    assert len(list(sections(SWEPT))) == 3  # the command and both tables


def test_chart():
    picture = sweep_chart(SWEPT)
    assert picture.notes[0] == "our NumPy: 2 of 4 calls at 1 or more, median 0.9, lowest 0.5"
    assert "Abacus, beads" in picture.alt
    assert_readable(picture)
    dots = [e for e in root_of(picture.panels[0]).iter() if e.tag.endswith("use")]
    assert len(dots) >= 4  # not where results differ
