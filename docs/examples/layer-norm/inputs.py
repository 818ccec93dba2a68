"""The inputs of each call: three sizes that differ, each of the axes, an eps that matters."""


def draw(rng):
    """Return the arguments of three calls."""
    inputs = []
    for axis, eps in ((2, 0.1), (0, 0.5), (-2, 0.2)):
        x = 1 + 2 * rng.normal(size=(2, 3, 4))
        shape = [1, 1, 1]
        shape[axis] = x.shape[axis]
        gain, bias = rng.normal(size=shape), rng.normal(size=shape)
        inputs.append({"x": x, "gain": gain, "bias": bias, "axis": axis, "eps": eps})
    return inputs
