"""Each notebook's exercise: the stub is not yet right, a solution passes, a mistake is named."""

import inspect
import re
import socket

import numpy as np
import pytest

from mha_numpy.teach.diagnosis import fingerprints, make
from mha_numpy.teach.exercises import EXERCISES, find_exercise, hint, notebook
from mha_numpy.teach.exercises.records import Records
from tests.notebooks.cells import (
    SOURCES,
    each_notebook,
    each_notebook_run,
    names_for,
    notebook_of,
    run,
    shown_by,
    tagged,
)
from tests.teach.exercises.test_right import SOLUTIONS


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
    (stub,), (check,) = tagged(source, "exercise"), tagged(source, "check")
    exercises = [find_exercise(name) for name in checked(source)]
    names = names_for(source, [stub, check])

    def verdicts_on(functions):
        own = {f"my_{e.stub.__name__}": f for e, f in zip(exercises, functions, strict=True)}
        return shown_by([check], names | own, monkeypatch)

    unwritten = shown_by([stub, check], names, monkeypatch)
    assert [verdict.exercise for verdict in unwritten if verdict.is_unwritten] == exercises

    right = [next(iter(SOLUTIONS[exercise.task].values())) for exercise in exercises]
    verdicts = verdicts_on(right)
    told = "\n\n".join(map(str, verdicts))
    assert [verdict.exercise for verdict in verdicts if verdict.passed] == exercises, f"\n{told}"

    mistakes = [next(iter(fingerprints(exercise.task))) for exercise in exercises]
    pairs = zip(exercises, mistakes, strict=True)
    verdicts = verdicts_on([make(exercise.task, [mistake]) for exercise, mistake in pairs])
    assert [verdict.mistakes for verdict in verdicts] == [{mistake} for mistake in mistakes]
    assert not any(verdict.passed for verdict in verdicts)


@each_notebook
def test_the_check_cell_holds_checks_alone(source):
    (code,) = tagged(source, "check")
    code = code.removeprefix("from mha_numpy.teach.exercises import check, hint\n\n")
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


def test_every_exercise_is_in_one_notebook_or_named_there_or_says_where_to_read():
    asked = [name for source in SOURCES for name in checked(source)]
    assert len(asked) == len(set(asked))
    named = set(asked).union(*(more(source) for source in SOURCES))
    assert named <= {exercise.id for exercise in EXERCISES}
    for exercise in EXERCISES:
        assert exercise.id in named or re.search(r"otebook \d\d|docs/", exercise.hints.where)


def test_hints_name_headings_that_stand_in_their_notebook():
    texts = {source.name[:2]: source.read_text(encoding="utf-8") for source in SOURCES}
    quoted = re.compile(r"""[Nn]otebook (\d\d), ((?:["'][^"']+["'](?: and )?)+)""")
    found = [
        (number, heading)
        for exercise in EXERCISES
        for number, headings in quoted.findall(exercise.hints.where)
        for heading in re.findall(r"""["']([^"']+)["']""", headings)
    ]
    assert len(found) > 20
    assert [each for each in found if f"# ## {each[1]}\n" not in texts[each[0]]] == []
