"""pieces_of: a mistake that Python cannot read costs the definition in which it is."""

import random

import pytest

from mha_numpy.teach.classroom.pieces import parsed, pieces_of
from tests.teach.classroom.classes import written

BEFORE = "import numpy as np\nN = 2\n\n"
OTHERS = "\n\ndef good(x):\n    return np.exp(x)\n\n\nLAST = [\n    1,\n]\n"


@pytest.mark.parametrize(
    "broken",
    [
        "def f(x:\n    return x",
        "def f(x):\n    return (x",
        "def f(x):\n    return [x for",
        "def f(x)\n    return x",
        "def f(x)\nx = 1",
        "def f(x):\n    a = 1\n  b = 2\n    return a",
        "def f(x):\n    a = 1\nb = 2\n    return a + b",
        "def f(x):\n\ta = 1\n        return a",
        'def f(x):\n    """Return x.\n    return x',
        "def f(x):\n    return 'x",
        "@decorated\n@again\ndef f(x):\n    return x)",
        "x = {1: 2, 3: [4",
        "class A:\n    def f(self:\n        pass",
        "<<<<<<< HEAD",
        "print 'x'",
        "Here is my answer",
        "def f(x):\n    return 1\u00a0+ x",
        "x = 1\n    y = 2",
        "def f(x):\n    return x\x00",
    ],
)
def test_everything_else_is_kept(broken):
    text = BEFORE + broken + OTHERS
    good, bad = pieces_of(text)
    names = {}
    exec(good, names)
    assert {"np", "N", "good", "LAST"} <= names.keys()
    assert "f" not in names
    assert all(parsed(piece) is None for piece in bad)
    lines = text.split("\n")
    for piece in (good, *bad):  # all lines are where they were
        assert all(one in ("", line) for one, line in zip(piece.split("\n"), lines, strict=True))
    assert {line.strip() for line in broken.split("\n")} <= {
        line.strip() for piece in bad for line in piece.split("\n")
    } | {"x = 1", "y = 2", ""}


def test_a_text_in_quotes_in_column_0_is_one_piece():
    text = '"""My homework.\n\nName: Emil\nimport this\n"""\nS = """\nx\n"""\ny = (\n'
    good, bad = pieces_of(text)
    names = {}
    exec(good, names)
    assert (names["__doc__"], names["S"]) == ("My homework.\n\nName: Emil\nimport this\n", "\nx\n")
    assert [piece.strip() for piece in bad] == ["y = ("]


def test_a_bracket_that_is_lost_costs_one_function():
    text = written()
    places = [i for i, c in enumerate(text) if c in "()[]" and i > text.index("def ")]
    for place in random.Random(0).sample(places, 60):
        broken = text[:place] + text[place + 1 :]
        if parsed(broken) is not None:
            continue
        good, bad = pieces_of(broken)
        assert len(bad) == 1
        lost = text.count("\ndef ") - good.count("\ndef ")
        assert lost == bad[0].count("\ndef ") <= 1


def test_any_text_comes_to_an_end():
    rng = random.Random(1)
    parts = [
        "def f(x):",
        "    return x",
        "(",
        ")",
        '"""',
        "\n",
        "x = 1",
        "@a",
        "    ",
        "\0",
        "else:",
    ]
    for _ in range(300):
        text = "".join(rng.choice(parts) + "\n" * rng.randint(0, 1) for _ in range(30))
        good, _ = pieces_of(text)
        assert parsed(good) is not None
