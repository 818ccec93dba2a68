"""Classes of students who hand in what students hand in."""

import inspect
import json
import re

from mha_numpy.teach.classroom.make import make_assignment
from mha_numpy.teach.classroom.results import Task
from mha_numpy.teach.classroom.submissions import File
from mha_numpy.teach.diagnosis.mutants import edited_source, edits_of
from mha_numpy.teach.diagnosis.solutions import read_solutions

EXERCISES = {"split-heads": 2, "softmax": 4, "softmax-backward": 4}
BEFORE = "import numpy as np\nfrom typing import *\nArray = MultiHeadParams = Saved = object\n"
HANG = "def split_heads(x, num_heads):\n    while True:\n        pass\n"
CRASH = "import os\ndef split_heads(x, num_heads):\n    os._exit(3)\n"
LEAK = """
def split_heads(x, num_heads):
    print(repr(x))
    raise ValueError(repr(x))

def softmax(scores, mask):
    name = repr(scores)
    exec(compile("1 / 0", name, "exec"))

def softmax_backward(d_weights, weights):
    raise SystemExit(repr(weights))
"""
WRONG_SYNTAX = "def split_heads(x, num_heads:\n    return x\n"


def written(*mistakes):
    """Return the text of all right functions, with some mistakes in them."""
    solutions, edits = read_solutions(), {}
    for mistake in mistakes:
        for name, added in edits_of(mistake).items():
            edits[name] = edits.get(name, {}) | added
    returned = [one for one in solutions.namespace.values() if ".teach.tasks." in str(one)]
    classes = [inspect.getsource(one) for one in returned if inspect.isclass(one)]
    functions = [edited_source(name, edits.get(name, {})) for name in solutions.cuts]
    return BEFORE + "\n".join(classes + functions)


def notebook(text):
    """Return a notebook with a magic, a picture and the text in a cell with the tag."""
    cells = [("%matplotlib inline\nimport matplotlib.pyplot as plt", []), (text, ["exercise"])]
    made = [
        {"cell_type": "code", "metadata": {"tags": tags}, "source": source.splitlines(True)}
        for source, tags in cells
    ]
    return json.dumps({"cells": made, "nbformat": 4})


KINDS = {
    "right.py": written(),
    "mistake.py": written("split without transpose", "softmax over queries"),
    "crash.py": written() + CRASH,
    "syntax.py": WRONG_SYNTAX,
    "hang.py": written() + HANG,
    "notebook.ipynb": notebook(written()),
    "missing.py": "x = 1\n",
    "leak.py": LEAK,
    "late_LATE_12_345_hw.py": written(),
}


def hand_in(folder, kinds=KINDS, count=None):
    """Write a class, of a student of each kind or of more."""
    folder.mkdir(parents=True)
    names = list(kinds)
    for number in range(count or len(names)):
        name = names[number % len(names)]
        (folder / (f"s{number:02}_{name}" if count else name)).write_text(kinds[name])
    return folder


def assign(folder, exercises=EXERCISES):
    """Make an assignment with these points; its secret is the same each time."""
    secret = folder.parent / "secret"
    secret.write_text("0123456789abcdef" * 4)
    make_assignment(",".join(exercises), folder, secret_file=secret, form="files", force=True)
    table = folder / "assignment.toml"
    text = table.read_text()
    for name, points in exercises.items():
        text = re.sub(rf"^{name} = \d+$", f"{name} = {points}", text, flags=re.MULTILINE)
    table.write_text(text)
    return folder


def task_of(text, given, student="ada", *, limits, is_isolated=False):
    """Return the task to grade a student who hands in a text as hw.py."""
    files = (File("hw.py", text.encode()),)
    return Task(student, student, False, (), files, given, limits, is_isolated, "key")
