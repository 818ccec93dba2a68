"""Each notebook's exercise: the stub is not yet right, a solution passes, a mistake is named."""

import inspect
import re
import socket

import numpy as np
import pytest

from mha_numpy.exercises import EXERCISES, find_exercise, hint, notebook
from mha_numpy.exercises.records import Records
from tests.notebooks.cells import (
    SOLUTIONS,
    SOURCES,
    each_notebook,
    each_notebook_run,
    notebook_of,
    run,
    shown_by,
    tagged,
    up_to_the_exercise,
)

MISTAKES = {  # in the order of the notebooks: what solutions/*_wrong.py do
    "split-heads": "split without transpose",
    "merge-heads": "merge without transpose",
    "attention": "softmax over queries",
    "scores": "scale missing",
    "scores-backward": "scale left out of backward",
    "softmax-with-lse": "one maximum for all",
    "masks": "q_offset ignored",
    "multi-head": "merge without transpose",
    "cross-attention": "split without transpose",
    "softmax-backward": "row sum over queries",
    "attention-backward": "diagonal of the Jacobian alone",
    "linear-backward": "d_w: mean over the batch",
    "input-gradient": "branch of v forgotten",
    "grouped-attention": "groups tiled, not repeated",
    "sum-over-group": "gradients summed as if tiled",
    "rope": "pairs interleaved",
    "rope-backward": "gradient turned forward",
    "online-attention": "old mixture not rescaled",
    "from-gpt2": "every w transposed",
    "to-gpt2": "every w transposed",
    "head-gates": "gate gradient: mean over the batch",
    "museum-nan-row": "NaN in a row that sees nothing",
    "adam-step": "corrected means kept",
    "cross-entropy-backward": "ignored tokens keep their softmax",
    "train-steps": "gradients not zeroed",
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a notebook reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def own_records(monkeypatch):
    monkeypatch.setattr(notebook, "RECORDS", Records())


@pytest.fixture(autouse=True)
def own_print_options():
    with np.printoptions():  # what a notebook sets is not for the tests after it
        yield


def answer(source, kind):
    return (SOLUTIONS / f"{source.name[:2]}_{kind}.py").read_text(encoding="utf-8")


def checked(source):
    """Return the ids of the exercises that a notebook checks, in order."""
    (code,) = tagged(source, "check")
    return re.findall(r'^check\("(.*?)", ', code, flags=re.MULTILINE)


def more(source):
    """Return the ids of exercises that the text names besides."""
    cells = notebook_of(source).cells
    (section,) = (cell.source for cell in cells if "## Exercise: " in cell.source)
    _, _, told = section.partition("`mha-numpy exercises`")
    return set(re.findall("`([a-z0-9-]+)`", told))


@pytest.mark.filterwarnings(  # Keras, when it turns PyTorch's tensors into arrays
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
@each_notebook_run
def test_the_check_tells_right_from_wrong(source, monkeypatch):
    names, (check,) = up_to_the_exercise(source), tagged(source, "check")
    (stub,), ids = tagged(source, "exercise"), checked(source)

    unwritten = shown_by([stub, check], names, monkeypatch)
    assert [verdict.exercise.id for verdict in unwritten if verdict.is_unwritten] == ids

    right = shown_by([answer(source, "right"), check], names, monkeypatch)
    told = "\n\n".join(map(str, right))
    assert [verdict.exercise.id for verdict in right if verdict.passed] == ids, f"\n{told}"

    wrong = shown_by([answer(source, "wrong"), check], names, monkeypatch)
    for name, verdict in zip(ids, wrong, strict=True):
        assert not verdict.passed, name
        assert verdict.mistakes == {MISTAKES[name]}, f"\n{verdict}"


def test_every_exercise_of_a_notebook_has_its_mistake():
    assert [name for source in SOURCES for name in checked(source)] == list(MISTAKES)


@each_notebook
def test_the_check_cell_holds_checks_alone(source):
    (code,) = tagged(source, "check")
    assert checked(source)
    assert len(code.splitlines()) == len(checked(source))


@each_notebook
def test_a_stub_takes_what_the_exercise_tells(source):
    names = {}
    run(*tagged(source, "exercise"), names)
    asked = [find_exercise(name).stub for name in checked(source)]
    found = {name: arguments(stub) for name, stub in names.items() if name.startswith("my_")}
    assert found == {f"my_{function.__name__}": arguments(function) for function in asked}


def arguments(function):
    return list(inspect.signature(function).parameters)


@each_notebook
def test_the_hints_are_of_these_exercises(source, monkeypatch):
    (code,) = tagged(source, "hint")
    assert all(line.startswith("# hint(") for line in code.splitlines())
    uncommented = "\n".join(line.removeprefix("# ") for line in code.splitlines())
    shown = shown_by([uncommented], {"hint": hint}, monkeypatch)
    assert [each.exercise.id for each in shown] == checked(source)


def test_every_exercise_is_in_a_notebook_or_named_there():
    named = [more(source) for source in SOURCES]
    assert all(named)
    assert set().union(*named, MISTAKES) == {exercise.id for exercise in EXERCISES}
