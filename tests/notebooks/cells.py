"""Run a notebook's cells in this process, with an exercise filled in by somebody else's code."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from mha_numpy.exercises import notebook

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
SOLUTIONS = Path(__file__).parent / "solutions"


def load_sync():
    """Return notebooks/sync.py as a module."""
    spec = spec_from_file_location("sync", NOTEBOOKS / "sync.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sync = load_sync()
SOURCES = sync.sources()


def tags(cell):
    return cell.metadata.get("tags", [])


def code_cells(source):
    return [cell for cell in sync.notebook_of(source).cells if cell.cell_type == "code"]


def tagged(source, tag):
    """Return the text of every cell that has a tag."""
    return [cell.source for cell in sync.notebook_of(source).cells if tag in tags(cell)]


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
