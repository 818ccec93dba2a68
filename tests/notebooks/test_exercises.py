"""Each notebook's exercise: the stub is not yet right, a solution passes, a mistake does not."""

import socket

import numpy as np
import pytest

from mha_numpy.check import Comparison, GradcheckReport
from tests.notebooks.cells import SOLUTIONS, SOURCES, check, tagged, up_to_the_exercise

each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a notebook reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def own_print_options():
    with np.printoptions():  # what a notebook sets is not for the tests after it
        yield


def answer(source, kind):
    return (SOLUTIONS / f"{source.name[:2]}_{kind}.py").read_text(encoding="utf-8")


def verdicts(shown):
    return [thing for thing in shown if isinstance(thing, (Comparison, GradcheckReport))]


@pytest.mark.filterwarnings(  # Keras, when it turns PyTorch's tensors into arrays
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)
@each_notebook
def test_the_check_tells_right_from_wrong(source):
    namespace = up_to_the_exercise(source)
    (stub,) = tagged(source, "exercise")

    unwritten = verdicts(check(source, namespace, stub))
    assert unwritten
    assert not any(unwritten)
    assert "not written yet" in str(unwritten[0])

    right = verdicts(check(source, namespace, answer(source, "right")))
    assert all(right), "\n".join(map(str, right))
    assert any(isinstance(verdict, GradcheckReport) for verdict in right)

    wrong = verdicts(check(source, namespace, answer(source, "wrong")))
    assert not all(wrong)
