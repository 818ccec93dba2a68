"""ONNX's own cases of what stands around attention."""

import pytest

pytest.importorskip("onnx")

from tests.compare import Tolerance, assert_close
from tests.parity.onnx_block_adapter import OPERATORS
from tests.parity.onnx_cases import cases_of, parts_of

NUMBER_OF_CASES = {  # at least: later versions of ONNX may add some
    "LayerNormalization": 19,
    "RMSNormalization": 19,
    "Softmax": 7,
    "Gelu": 4,
    "SoftmaxCrossEntropyLoss": 34,
    "RotaryEmbedding": 8,
}


@pytest.mark.parametrize(
    ("operator", "name"),
    [(operator, name) for operator in OPERATORS for name in cases_of(operator)],
)
def test_case(operator, name):
    case = cases_of(operator)[name]
    node, attributes, inputs, expected = parts_of(case)
    assert all([*node.input, *node.output])  # no slot is left out
    actual = OPERATORS[operator](*inputs, **attributes)
    for output, ours, array in zip(node.output, actual, expected, strict=False):
        assert ours.dtype == array.dtype
        assert_close(ours, array, Tolerance(case.rtol, case.atol, per_element=True), name=output)
    assert len(actual) >= len(expected)


@pytest.mark.parametrize("operator", OPERATORS)
def test_all_cases_were_found(operator):
    assert len(cases_of(operator)) >= NUMBER_OF_CASES[operator]
