"""What every hand-written backward has to pass."""

from mha_numpy.checking import gradcheck
from tests.compare import GRADIENT_ERRORS


def assert_gradients(forward, backward, inputs, seed=0):
    """Fail unless all gradients agree with both numeric derivatives."""
    report = gradcheck(forward, backward, inputs, rng=seed)
    assert report.note == "", report.note
    for method in ("central", "complex step"):
        errors = report.errors(method)
        assert errors, f"no {method} rows"
        assert max(errors.values()) <= GRADIENT_ERRORS[method], str(report)
    assert report, str(report)
