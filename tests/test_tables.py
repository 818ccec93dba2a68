import pytest

from mha_numpy.look import PALETTE
from mha_numpy.tables import Table, show

TABLE = Table(
    "T [1]", ["#", "name", "equation"], [["1", "a", "b @ c"], ["2", "long", "<d>"]], frozenset({1})
)


def test_text():
    assert TABLE.to_text().split("\n") == [
        "T [1]", "#  name  equation", "-  ----  --------", "1  a     b @ c", "2  long  <d>",
    ]  # fmt: skip
    assert Table("", ["x"], []).to_text() == "x\n-"


@pytest.mark.parametrize("width", [17, 16, 10, 9, 1])
def test_a_narrow_terminal_gets_more_lines_and_loses_nothing(width):
    text = TABLE.to_text(width)
    per_row = {17: 1, 16: 2, 10: 2, 9: 2, 1: 3}[width]
    assert len(text.split("\n")) == 1 + 4 * per_row
    assert text.split() == TABLE.to_text().split()
    if per_row == 2:
        assert "    equation" in text


def test_html_is_escaped_and_marks_bad_rows():
    html = TABLE.to_html()
    assert "&lt;d&gt;" in html
    assert html.count("border-left") == 1
    assert html.count("<tr") == html.count("</tr>") == 3


def test_html_breaks_long_cells_alone_and_shows_itself():
    table = Table("", ["a"], [["x" * 61], ["x" * 60]])
    assert [("nowrap" in row, "min-width" in row) for row in table.to_html().split("<tr")[2:]] == [
        (False, True), (True, False),
    ]  # fmt: skip
    assert table._repr_html_() == table.to_html()


def test_show_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    show(TABLE)
    show("plain [b]text[/b]")
    output = capsys.readouterr().out
    assert "\x1b[1;31m2  long  <d>" in output
    assert "T [1]" in output
    assert "plain [b]text[/b]" in output


def test_a_long_last_column_is_broken_into_lines():
    table = Table("verdict", ["", "stage", "finding"], [["ok", "runs", "word " * 30]])
    lines = table.to_text(width=70).splitlines()
    assert all(len(line) <= 70 for line in lines)
    assert lines[3].startswith("ok  runs   word word")
    assert lines[4].startswith(" " * 11 + "word")
    assert " ".join(lines[3:]).split() == ["ok", "runs", *["word"] * 30]
    assert len(table.to_text().splitlines()) == 4


def test_heads_that_do_not_fit_stand_in_tables_of_their_own():
    rows = [[str(i), *(f"key {i + h}" for h in range(5))] for i in range(2)]
    table = Table("whom", ["#", *(f"head {h}" for h in range(5))], rows, first_head=1)
    assert table.to_text(width=18).splitlines()[:9] == [
        "whom", "#  head 0  head 1", "-  ------  ------", "0  key 0   key 1", "1  key 1   key 2",
        "", "#  head 2  head 3", "-  ------  ------", "0  key 2   key 3",
    ]  # fmt: skip
    assert table.to_text(width=18).endswith("0  key 4\n1  key 5")
    assert table.to_text(width=1).count("\n\n") == 4  # a head each, though it is too wide
    assert "\n\n" not in table.to_text(width=41)


def test_html_has_no_colours_of_its_own_but_those_of_heads():
    table = Table("t", ["a", "head 0"], [["1", "2"]], frozenset({0}), first_head=1)
    html = table.to_html()
    assert "color:var(--head-0-ink,inherit)" in html
    assert "#" not in html
    assert not any(color in html for color in PALETTE)


def test_a_table_without_names_of_columns_has_no_head():
    table = Table("two", (), [["a", "b"]])
    assert table.to_text() == "two\na  b"
    assert table.to_html().count("<tr") == 1


def test_a_last_column_without_room_goes_below():
    table = Table("", (), [["a name of 22 characters", "word " * 9], ["", "more"]])
    lines = table.to_text(width=30).splitlines()
    assert lines == [
        "a name of 22 characters", "    word word word word word", "    word word word word",
        "    more",
    ]  # fmt: skip


def test_show_uses_no_more_of_a_terminal_than_it_may(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    show(Table("", (), [["word " * 60]]), most=50)
    assert 40 < max(map(len, capsys.readouterr().out.splitlines())) <= 50
