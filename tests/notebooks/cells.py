"""Run a notebook's cells in this process, with an exercise filled in by somebody else's code."""

import ast
import functools
import itertools
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mha_numpy.teach.exercises import notebook

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
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


def names_for(source, codes):
    """Run the cells before the exercise that define what some code uses, and return the names."""
    used, needed = set().union(*(_names(code, ast.Load) for code in codes)), []
    cells = list(itertools.takewhile(lambda cell: "exercise" not in tags(cell), code_cells(source)))
    for cell in reversed(cells):
        if used & _names(cell.source, ast.Store):
            needed.append(cell.source)
            used |= _names(cell.source, ast.Load)
    namespace = {"__name__": "__main__"}
    for code in reversed(needed):
        run(code, namespace)
    return namespace


def _names(code, context):
    """Return the names that some code uses (ast.Load), or those that it defines (ast.Store)."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.alias)) and context is ast.Store:
            names.add(getattr(node, "asname", None) or node.name)
    return names


def shown_by(cells, namespace, monkeypatch):
    """Run cells with a copy of the names, and return the verdicts and hints that they show."""
    shown, namespace = [], dict(namespace)
    monkeypatch.setattr(notebook, "_show", shown.append)
    for code in cells:
        run(code, namespace)
    return shown
