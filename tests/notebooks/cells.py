"""Run a notebook's cells in this process, with an exercise filled in by somebody else's code."""

import functools
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mha_numpy.exercises import notebook

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = Path(__file__).parent / "solutions"
QUICK = ("11",)  # the others are slow


def load_sync():
    """Return notebooks/sync.py as a module."""
    spec = spec_from_file_location("sync", NOTEBOOKS / "sync.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sync = load_sync()
SOURCES = sync.sources()
each_notebook = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
each_notebook_run = pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, marks=() if source.name[:2] in QUICK else pytest.mark.slow)
        for source in SOURCES
    ],
    ids=lambda source: source.stem,
)


@functools.cache
def notebook_of(source):
    """Return a notebook, to be read alone: every test has the same one."""
    return sync.notebook_of(source)


def tags(cell):
    return cell.metadata.get("tags", [])


def code_cells(source):
    return [cell for cell in notebook_of(source).cells if cell.cell_type == "code"]


def tagged(source, tag):
    """Return the text of every cell that has a tag."""
    return [cell.source for cell in notebook_of(source).cells if tag in tags(cell)]


def run(code, namespace):
    """Run one cell; what it displays is dropped."""
    namespace["display"] = lambda *_: None
    exec(compile(code, "<cell>", "exec"), namespace)


def up_to_the_exercise(source):
    """Return the names that a reader has defined when they come to the exercise."""
    namespace = {"__name__": "__main__"}
    for cell in code_cells(source):
        if "exercise" in tags(cell):
            break
        run(cell.source, namespace)
    return namespace


def shown_by(cells, namespace, monkeypatch):
    """Run cells with a copy of the names, and return the verdicts and hints that they show."""
    shown, namespace = [], dict(namespace)
    monkeypatch.setattr(notebook, "_show", shown.append)
    for code in cells:
        run(code, namespace)
    return shown
