"""Run a notebook's cells in this process, with an exercise filled in by somebody else's code."""

import ast
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

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
    """Run one cell and return what it shows: its last expression, and what it displays."""
    shown = []
    namespace["display"] = lambda *objects: shown.extend(objects)
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
    if last is not None:
        shown.append(eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace))
    return [thing for thing in shown if thing is not None]


def up_to_the_exercise(source):
    """Return the names that a reader has defined when they come to the exercise."""
    namespace = {"__name__": "__main__"}
    for cell in code_cells(source):
        if "exercise" in tags(cell):
            break
        run(cell.source, namespace)
    return namespace


def check(source, namespace, answer):
    """Run an answer to the exercise, then the cell that checks it, and return the verdicts."""
    namespace = dict(namespace)
    run(answer, namespace)
    return [thing for code in tagged(source, "check") for thing in run(code, namespace)]
