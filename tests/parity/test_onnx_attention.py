import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from tests.compare import TOLERANCES, Tolerance, assert_close
from tests.parity.onnx_adapter import Inputs, Outputs, run_attention
from tests.parity.onnx_cases import cases_of, parts_of

pytestmark = pytest.mark.usefixtures("backend")


def by_name(names, present, arrays):
    """Name a node's arrays by position: a slot that is left out is the empty string."""
    slots = [name for name, slot in zip(names, present, strict=False) if slot]
    return dict(zip(slots, arrays, strict=True))


def tolerance_of(case, dtype):
    """Return the case's own tolerance, as ONNX's runner applies it: to each element.

    It is less than one unit in the last place of bfloat16, whose expected values were rounded
    after every step, ours once; there two units are allowed, as ONNX's own runner does.
    """
    own = Tolerance(case.rtol, case.atol, per_element=True)
    return TOLERANCES["bfloat16"] if dtype.name == "bfloat16" else own


@pytest.mark.parametrize("name", cases_of("Attention"))
def test_case(name):
    case = cases_of("Attention")[name]
    node, attributes, inputs, outputs = parts_of(case)
    expected = by_name(Outputs._fields, node.output, outputs)
    actual = run_attention(by_name(Inputs._fields, node.input, inputs), attributes, expected)
    for output, array in expected.items():
        ours = getattr(actual, output)
        assert ours.dtype == array.dtype
        assert_close(ours, array, tolerance_of(case, array.dtype), name=output)


def test_all_cases_of_all_opsets_were_found():
    cases = cases_of("Attention").values()
    assert len(cases) >= 93
    assert {case.model.opset_import[0].version for case in cases} >= {23, 24, 25}


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
    actual, expected = (run_attention(inputs, {}, ["Y"]).Y for inputs in (short, cut))
    assert_close(actual, expected, Tolerance(1e-6, 0))


def test_softmax_precision_widens_the_computation_and_not_the_output():
    narrow = random_inputs()
    wide = {name: array.astype(np.float64) for name, array in narrow.items()}
    actual = run_attention(narrow, {"softmax_precision": onnx.TensorProto.DOUBLE}, ["Y"]).Y
    assert actual.dtype == np.float32
    assert_close(actual, run_attention(wide, {}, ["Y"]).Y.astype(np.float32), "exact")


def test_an_unknown_attribute_is_an_error():
    with pytest.raises(TypeError, match="no_such_attribute"):
        run_attention(random_inputs(), {"no_such_attribute": 1}, ["Y"])
