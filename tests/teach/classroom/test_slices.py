"""slice_of: a function comes with what it needs, and without what does not concern it."""

import json

import pytest

from mha_numpy.teach.classroom.slices import Cell, cells_of, slice_of


def notebook(*cells):
    """Return a notebook's bytes; a cell is its text, or its text and its tag."""
    made = []
    for cell in cells:
        text, *tags = (cell,) if isinstance(cell, str) else cell
        lines = text.splitlines(keepends=True)
        made.append({"cell_type": "code", "metadata": {"tags": tags}, "source": lines})
    return json.dumps({"cells": made, "nbformat": 4}).encode()


def run(text, name="f"):
    namespace = {}
    exec(text, namespace)
    return namespace[name]


def test_what_a_function_needs_comes_with_it_through_others():
    cells = cells_of(
        "a.ipynb",
        notebook(
            "import math\nimport torch",
            "BASE = math.e\nunused = torch.zeros(3)",
            "def power(x):\n    return BASE**x",
            ("def f(x):\n    return power(x)\n\nprint(f(torch))", "exercise"),
        ),
    )
    text = slice_of(cells, "f")
    assert run(text)(0) == 1
    assert "torch" not in text


def test_a_local_name_brings_nothing_with_it():
    text = "x = open('missing')\ny = x.read()\ndef f(x):\n    y = x + 1\n    return y"
    assert run(slice_of([Cell(text)], "f"))(1) == 2


def test_what_changes_a_used_name_is_kept():
    text = "TABLE = {}\nTABLE['a'] = 1\nTABLE.update(b=2)\ndef f():\n    return TABLE"
    assert run(slice_of([Cell(text)], "f"))() == {"a": 1, "b": 2}


def test_the_tagged_cell_goes_before_a_later_one_without_a_tag():
    data = notebook(("def f():\n    return 1", "exercise"), "def f():\n    return 2")
    assert run(slice_of(cells_of("a.ipynb", data), "f"))() == 1


def test_magics_are_dropped_and_a_remainder_is_not():
    data = notebook(
        "%matplotlib inline\nN = (7\n%matplotlib)",
        "%%bash\nrm -rf /",
        "!pip install torch\nM = 2\nif M:\n    %time M = 3",
        "K = (7\n     % 4)",
        ("%%time\ndef f():\n    return M, K", "exercise"),
    )
    assert run(slice_of(cells_of("a.ipynb", data), "f"))() == (2, 3)


def test_a_broken_cell_costs_only_what_stands_in_it():
    data = notebook("x = = 1", ("def f():\n    return 1", "exercise"), "def g(:\n    pass")
    cells = cells_of("a.ipynb", data)
    assert run(slice_of(cells, "f"))() == 1
    assert slice_of(cells, "g") == "def g(:\n    pass"
    assert slice_of(cells, "h") is None


def test_an_import_that_fails_costs_only_what_uses_it():
    text = (
        "import torch, math\nimport scipy; from math import pi\nfrom jax import *\n"
        "from scipy.special import softmax, erf\n"
        "def f():\n    return math.floor(pi)\ndef g(x):\n    return softmax(x)\n"
        "def h(x):\n    return vmap(x)"
    )
    cells = [Cell(text)]
    assert run(slice_of(cells, "f"))() == 3
    assert slice_of(cells, "g").split("\n")[:4] == ["", "", "", "from scipy.special import softmax"]
    assert slice_of(cells, "h").split("\n")[2] == "from jax import *"


def test_lines_keep_their_numbers():
    text = "import torch\n\n@staticmethod\ndef f():\n    return 1"
    assert slice_of([Cell(text)], "f").split("\n")[3] == "def f():"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"cells": 3}', b'{"cells": [{"cell_type": "code"}]}', b"[" * 100_000]
)
def test_a_broken_notebook(data):
    with pytest.raises(ValueError, match="not a readable notebook"):
        cells_of("a.ipynb", data)


def test_too_much_code():
    with pytest.raises(ValueError, match="more than 500,000 characters"):
        cells_of("a.py", b"#" * 500_001)


def test_what_a_parser_cannot_hold():
    text = "def f():\n    return " + "(" * 5000
    assert slice_of(cells_of("a.py", text.encode()), "f") == text
    assert slice_of(cells_of("a.py", b"def f():\n    return '\0'"), "f") is not None
