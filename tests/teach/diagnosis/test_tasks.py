"""The solutions: each is right, takes what its probes hold, and returns what it says."""

from inspect import signature

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.core import MultiHeadParams
from mha_numpy.teach.diagnosis import TASKS, make, right_answers
from mha_numpy.teach.diagnosis.solutions import read_solutions
from tests.compare import assert_close
from tests.teach.diagnosis.by_core import by_core

each_task = pytest.mark.parametrize("task", TASKS)

PARTS = {  # of the one thing that the docstring describes
    "prune_heads": MultiHeadParams._fields,
    "from_gpt2": MultiHeadParams._fields,
    "cost_table": (
        "attention_params", "projection_flops", "score_flops", "weights_bytes", "kv_cache_bytes",
    ),
}  # fmt: skip


@each_task
def test_a_task_is_a_function_of_its_name_that_takes_what_its_probes_hold(task):
    function = read_solutions().cuts[task].function
    for probe in TASKS[task].probes():
        assert list(signature(function).parameters) == list(probe)


@each_task
def test_what_it_returns_has_the_names_of_its_docstring(task):
    results, result = TASKS[task].results, TASKS[task].result
    for answer in right_answers(task):
        fields = answer if isinstance(answer, dict) else getattr(answer, "_fields", [result])
        assert list(fields) == list(PARTS.get(task, results))
        assert isinstance(answer, np.ndarray) == bool(result)


@each_task
def test_it_is_right(task):
    for probe, answer in zip(TASKS[task].probes(), right_answers(task), strict=True):
        mine, theirs = leaves(answer).values(), leaves(by_core(task)(**probe)).values()
        for one, other in zip(mine, theirs, strict=True):
            assert_close(np.asarray(one, dtype=float), np.asarray(other, dtype=float))


def test_costs_by_hand():
    table = make("cost_table")(B=2, T=3, D=8, H=4, H_kv=2, d=5, itemsize=4)
    assert table == {
        "attention_params": 8 * 20 + 2 * 8 * 10 + 20 * 8,
        "projection_flops": 2 * 6 * 480,
        "score_flops": 2 * (2 * 2 * 4 * 3 * 3 * 5),
        "weights_bytes": 4 * 72,
        "kv_cache_bytes": 4 * 2 * 60,
    }


@each_task
def test_probes_are_read_only_and_the_same_each_time(task):
    probes = TASKS[task].probes()
    assert TASKS[task].probes()[0] is probes[0]
    for leaf in leaves(probes).values():
        if isinstance(leaf, np.ndarray):
            assert not leaf.flags.writeable
            assert leaf.dtype in (np.float64, bool, np.int64)
