"""Every contestant that is installed computes what our reference does."""

import numpy as np
import pytest

from mha_numpy.bench.adapters import our_attention, our_layer
from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.problems import Case, parse
from mha_numpy.bench.training import our_training
from tests.compare import Tolerance, assert_close

SHAPES = ("2,6,9,16", "2,6/3,9,16", "2,6/3,5,7,16", "2,6/3,1,7,16")
CALLS = [(shape, case) for shape in SHAPES for case in parse(shape).cases(masks=True)]


def run(contestant):
    return contestant.read(contestant.call())


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
def test_attention(contestant, shape, case):
    if case.backward and not contestant.has_backward:
        pytest.skip("forward only")
    drawn = parse(shape).draw(case, seed=3)
    expected = run(our_attention("numpy", drawn, case, 1))
    actual = run(contestant.attention(drawn, case, 1))
    names = ("out", "d_q", "d_k", "d_v") if case.backward else ("out",)
    for name, array, reference in zip(names, actual, expected, strict=True):
        assert array.dtype == np.float32
        assert_close(array, reference, "float32", name=name)


@pytest.mark.parametrize("case", [Case(), Case(backward=True)], ids=lambda case: case.name)
def test_layer(contestant, case):
    if contestant.layer is None:
        pytest.skip("no layer")
    drawn = parse("layer 3,5,12,2").draw(case)
    expected = run(our_layer("numpy", drawn, case, 1))
    actual = run(contestant.layer(drawn, case, 1))
    names = ("out", "d_x", *(f"d_{name}" for name in drawn.params))
    names = names if case.backward else names[:1]
    for name, array, reference in zip(names, actual, expected, strict=True):
        assert_close(array, reference, Tolerance(1e-5, 1e-5), name=name)


@pytest.mark.parametrize("model", ["TransformerLM", "AttentionOnlyLM"])
def test_training(contestant, model):
    """Two steps, so that the second shows what the first has learned."""
    if contestant.training is None:
        pytest.skip("no training")
    problem = parse(f"{model} 3,5,12,2,2,7")
    (case,) = problem.cases()
    drawn = problem.draw(case)
    ours, other = our_training("numpy", drawn, case, 1), contestant.training(drawn, case, 1)
    for _ in range(2):
        for array, reference in zip(run(other), run(ours), strict=True):
            assert_close(array, reference, Tolerance(1e-4, 1e-6))


def test_a_call_can_be_repeated(contestant):
    """Else gradients would pile up from pair to pair."""
    case = Case(backward=contestant.has_backward)
    for adapter, shape in ((contestant.attention, "1,2,5,4"), (contestant.layer, "layer 1,5,4,2")):
        if adapter is not None:
            ready = adapter(parse(shape).draw(case), case, 1)
            first = [array.copy() for array in run(ready)]
            for array, again in zip(first, run(ready), strict=True):
                assert_close(again, array, "float32")
