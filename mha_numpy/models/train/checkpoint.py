"""Checkpoints: everything a training run needs to continue as if it had never stopped."""

import copy
import json
import re
from dataclasses import fields
from typing import Any

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checks import check_count, check_integer, check_type
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, FileError, describe, one_line
from mha_numpy.layers import Layer
from mha_numpy.layers.params_file import PARAMS, PathLike, check_arrays, read_arrays, write_arrays
from mha_numpy.models.train.finite import check_finite, is_finite
from mha_numpy.models.train.history import History
from mha_numpy.models.train.optimizers import Optimizer

FORMAT = "mha_numpy checkpoint 3"
LONGEST_HISTORY = 2**28  # bytes, of some millions of steps


@explained
def save_checkpoint(
    path: PathLike, optimizer: Optimizer, rng: np.random.Generator, history: History
) -> None:
    """Write params, memory, history, the state of all generators, and all options to compare.

    Parameters
    ----------
    path : str or path
        A .npz file; an existing one is replaced once the new one is whole.
    optimizer : Optimizer
        Its layer is the model.
    rng : numpy Generator
        Draws the batches.
    history : History
        With a norm for each loss.

    Raises
    ------
    FileError
        If the file cannot be written; a file that was there before stays.
    TrainingError
        If a param, or the optimizer's memory, is not finite; a file that was there before stays.

    Examples
    --------
    >>> import tempfile
    >>> from mha_numpy.layers import Linear
    >>> from mha_numpy.models.train import SGD
    >>> optimizer, rng = SGD(Linear(2, 3), 0.1), np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(f"{folder}/run.npz", optimizer, rng, History([2.5], norms=[0.5]))
    ...     load_checkpoint(f"{folder}/run.npz", optimizer, rng).losses
    [2.5]
    """
    check_type("optimizer", optimizer, Optimizer, "mha_numpy.models.train")
    check_type("rng", rng, np.random.Generator, "np.random.default_rng")
    check_type("history", history, History, "mha_numpy.models.train")
    arrays = _arrays_of(optimizer)
    check_finite(arrays.items(), "in a checkpoint")
    state = {
        "format": FORMAT,
        "options": options_of(optimizer),
        "t": optimizer.t,
        "generators": states_of(generators_of(optimizer.layer, rng)),
        "history": vars(history),
    }
    try:
        text = _to_json(state)
    except (AttributeError, TypeError, ValueError) as reason:
        raise ConfigError(
            f"history: expected lists of numbers; got {describe(vars(history))}"
        ) from reason
    _check_history(json.loads(text)["history"])
    write_arrays(path, {"state": np.frombuffer(text.encode(), np.uint8), **arrays})


@explained
def load_checkpoint(
    path: PathLike, optimizer: Optimizer, rng: np.random.Generator, *, steps: int | None = None
) -> History:
    """Read a checkpoint into the model, its optimizer and all generators.

    Parameters
    ----------
    path : str or path
    optimizer : Optimizer
        Of the same kind and options, for a model of the same options, shapes and dtypes.
    rng : numpy Generator
        Of the same kind.
    steps : int, optional
        Steps of the whole training; the file may not have more.

    Returns
    -------
    History

    Raises
    ------
    FileError
        If there is no such file, it is damaged or no checkpoint, it is of a different model or
        optimizer, or it has more steps; then nothing has changed.

    Notes
    -----
    The options of the layers and of the optimizer are compared, not adopted. With a different
    activation the params would mean something else, and with different options so would the
    optimizer's memory (a mean weighted by `betas`). A run that continues with a different learning
    rate is not the run that never stopped. The backend may differ; then the last digits do too.
    """
    check_type("optimizer", optimizer, Optimizer, "mha_numpy.models.train")
    check_type("rng", rng, np.random.Generator, "np.random.default_rng")
    if steps is not None:
        check_count("steps", steps, least=0)
    model = optimizer.layer
    found = read_arrays(path, _arrays_of(optimizer), more=LONGEST_HISTORY)
    generators = generators_of(model, rng)
    try:
        state = _state_of(found)
        _check_options(options_of(optimizer), state["options"])
        check_count("t", state["t"], least=0)
        _check_generators(generators, state["generators"])
        _check_history(state["history"])
        if steps is not None and len(state["history"]["losses"]) > steps:
            taken = len(state["history"]["losses"])
            raise ConfigError(f"steps: expected at least the {taken} of the file; got {steps}")
    except ConfigError as reason:
        raise FileError(f"{path}: {reason}") from reason
    except RecursionError as reason:
        raise FileError(f"{path}: expected JSON; got brackets nested too deeply") from reason
    check_arrays(path, found, _arrays_of(optimizer), same_dtype=True)
    if ruined := [name for name, array in found.items() if not is_finite(array)]:
        raise FileError(f"{path}: expected finite numbers; got nan or inf in {ruined[0]}")

    for name, param in model.named_params():
        param[...] = found[PARAMS + name]
        count = len(optimizer.remembered(name, param))
        optimizer.memory[name] = tuple(found[f"memory/{name}/{i}"] for i in range(count))
    optimizer.t = state["t"]
    set_states(generators, state["generators"])
    return History(**state["history"])


def options_of(optimizer: Optimizer) -> dict[str, str]:
    """Return the kind and the options of every layer and of the optimizer, as text by name."""
    own = {**optimizer.options, "groups": list(optimizer.groups)}
    parts: list[tuple[str, object, list[str]]] = [
        (f"model.{place}".rstrip("."), layer, layer.shown_options())
        for place, layer in optimizer.layer.named_layers()
    ]
    parts += [("optimizer", optimizer, [f"{name}={value!r}" for name, value in own.items()])]
    found = {}
    for place, part, shown in parts:
        found[place] = type(part).__name__
        for name, _, value in (option.partition("=") for option in shown):
            if name != "backend":
                found[f"{place}.{name}"] = re.sub("at 0x[0-9a-f]+", "", value)  # another each run
    return found


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
    params = dict(optimizer.layer.named_params())
    arrays = {PARAMS + name: param for name, param in params.items()}
    for name, param in params.items():
        for i, remembered in enumerate(optimizer.remembered(name, param)):
            arrays[f"memory/{name}/{i}"] = np.asarray(remembered)
    return arrays


def _to_json(state: Any) -> str:
    """Return JSON; some generators hold arrays."""
    return json.dumps(state, default=lambda array: array.tolist())


def _state_of(found: dict[str, Array]) -> dict[str, Any]:
    got = f"a different file with {list(found)[:3]}"
    try:
        state = json.loads(found.pop("state").tobytes())
        is_known = state["format"] == FORMAT
        got = describe(state["format"])
    except (KeyError, ValueError, TypeError):
        is_known = False
    if not is_known:
        raise ConfigError(f"expected a checkpoint ({FORMAT}); got {got}")
    _check_names("state", state, ["format", "options", "t", "generators", "history"])
    return state


def _check_names(what: str, found: Any, expected: list[str]) -> None:
    if not isinstance(found, dict) or set(found) != set(expected):
        got = list(found) if isinstance(found, dict) else found
        raise ConfigError(f"{what}: expected {', '.join(expected)}; got {describe(got)}")


def _check_options(ours: dict[str, str], theirs: Any) -> None:
    if not isinstance(theirs, dict):
        raise ConfigError(f"options: expected a dict; got {describe(theirs)}")
    for name in {**ours, **theirs}:
        absent = "the default" if name.rpartition(".")[0] in ours else "nothing"  # of a list
        expected, got = ours.get(name, absent), theirs.get(name, absent)
        if got != expected:
            raise ConfigError(
                f"{one_line(name)}: expected {one_line(expected)}; got {one_line(got)}; "
                "continue with the model and optimizer of the file, or start a new file"
            )


def _check_generators(ours: list[np.random.Generator], theirs: Any) -> None:
    """Try each state on a copy of our generator, or raise a ConfigError."""
    kinds = [type(generator.bit_generator).__name__ for generator in ours]
    states = theirs if isinstance(theirs, list) else [theirs]
    found = [s.get("bit_generator") if isinstance(s, dict) else s for s in states]
    if found != kinds:
        raise ConfigError(f"generators: expected {kinds}; got {describe(found)}")
    for generator, kind, state in zip(ours, kinds, states, strict=True):
        trial = copy.deepcopy(generator.bit_generator)
        try:
            trial.state = state
            fits = json.loads(_to_json(trial.state)) == state and _is_within(state)
        except Exception:  # NumPy raises anything on an invalid state
            fits = False
        if not fits:
            raise ConfigError(f"generators: expected a state of {kind}; got {describe(state)}")


def _is_within(state: dict[str, Any]) -> bool:
    """Return whether a generator's position is inside its array; NumPy reads there unchecked."""
    parts = {**state, **state["state"]}
    places = [(parts[at], parts[of]) for at, of in PLACES if at in parts]
    return all(0 <= place <= len(array) for place, array in places)


PLACES = (("pos", "key"), ("buffer_pos", "buffer"))  # of MT19937, of Philox


def _check_history(history: Any) -> None:
    _check_names("history", history, [field.name for field in fields(History)])
    for name, numbers in history.items():
        if not isinstance(numbers, list):
            raise ConfigError(f"history.{name}: expected a list; got {describe(numbers)}")
    losses, norms, measures = history["losses"], history["norms"], history["measures"]
    for name, numbers in {"losses": losses, "norms": norms}.items():
        if not _are_finite(numbers):
            raise ConfigError(f"history.{name}: expected finite numbers; got {describe(numbers)}")
    if len(norms) != len(losses):
        raise ConfigError(
            f"history.norms: expected {len(losses)}, one for each loss; got {len(norms)}"
        )
    for measure in measures:
        if not isinstance(measure, dict) or "step" not in measure:
            raise ConfigError(
                f"history.measures: expected dicts with a 'step'; got {describe(measure)}"
            )
        check_count("history.measures: step", measure["step"], least=0)
        for name, number in measure.items():
            if not isinstance(number, float):
                check_integer(f"history.measures: {describe(name)}", number)


def _are_finite(numbers: list[Any]) -> bool:
    """Return whether these are finite numbers; fast, because a long training has many."""
    try:
        return {*map(type, numbers)} <= {int, float} and is_finite(np.array(numbers, float))
    except OverflowError:  # an integer beyond float64
        return False
