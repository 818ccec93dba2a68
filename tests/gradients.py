"""What every hand-written backward has to pass."""

from mha_numpy.checking import gradcheck
from tests.compare import GRADIENT_ERRORS


def assert_gradients(forward, backward, inputs, seed=0):
    """Fail unless all gradients agree with both numeric derivatives."""
    assert_passed(gradcheck(forward, backward, inputs, rng=seed))


def assert_passed(report):
    """Fail unless both methods ran and found no difference worth the name."""
    assert report.note == "", report.note
    for method in ("central", "complex step"):
        errors = report.errors(method)
        assert errors, f"no {method} rows"
        assert max(errors.values()) <= GRADIENT_ERRORS[method], str(report)
    assert report, str(report)


def assert_layer_gradients(layer, inputs, *ids, **options):
    """Fail unless the gradients of all inputs and params agree with both numeric derivatives.

    `ids`, which have none, come first. Each array is moved along one random direction, which
    takes part of every element. Generators are set back before each forward, so that the same
    numbers are dropped.
    """
    owners = dict(named_owners(layer))
    generators = {id(part.rng): part.rng for part in layer.layers() if hasattr(part, "rng")}
    states = [(rng, rng.bit_generator.state) for rng in generators.values()]

    def forward(params, **inputs):
        for rng, state in states:
            rng.bit_generator.state = state
        for name, array in params.items():
            owners[name].params[name.rpartition(".")[2]] = array
        return layer(*ids, **inputs, **options), None

    def backward(d_out, _):
        layer.zero_grads()
        d_inputs = layer.backward(d_out)
        if not isinstance(d_inputs, tuple):
            d_inputs = () if d_inputs is None else (d_inputs,)
        return {"params": dict(layer.named_grads()), **dict(zip(inputs, d_inputs, strict=True))}

    params = {name: array.copy() for name, array in layer.named_params()}
    report = gradcheck(
        forward, backward, {"params": params, **inputs}, max_full=0, samples=0, directions=1
    )
    assert_passed(report)


def named_owners(layer, prefix=""):
    """Yield the dotted name of each param with the layer that owns it."""
    yield from ((prefix + name, layer) for name in layer.params)
    for name, child in layer.children().items():
        yield from named_owners(child, f"{prefix}{name}.")


def randomize(layer, rng):
    """Draw all params: no gain is 1, no bias 0; a model does not begin as nearly linear."""
    for _, param in layer.named_params():
        param[...] = rng.normal(size=param.shape) / 2
    return layer
