"""Every contestant that is installed computes what our reference does."""

import pytest

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.problems import Case, LayerProblem, Problem, TrainingProblem, parse
from tests.compare import Tolerance, assert_close

SHAPES = (
    "2,6,9,16", "2,6/3,9,16", "2,6/3,5,7,16", "2,6/3,1,7,16", "layer 3,5,12,2",
    "TransformerLM 3,5,12,2,2,7", "AttentionOnlyLM 3,5,12,2,2,7",
)  # fmt: skip
CALLS = [(shape, case) for shape in SHAPES for case in parse(shape).cases(masks=True)]
CALLS += [
    ("2,6/3,9,16", Case(backward=backward, is_causal=is_causal, mask=mask, window=window))
    for backward in (False, True)
    for is_causal, mask, window in [
        (True, "padding", 0), (True, "full", 0), (True, None, 4), (True, "padding", 4),
        (False, "bias", 0), (True, "bias", 0), (True, "bias", 4),
    ]
]  # fmt: skip
CALLS += [("2,6/3,9,16", Case(backward=backward, is_double=True)) for backward in (False, True)]
TOLERANCES = {
    Problem: "float32", LayerProblem: Tolerance(1e-5, 1e-5), TrainingProblem: Tolerance(1e-4, 1e-6),
}  # fmt: skip


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.kernel if name in ("numba", "loops") else ())
        for name in CONTESTANTS
        if name != "numpy"
    ]
)
def contestant(request):
    found = CONTESTANTS[request.param]
    if not found.is_here:
        pytest.skip(f"needs {found.install}")
    return found


@pytest.mark.parametrize(
    ("shape", "case"), CALLS, ids=[f"{shape} {case.name}" for shape, case in CALLS]
)
def test_results(contestant, shape, case):
    problem = parse(shape)
    kind = type(problem)
    if kind not in contestant.adapters or (case.backward and not contestant.has_backward):
        pytest.skip("it has none")
    drawn = problem.draw(case, seed=3)
    reference = CONTESTANTS["numpy"].adapters[kind](drawn, case, 1)
    other = contestant.adapters[kind](drawn, case, 1)
    for _ in range(2):  # gradients do not pile up; the second step shows what the first has learned
        expected, actual = (ready.read(ready.call()) for ready in (reference, other))
        for number, (array, ours) in enumerate(zip(actual, expected, strict=True)):
            assert array.dtype == ours.dtype
            assert_close(array, ours, TOLERANCES[kind], name=f"array {number}")
