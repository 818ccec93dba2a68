"""check and hint, as they are called in a notebook."""

import sys
import types

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.exercises import check, hint, notebook
from mha_numpy.teach.exercises.records import Records


@pytest.fixture(autouse=True)
def own_records(monkeypatch):
    monkeypatch.setattr(notebook, "RECORDS", Records())


def wrong(d_weights, weights):
    return weights * d_weights


def test_check_prints_the_verdict(capsys):
    assert check("softmax-backward", wrong) is None
    printed = capsys.readouterr().out
    assert "softmax-backward: not right" in printed
    assert "likely cause: " in printed


def test_hints_come_one_after_the_other_and_know_the_last_mistake(capsys):
    check("softmax-backward", wrong)
    for number in (1, 2, 3, 4, 4):
        capsys.readouterr()
        hint("softmax-backward", force=True)
        printed = capsys.readouterr().out
        assert f"hint {number} of 4" in printed
        assert ("your last answer" in printed) == (number == 3)


@pytest.mark.parametrize("kernel", ["ipykernel", "pyodide_kernel"])
def test_in_a_notebook_it_is_displayed(kernel, monkeypatch):
    shown = []
    fake = types.ModuleType("IPython.display")
    fake.display = shown.append
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setitem(sys.modules, kernel, types.ModuleType(kernel))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    check("softmax-backward", wrong)
    hint("softmax-backward")
    verdict = shown[0]._repr_html_()
    assert "<table" in verdict
    assert "<img" in verdict
    assert "hint 1 of 4" in shown[1]._repr_html_()


def test_wrong_use():
    with pytest.raises(ConfigError, match="function: expected a function; got 3"):
        check("softmax", 3)
    with pytest.raises(ConfigError, match="id: expected the id"):
        check("soft max", wrong)
    with pytest.raises(ConfigError, match="id: expected the id"):
        hint("soft max")


def test_where_no_process_can_be_started_it_says_what_is_missing(monkeypatch, capsys):
    check("softmax-backward", wrong)
    verdict = capsys.readouterr().out

    def no_fork():
        raise OSError("emscripten does not support processes.")

    monkeypatch.setattr("os.fork", no_fork, raising=False)
    monkeypatch.setattr(sys, "platform", "emscripten")
    check("softmax-backward", wrong)
    assert capsys.readouterr().out == f"{notebook.NO_LIMITS}\n{verdict}"
