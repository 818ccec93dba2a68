"""The confusion table: what it counts, its page, its command."""

from pathlib import Path

from mha_numpy.cli import main
from mha_numpy.mistakes import PIECES, Diagnosis, confusion, find_confusion, fingerprints
from mha_numpy.mistakes.report import bank_table, to_markdown

PAGE = Path(__file__).parents[2] / "docs" / "confusion.md"


def test_what_is_not_named_is_counted(monkeypatch):
    nothing = Diagnosis(True, ())
    monkeypatch.setattr(confusion, "diagnose", lambda piece, answers: nothing)
    (found,) = find_confusion(["split_heads"], pairs=3)
    assert found.counts[1:4] == (0, 0, 0)
    assert found.counts.pairs_rejected == found.counts.pairs_named == 0
    assert found.mixed_up[0] == (next(iter(fingerprints("split_heads"))), [])


def test_the_page_has_all_functions():
    page = PAGE.read_text(encoding="utf-8")
    (found,) = find_confusion(["split_heads"], pairs=5)
    assert page.startswith(to_markdown([found])[:100])
    for piece in PIECES:
        assert f"| {piece} | {len(fingerprints(piece))} |" in page


def test_the_command(capsys, tmp_path):
    assert main(["mistakes", "softmax_backward"]) == 0
    printed = capsys.readouterr().out
    assert f"{len(fingerprints('softmax_backward'))} known mistakes in softmax_backward" in printed
    assert "row sum left out" in printed
    page = tmp_path / "page.md"
    words = ["mistakes", "split_heads", "--confusion", "--pairs", "5", "--write", str(page)]
    assert main(words) == 0
    assert "100.0% named first" in capsys.readouterr().out
    assert "| split_heads | " in page.read_text(encoding="utf-8")
    assert main(["mistakes", "nothing"]) == 2
    assert main(["mistakes", "split_heads", "--confusion", "--write", str(tmp_path)]) == 2


def test_the_bank_of_all_functions():
    table = bank_table(list(PIECES))
    assert len(table.rows) > 200
    assert all(all(cells) for cells in table.rows)
