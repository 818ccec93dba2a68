"""Checkpoints: all that a training needs to go on as if it had never stopped."""

import json
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import FileError
from mha_numpy.nn import Layer
from mha_numpy.nn.params_file import PathLike, check_arrays, read_arrays, write_arrays
from mha_numpy.train.history import History
from mha_numpy.train.optimizers import Optimizer

FORMAT = "mha_numpy checkpoint 1"


def save_checkpoint(
    path: PathLike, optimizer: Optimizer, rng: np.random.Generator, history: History
) -> None:
    """Write params, what the optimizer remembers, history, and the state of all generators.

    Parameters
    ----------
    path : str or path
        A .npz file; one that is there already is replaced once the new one is whole.
    optimizer : Optimizer
        Its layer is the model.
    rng : numpy Generator
        Draws the batches.
    history : History

    Raises
    ------
    FileError
        The file cannot be written; what was there before stays.

    Examples
    --------
    >>> import tempfile
    >>> from mha_numpy.nn import Linear
    >>> from mha_numpy.train import SGD
    >>> optimizer, rng = SGD(Linear(2, 3), 0.1), np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(f"{folder}/run.npz", optimizer, rng, History(losses=[2.5]))
    ...     load_checkpoint(f"{folder}/run.npz", optimizer, rng).losses
    [2.5]
    """
    state = {
        "format": FORMAT,
        "optimizer": type(optimizer).__name__,
        "t": optimizer.t,
        "generators": states_of(generators_of(optimizer.layer, rng)),
        "history": vars(history),
    }
    text = json.dumps(state, default=lambda array: array.tolist())  # some generators hold arrays
    write_arrays(path, {"state": np.frombuffer(text.encode(), np.uint8), **_arrays_of(optimizer)})


def load_checkpoint(path: PathLike, optimizer: Optimizer, rng: np.random.Generator) -> History:
    """Read what `save_checkpoint` wrote into the model, its optimizer and all generators.

    Parameters
    ----------
    path : str or path
    optimizer : Optimizer
        Of the same kind, for a model of the same shapes and dtypes.
    rng : numpy Generator

    Returns
    -------
    History

    Raises
    ------
    FileError
        There is no such file, it is damaged or no checkpoint, or it is of another model or
        another kind of optimizer; nothing has changed then.
    """
    found = read_arrays(path)
    try:
        state: dict[str, Any] = json.loads(found.pop("state").tobytes())
        is_known = state["format"] == FORMAT
    except (KeyError, ValueError, TypeError):
        is_known = False
    if not is_known:
        raise FileError(
            f"{path}: expected a checkpoint ({FORMAT}); got another file with {list(found)[:3]}"
        )
    model = optimizer.layer
    generators = generators_of(model, rng)
    ours = {
        "optimizer": type(optimizer).__name__,
        "generators": [state["bit_generator"] for state in states_of(generators)],
    }
    theirs = {
        "optimizer": state["optimizer"],
        "generators": [state["bit_generator"] for state in state["generators"]],
    }
    for what in ours:
        if ours[what] != theirs[what]:
            raise FileError(f"{path}: expected {what} {ours[what]}; got {theirs[what]}")
    expected = _arrays_of(optimizer)
    check_arrays(path, found, expected, same_dtype=True)

    for name, param in model.named_params():
        param[...] = found[f"params/{name}"]
        count = len(optimizer.remembered(name, param))
        optimizer.memory[name] = tuple(found[f"memory/{name}/{i}"] for i in range(count))
    optimizer.t = state["t"]
    set_states(generators, state["generators"])
    return History(**state["history"])


def generators_of(model: Layer, rng: np.random.Generator) -> list[np.random.Generator]:
    """Return `rng` and every other generator that a layer holds, each once."""
    held = [value for layer in model.layers() for value in vars(layer).values()]
    found = [rng, *[value for value in held if isinstance(value, np.random.Generator)]]
    return list({id(generator): generator for generator in found}.values())


def states_of(generators: list[np.random.Generator]) -> list[Any]:
    """Return the state of each generator."""
    return [generator.bit_generator.state for generator in generators]


def set_states(generators: list[np.random.Generator], states: list[Any]) -> None:
    """Set each generator back to its state."""
    for generator, state in zip(generators, states, strict=True):
        generator.bit_generator.state = state


def _arrays_of(optimizer: Optimizer) -> dict[str, Array]:
    """Return all params, and what the optimizer remembers of each, by their names in the file."""
    params = dict(optimizer.layer.named_params())
    arrays = {f"params/{name}": param for name, param in params.items()}
    for name, param in params.items():
        for i, remembered in enumerate(optimizer.remembered(name, param)):
            arrays[f"memory/{name}/{i}"] = np.asarray(remembered)
    return arrays
