"""What every hand-written backward has to pass."""

from mha_numpy.checking import gradcheck
from tests.compare import GRADIENT_ERRORS


def assert_gradients(forward, backward, inputs, seed=0):
    """Fail unless all gradients agree with both numerical derivatives."""
    assert_passed(gradcheck(forward, backward, inputs, rng=seed))


def assert_passed(report):
    """Fail unless both methods ran and found no difference worth the name."""
    assert report.note == "", report.note
    for method in ("central", "complex step"):
        errors = report.errors(method)
        assert errors, f"no {method} rows"
        assert max(errors.values()) <= GRADIENT_ERRORS[method], str(report)
    assert report, str(report)


def assert_layer_gradients(layer, inputs, **options):
    """Fail unless the gradients of all inputs and params agree with both numerical derivatives.

    Each array is moved along one random direction, which takes part of every element.
    """
    report = gradcheck(layer, {**inputs, **options}, max_full=0, samples=0, directions=1)
    assert_passed(report)


def randomize(layer, rng):
    """Draw all params: no gain is 1, no bias 0; a model does not begin as nearly linear."""
    for _, param in layer.named_params():
        param[...] = rng.normal(size=param.shape) / 2
    return layer
