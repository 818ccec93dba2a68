"""grade: whatever is handed in, the class gets its grades."""

import csv
import json
import unicodedata

import pytest

from mha_numpy.teach.classroom import grade
from tests.sweeps import sweep
from tests.teach.classroom.classes import assign
from tests.teach.classroom.odd import hand_in_odd_work


@pytest.mark.parametrize("count", sweep([200, 2000], 0, every=2))
def test_odd_submissions_cost_nobody_else(tmp_path, count):
    ids, right = hand_in_odd_work(tmp_path / "in", count)
    given, out = assign(tmp_path / "hw", {"split-heads": 2}), tmp_path / "out"
    grades = grade(tmp_path / "in", assignment=given, out=out, is_isolated=False)
    with open(out / "grades.csv", newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert set(ids) <= rows.keys()
    assert all(float(rows[student]["total"]) == 2 for student in right)
    for row in rows.values():
        told = "".join(filter(None, row.values()))
        assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in told)
    pages = list((out / "feedback").iterdir())
    assert len(pages) == len(rows) == len(grades.results)
    for path in (out / "by_student").iterdir():
        json.loads(path.read_text(encoding="utf-8"))
