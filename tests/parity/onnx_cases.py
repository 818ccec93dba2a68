"""ONNX's own test cases, those that consist of one node.

ONNX makes the cases of a module when it is imported, once in a process. Its `collect_testcases`
imports the modules of all operators, which takes ten times as long.
"""

import functools
import importlib
import warnings

import onnx
from onnx.backend.test.case import node as package

MODULES = {
    "Attention": "attention",
    "LayerNormalization": "layernormalization",
    "RMSNormalization": "rmsnormalization",
    "Softmax": "softmax",
    "Gelu": "gelu",
    "SoftmaxCrossEntropyLoss": "softmax_cross_entropy_loss",
    "RotaryEmbedding": "rotaryembedding",
}


@functools.cache
def cases_of(operator):
    """Return the cases that consist of one node of this operator, by name."""
    with warnings.catch_warnings():
        # some of the expected values overflow or divide by zero on purpose
        warnings.simplefilter("ignore", RuntimeWarning)
        importlib.import_module(f"{package.__name__}.{MODULES[operator]}")
    return {
        case.name: case
        for case in package._NodeTestCases
        if [node.op_type for node in case.model.graph.node] == [operator]
    }


def parts_of(case):
    """Return a case's node, its attributes by name, its inputs and its expected outputs."""
    (node,) = case.model.graph.node
    ((inputs, outputs),) = case.data_sets
    return (
        node,
        {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        inputs,
        outputs,
    )
