"""Experiments: their statistics by hand, their stored results, and what is found in them."""

import json
import re
from math import sqrt

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.models import experiments
from mha_numpy.models.experiments import (
    EXPERIMENTS,
    Chart,
    Experiment,
    Finding,
    Result,
    find_experiment,
    load_result,
    run_experiment,
)
from mha_numpy.models.experiments.report import measured_table, sections

RUNS = {"few": {"right": [0.5, 0.7]}, "many": {"right": [0.8, 0.8]}}
STORED = Result("try", (0, 1), RUNS, 1.0)
NEW_SEED = 100  # which no stored result has
WIDER = 2  # one number in twenty lies outside the interval of 95 %, and here are dozens
ROUNDED = 0.02  # of the spread of all arms: runs that all end at 1 have no spread of their own


def measure(arm, seed):
    """Measure as an experiment does, without training."""
    return {"right": seed / 10 + (arm == "many"), "curve": [seed, 2 * seed]}


TRY = Experiment(
    "try", "Title", "More is better.", "A", "It is.", "Count.", ("few", "many"),
    {"right": "share", "curve": "numbers"}, measure,
    (Chart("Curves", "curve", (1, 2), {"few": "few"}, "x", "y"),),
    lambda result: [Finding("More is better.", result.is_less("right", "few", "many"))],
)  # fmt: skip


def stored():
    return [pytest.param(EXPERIMENTS[name], load_result(name), id=name) for name in EXPERIMENTS]


# statistics


def test_an_interval_by_hand():
    half = 12.706 * sqrt(0.02) / sqrt(2)  # t for one degree of freedom; the variance is 0.02
    assert STORED.estimate("right", "few") == pytest.approx((0.6, 0.6 - half, 0.6 + half))
    assert STORED.next_run("right", "few").high == pytest.approx(0.6 + half * sqrt(3))
    assert STORED.estimate("right", "many") == (0.8, 0.8, 0.8)
    assert STORED.mean("right", "few") == pytest.approx(0.6)


def test_95_of_100_intervals_hold_the_mean_and_the_next_run():
    draws = np.random.default_rng(0).normal(size=(4000, 6))
    around, following = [], []
    for *known, new in draws:
        result = Result("try", tuple(range(5)), {"arm": {"x": known}}, 1.0)
        around.append(result.estimate("x", "arm"))
        following.append((result.next_run("x", "arm"), new))
    assert np.mean([low < 0 < high for _, low, high in around]) == pytest.approx(0.95, abs=0.01)
    inside = [low < new < high for (_, low, high), new in following]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)


def test_an_arm_is_less_only_if_the_intervals_do_not_meet():
    runs = {"few": {"x": [1, 1.1, 1.2]}, "more": {"x": [1.2, 1.3, 1.4]}, "many": {"x": [2, 2.1, 2]}}
    result = Result("try", (0, 1, 2), runs, 1.0)
    assert result.is_less("x", "few", "many")
    assert not result.is_less("x", "few", "more")
    assert not result.is_less("x", "many", "few")


def test_less_in_each_seed_compares_runs_with_the_same_seed():
    runs = {"a": {"x": [1, 5, 3]}, "b": {"x": [2, 6, 4]}, "c": {"x": [2, 6, 3]}}
    result = Result("try", (0, 1, 2), runs, 1.0)
    assert result.is_less_in_each_seed("x", "a", "b")
    assert not result.is_less_in_each_seed("x", "a", "c")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_experiment("head"), "name: expected an experiment such as heads; got 'head'"),
        (lambda: run_experiment(TRY, arms=["none"]), "arms: expected some of 'few', 'many'; got"),
        (lambda: run_experiment(TRY, seeds=[0.5]), "seeds"),
        (lambda: run_experiment(TRY, processes=-1), "processes"),
        (lambda: STORED.mean("left", "few"), "measure: expected one of right; got 'left'"),
        (lambda: STORED.mean("right", "no"), "arm: expected one of few, many; got 'no'"),
        (lambda: Result("try", (0,), {"few": {"right": [1]}}, 1).estimate("right", "few"),
         "seeds: expected at least 2 for an interval; got 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(call, message):
    with pytest.raises((ConfigError, TypeError)) as caught:
        call()
    assert message in str(caught.value)


# runs


@pytest.mark.parametrize("processes", [1, 2])
def test_every_arm_runs_with_every_seed(processes):
    result = run_experiment(TRY, seeds=(3, 5), processes=processes)
    assert result.seeds == (3, 5)
    assert result.runs == {
        "few": {"right": [0.3, 0.5], "curve": [[3, 6], [5, 10]]},
        "many": {"right": [1.3, 1.5], "curve": [[3, 6], [5, 10]]},
    }


def test_a_result_is_a_small_file(tmp_path):
    runs = {"few": {"right": [1 / 3, np.float32(2)], "curve": [[0.123456, 1e-9], [1, 12345.6]]}}
    Result("try", (0, 1), runs, 2.5).save(tmp_path / "try.json")
    found = json.loads((tmp_path / "try.json").read_text())
    rounded = {"few": {"right": [0.3333, 2], "curve": [[0.1235, 1e-9], [1, 12350]]}}
    assert found == {"experiment": "try", "seconds": 2.5, "seeds": [0, 1], "runs": rounded}


def test_the_command_says_what_holds_beside_what_the_docs_say(program, tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "try", TRY)
    monkeypatch.setattr(experiments, "load_result", lambda name: STORED)
    file = tmp_path / "again.json"
    done = program("experiment", "try", "--seeds", "3", "--jobs", "1", "--save", file)
    assert done.code == 0
    assert done.out.startswith(f"wrote {file}\n")  # before anything that might fail
    words = done.out.split("\n")[1:]
    assert words[0] == '"More is better." (A)'
    row = next(line for line in words if line.startswith("few"))
    assert re.split(r"\s{2,}", row)[2:] == ["0.1 (-0.148 to 0.348)", "0.6 (-0.671 to 1.87)"]
    assert "holds: More is better." in words
    assert json.loads(file.read_text())["seeds"] == [0, 1, 2]


def test_an_arm_that_was_never_published_has_an_empty_cell():
    old = Result("try", (0, 1), {"few": {"right": [0.3, 0.5]}}, 1)
    new = Result("try", (0, 1), {"few": {"right": [0.3, 0.5]}, "many": {"right": [1.3, 1.5]}}, 1)
    told = [row[3] for row in measured_table(TRY, new, old).rows]
    assert told == ["0.4 (-0.871 to 1.67)", ""]


def test_a_finding_that_does_not_hold_ends_with_1(program, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "try", TRY)
    monkeypatch.setattr(experiments, "load_result", lambda name: STORED)
    monkeypatch.setattr(Result, "is_less", lambda *_: False)
    assert program("experiment", "try", "--jobs", "1").code == 1


def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_trained(
    program, tmp_path, monkeypatch
):
    monkeypatch.setitem(EXPERIMENTS, "try", TRY)
    monkeypatch.setattr(experiments, "run_experiment", lambda *_, **__: pytest.fail("trained"))
    done = program("experiment", "try", "--save", tmp_path / "none" / "try.json")
    assert done.code == 2
    assert "save: there is no folder" in done.err


def test_the_command_lists_all(program):
    out = program("experiment").out
    for name, each in EXPERIMENTS.items():
        assert name in out
        assert f'"{each.claim}" {each.answer}' in " ".join(out.split())


# stored results


@pytest.mark.parametrize(("experiment", "result"), stored())
def test_a_stored_result_has_all_runs_of_five_seeds(experiment, result):
    assert result.experiment == experiment.name
    assert len(result.seeds) >= 5
    assert tuple(result.runs) == experiment.arms
    for measures in result.runs.values():
        assert list(measures) == list(experiment.measures)
        assert all(len(values) == len(result.seeds) for values in measures.values())


@pytest.mark.parametrize(("experiment", "result"), stored())
def test_all_findings_hold_and_have_their_numbers(experiment, result):
    found = experiment.findings(result)
    assert found
    for finding in found:
        assert finding.holds, finding.text
        assert "nan" not in finding.text


@pytest.mark.parametrize(("experiment", "result"), stored())
def test_charts_show_what_was_measured(experiment, result):
    assert experiment.charts
    for chart in experiment.charts:
        for arms in chart.lines.values():
            if isinstance(arms, str):
                assert result.values(chart.measure, arms).shape == (len(result.seeds), len(chart.x))
            else:
                assert len(arms) == len(chart.x)
                assert all(result.values(chart.measure, arm).ndim == 1 for arm in arms)


@pytest.mark.parametrize(("experiment", "result"), stored())
def test_every_heading_has_a_finding(experiment, result):
    heads = [i for i, chart in enumerate(experiment.charts) if chart.point or i == 0]
    shown = {found.chart for found in experiment.findings(result)} - {None}  # own picture
    assert max(shown) < len(experiment.charts)
    for head, end in zip(heads, [*heads[1:], len(experiment.charts)], strict=True):
        assert shown & set(range(head, end)), experiment.charts[head].title


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_report_has_a_row_for_each_number(experiment):
    result = load_result(experiment.name)
    (table,) = [each for each in sections(experiment, result) if not isinstance(each, str)]
    numbers = [m for m in experiment.measures if np.ndim(result.runs[experiment.arms[0]][m]) == 1]
    assert len(table.rows) == len(numbers) * len(experiment.arms)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_run_with_another_seed_is_among_the_stored_ones(experiment):
    stored, arm = load_result(experiment.name), experiment.arms[0]
    new = run_experiment(experiment, seeds=[NEW_SEED], arms=[arm], processes=1)
    for measure, values in stored.runs[arm].items():
        if np.ndim(values) > 1:
            continue
        everything = [stored.runs[each][measure] for each in experiment.arms]
        mean, _, high = stored.next_run(measure, arm)
        room = WIDER * (high - mean) + ROUNDED * np.ptp(everything)
        assert abs(new.mean(measure, arm) - mean) <= room, measure
