"""The confusion table: what it counts, its page, its command."""

from pathlib import Path

import numpy as np
import pytest

from mha_numpy.cli import main
from mha_numpy.teach.diagnosis import (
    TASKS,
    Diagnosis,
    confusion,
    find_confusion,
    fingerprints,
)
from mha_numpy.teach.diagnosis.confusion import (
    bank_table,
    confusion_sections,
    held_out_sections,
    hold_out,
    to_markdown,
)

PAGE = Path(__file__).parents[3] / "docs" / "confusion.md"


def test_what_is_not_named_is_counted(monkeypatch):
    nothing = Diagnosis(True, ())
    monkeypatch.setattr(confusion, "diagnose", lambda task, answers: nothing)
    (found,) = find_confusion(["split_heads"], pairs=3)
    assert found.counts[1:4] == (0, 0, 0)
    assert found.counts.pairs_rejected == found.counts.pairs_named == 0
    assert found.mixed_up[0] == (next(iter(fingerprints("split_heads"))), [])


def test_the_page_has_all_functions():
    page = PAGE.read_text(encoding="utf-8")
    (found,) = find_confusion(["split_heads"], pairs=5)
    assert page.startswith(to_markdown(confusion_sections([found]))[:100])
    for task in TASKS:
        assert f"| {task} | {len(fingerprints(task))} |" in page


def test_the_command(capsys, tmp_path):
    assert main(["mistakes", "softmax_backward"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(fingerprints('softmax_backward'))} known mistakes in softmax_backward" in printed
    assert "row sum left out" in printed
    page = tmp_path / "page.md"
    words = ["mistakes", "split_heads", "--confusion", "--pairs", "5", "--held-out", "1"]
    words += ["--write", str(page)]
    assert main(words) == 0
    assert "100.0% are named first" in capsys.readouterr().out
    assert "| split_heads | " in page.read_text(encoding="utf-8")
    assert main(["mistakes", "nothing"]) == 2
    assert main(["mistakes", "split_heads", "--confusion", "--write", str(tmp_path)]) == 2


@pytest.mark.slow
def test_held_out_edits_are_counted(monkeypatch):
    rows = hold_out(["scores", "linear_backward"], each=1)
    for one in rows:
        assert one.made == one.named + one.edited + one.clues + one.nothing
        assert one.wrongly <= one.named + one.edited
    table, _, text = held_out_sections(rows)
    assert table.rows[-1][:2] == ["all", str(sum(one.made for one in rows))]
    assert "are explained" in text
    # the edits of other kinds, and these alone, are searched
    monkeypatch.setattr(confusion, "have", lambda numbers, asked: np.zeros(len(numbers), bool))
    assert not any(one.edited for one in hold_out(["scores"], each=1))


def test_the_bank_of_all_functions():
    table = bank_table(list(TASKS))
    assert len(table.rows) > 200
    assert all(all(cells) for cells in table.rows)
