"""ONNX's own test cases, those that consist of one node: attention, and what stands around it.

ONNX makes the cases of a module when it is imported, once in a process. Its `collect_testcases`
imports the modules of all operators, which takes ten times as long.
"""

import functools
import importlib
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx.backend.test.case import node as package

from tests.compare import TOLERANCES, Tolerance, assert_close
from tests.parity.onnx_adapter import attention, run_node

OPERATORS = {  # its module, and how many cases at least: later versions of ONNX may add some
    "Attention": ("attention", 93),
    "FlexAttention": ("flexattention", 11),
    "LayerNormalization": ("layernormalization", 19),
    "RMSNormalization": ("rmsnormalization", 19),
    "Softmax": ("softmax", 7),
    "Gelu": ("gelu", 4),
    "SoftmaxCrossEntropyLoss": ("softmax_cross_entropy_loss", 34),
    "RotaryEmbedding": ("rotaryembedding", 8),
    "LinearAttention": ("linear_attention", 14),
    "CausalConvWithState": ("causal_conv_with_state", 13),
}


@functools.cache
def cases_of(operator):
    """Return the cases that consist of one node of this operator, by name."""
    with warnings.catch_warnings():
        # some of the expected values overflow or divide by zero on purpose
        warnings.simplefilter("ignore", RuntimeWarning)
        importlib.import_module(f"{package.__name__}.{OPERATORS[operator][0]}")
    return {
        case.name: case
        for case in package._NodeTestCases
        if [node.op_type for node in case.model.graph.node] == [operator]
    }


def tolerance_of(case, dtype):
    """Return the case's own tolerance, as ONNX's runner applies it: to each element.

    It is less than one unit in the last place of bfloat16, whose expected values were rounded
    after every step, ours once; there two units are allowed, as ONNX's own runner does.
    """
    own = Tolerance(case.rtol, case.atol, per_element=True)
    return TOLERANCES["bfloat16"] if dtype.name == "bfloat16" else own


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("operator", "name"),
    [(operator, name) for operator in OPERATORS for name in cases_of(operator)],
)
def test_case(operator, name):
    case = cases_of(operator)[name]
    (node,) = case.model.graph.node
    ((inputs, expected),) = case.data_sets
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    actual = run_node(node, attributes, inputs)
    for number, (ours, array) in enumerate(zip(actual, expected, strict=True)):
        assert ours.dtype == array.dtype
        assert_close(ours, array, tolerance_of(case, array.dtype), name=f"output {number}")


@pytest.mark.parametrize("operator", OPERATORS)
def test_all_cases_were_found(operator):
    assert len(cases_of(operator)) >= OPERATORS[operator][1]


def test_attention_is_tested_in_all_opsets():
    versions = {case.model.opset_import[0].version for case in cases_of("Attention").values()}
    assert versions >= {23, 24, 25}


def random_inputs(**options):
    """Return Q, K and V, with 5 queries, 7 keys and 3 key heads for 6 query heads."""
    rng = np.random.default_rng(20170612)
    shapes = {"Q": (4, 6, 5, 11), "K": (4, 3, 7, 11), "V": (4, 3, 7, 13)}
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return drawn | options


# ONNX's cases pass a short mask only where the keys beyond it are padding anyway
@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_a_short_mask_hides_the_keys_beyond_it(dtype):
    short = random_inputs(attn_mask=np.tri(5, 4).astype(dtype))
    cut = short | {name: short[name][:, :, :4] for name in "KV"}
    actual, expected = (attention(**inputs)[0] for inputs in (short, cut))
    assert_close(actual, expected, Tolerance(1e-6, 0))


def test_softmax_precision_widens_the_computation_and_not_the_output():
    narrow = random_inputs()
    wide = {name: array.astype(np.float64) for name, array in narrow.items()}
    actual, *_ = attention(**narrow, softmax_precision=onnx.TensorProto.DOUBLE)
    assert actual.dtype == np.float32
    assert_close(actual, attention(**wide)[0].astype(np.float32), "exact")
