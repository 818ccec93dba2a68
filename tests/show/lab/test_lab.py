"""Copies of the notebooks: all, with nothing of the user's lost; JupyterLab is started on one."""

import os
import sys

import pytest

from mha_numpy import cli
from mha_numpy.errors import ConfigError
from mha_numpy.show.lab import copies, copy_notebooks, open_lab
from mha_numpy.show.lab.copies import our_notebooks


@pytest.fixture
def started(monkeypatch):
    """Stand in for JupyterLab, installed or not: note what would have been started."""
    commands = []
    monkeypatch.setattr(copies, "find_spec", lambda name: name)
    monkeypatch.setattr(copies.subprocess, "call", lambda command: commands.append(command) or 7)
    return commands


def test_all_are_copied(tmp_path):
    written, kept = copy_notebooks(tmp_path / "a" / "b")
    assert [path.name for path in written] == [path.name for path in our_notebooks()]
    assert kept == []
    assert all(
        path.read_bytes() == ours.read_bytes()
        for path, ours in zip(written, our_notebooks(), strict=True)
    )


def test_what_the_user_wrote_is_kept(tmp_path):
    first = copy_notebooks(tmp_path).written[0]
    first.write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    written, kept = copy_notebooks(tmp_path)
    assert written == []
    assert kept[0] == first
    assert first.read_text() == "mine"

    written, kept = copy_notebooks(tmp_path, force=True)
    assert kept == []
    assert first.read_bytes() == our_notebooks()[0].read_bytes()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_those_of_the_package_come_first(tmp_path, monkeypatch):
    (tmp_path / "07_inside.ipynb").write_text("{}")
    monkeypatch.setattr(copies, "INSTALLED", tmp_path)
    assert [path.name for path in our_notebooks()] == ["07_inside.ipynb"]


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="folder: expected a folder; .*taken is a file"):
        copy_notebooks(tmp_path / "taken")


def test_lab_is_started_on_the_notebook(tmp_path, started, capsys):
    arguments = ["lab", str(tmp_path), "--open", "1", "--no-browser", "--port", "9000"]
    assert cli.main(arguments) == 7
    ((python, _, module, notebook, *options),) = started
    assert (python, module) == (sys.executable, "jupyterlab")
    assert os.path.basename(notebook).startswith("01_")
    assert options == ["--no-browser", "--port=9000"]
    count = len(our_notebooks())
    assert f"{count} notebooks copied, 0 left as they were" in capsys.readouterr().out


def test_copy_only_starts_nothing(tmp_path, started):
    assert cli.main(["lab", str(tmp_path), "--copy-only"]) == 0
    assert started == []
    assert len(list(tmp_path.iterdir())) == len(our_notebooks())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--open", "99"], "open: expected one of 00, 01, "),
        (["--open", "x"], "got x"),
        (["--port", "0"], "port: expected 1 to 65535; got 0"),
        (["--port", "65536"], "port: expected 1 to 65535; got 65536"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, started, capsys, arguments, message):
    assert cli.main(["lab", str(tmp_path), *arguments]) == 2
    assert started == []
    assert not list(tmp_path.iterdir()), "nothing is copied before all is checked"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mha-numpy lab: ")
    assert message in line


def test_without_jupyterlab(tmp_path, monkeypatch, capsys):
    notebook = copy_notebooks(tmp_path).written[0]
    monkeypatch.setattr(copies, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install jupyterlab"):
        open_lab(notebook)
    assert cli.main(["lab", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()
    assert "pip install jupyterlab" in capsys.readouterr().err
    assert cli.main(["lab", str(tmp_path / "other"), "--copy-only"]) == 0
