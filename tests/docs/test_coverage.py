"""docs/coverage.md: what it names is there."""

import re
from pydoc import locate

import pytest

from tests.notebooks.cells import NOTEBOOKS, ROOT

PAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").rsplit(" | ", 1) for line in PAGE.splitlines() if line.startswith("| ")]
PLACES = [place for text, here in ROWS if text != "in the text" for place in here.split("; ")]


def headings(number):
    (source,) = NOTEBOOKS.glob(f"{number}_*.py")
    return re.findall(r"^# #+ (.*)$", source.read_text(encoding="utf-8"), flags=re.MULTILINE)


def is_there(place):
    section = re.fullmatch(r"\[(\d\d)\]\(\.\./notebooks/(\d\d)_[\w-]+\.ipynb\) (.*)", place)
    if section:
        return section[1] == section[2] and section[3] in headings(section[1])
    name = re.fullmatch(r"`(mha_numpy\.[\w.]+)`", place)
    return name is not None and locate(name[1]) is not None


@pytest.mark.parametrize("place", sorted(set(PLACES)))
def test_every_place_is_there(place):
    assert is_there(place)


def test_a_place_that_is_not_there_is_found():
    known = "[03](../notebooks/03_many-heads.ipynb) Summary"
    assert is_there(known)
    assert not is_there(known.replace("Summary", "Sumary"))
    assert not is_there(known.replace("[03]", "[06]"))
    assert not is_there("`mha_numpy.no_such`")
    assert not is_there("somewhere")


def test_every_notebook_covers_something():
    assert {place[1:3] for place in PLACES if place[0] == "["} >= {
        f"{n:02}" for n in (1, 2, 3, 6, 7, 8, 9, 14, 15, 16, 18, 23, 25, 27)
    }
    assert len(ROWS) > 80
