"""The notebooks as text: paired, without outputs, public names alone, short functions."""

import ast
import importlib
import io
import math
import re
import textwrap
import tokenize

import nbformat
import pytest

from mha_numpy.teach.exercises import find_exercise
from tests.notebooks.cells import (
    SOURCES,
    code_cells,
    each_notebook,
    notebook_of,
    sync,
    tagged,
    tags,
)

OF_A_NAMED_TUPLE = ("_asdict", "_fields", "_replace")
OPTIONAL = ("torch", "keras", "numba")
WORDS, CODE_CELLS, IMPORTS = 1500, 20, 5  # at most: of text, in all, in the first of them
WIDTH = 68  # of a line of code; the site shows 71 characters
HOUR = SOURCES[:6]


def test_they_are_in_order():
    assert [int(source.name[:2]) for source in SOURCES] == list(range(len(SOURCES)))


@each_notebook
def test_the_pair_agrees(source):
    pair = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert pair == nbformat.writes(notebook_of(source)) + "\n", (
        "write it anew: python notebooks/sync.py"
    )


@each_notebook
def test_the_pair_is_valid_and_has_no_outputs(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)


def test_every_pair_has_a_source():
    pairs = sorted(sync.HERE.glob("*.ipynb"))
    assert [pair.with_suffix(".py") for pair in pairs] == SOURCES


@each_notebook
def test_links_lead_to_notebooks_beside_it(source):
    """A reader's folder has the notebooks alone, and the site moves the docs."""
    links = re.findall(r"\]\((?!https?://)([^)\s]+\.\w+)\)", source.read_text(encoding="utf-8"))
    assert [link for link in links if not (sync.HERE / link).exists() or "/" in link] == []


@each_notebook
def test_public_names_alone(source):
    for cell in code_cells(source):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("mha_numpy"):
                public = importlib.import_module(node.module).__all__
                hidden = {alias.name for alias in node.names} - set(public)
                assert not hidden, f"{node.module}: {hidden}"
            if isinstance(node, ast.Attribute):
                assert not re.match(r"_[a-z]", node.attr) or node.attr in OF_A_NAMED_TUPLE


@each_notebook
def test_functions_are_short(source):
    for cell in code_cells(source):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                code = ast.get_source_segment(cell.source, node, padded=True)
                assert lines_of(textwrap.dedent(code)) <= 10, node.name


@each_notebook
def test_every_part_is_there(source):
    text = source.read_text(encoding="utf-8")
    assert text.startswith(f"# %% [markdown]\n# # {source.name[:2]} · ")
    for part in (
        "**Predict first.**", "<details><summary>Answer</summary>", "## Summary", "**Reference",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("**By the end you can") == 1
    for tag in ("exercise", "check", "hint"):
        assert len(tagged(source, tag)) == 1, tag


@each_notebook
def test_a_choice_has_its_answer_among_its_lines(source):
    text = source.read_text(encoding="utf-8")
    for quote in re.findall(r"(?:^# >.*\n)+", text, re.M):
        lines = re.findall(r"^# > - (.*)$", quote, re.M)
        answers = re.findall(r"^# > <!-- answer: (.*?) -->$", quote, re.M)
        assert len(answers) == quote.count("answer:") <= 1
        if lines:
            assert set(answers) <= set(lines)
        elif answers:
            assert re.fullmatch(r"-?[\d.]+ within [\d.]+( ?%)?", answers[0])


@each_notebook
def test_it_is_short(source):
    texts = [cell.source for cell in notebook_of(source).cells if cell.cell_type == "markdown"]
    assert sum(len(text.split()) for text in texts) <= WORDS
    code = [cell.source for cell in code_cells(source)]
    assert len(code) <= CODE_CELLS
    assert len(imports(code[0])) <= IMPORTS
    assert import_lines(code[0]) <= IMPORTS or sync.FOLDED in tags(code_cells(source)[0])


def imports(code):
    """Return the statements of a cell that import something."""
    return [n for n in ast.parse(code).body if isinstance(n, (ast.Import, ast.ImportFrom))]


def import_lines(code):
    """Count the lines of these statements, which may have several."""
    return sum(node.end_lineno - node.lineno + 1 for node in imports(code))


@each_notebook
def test_no_line_of_code_is_cut_off_on_the_site(source):
    lines = "\n".join(cell.source for cell in code_cells(source)).split("\n")
    assert [line for line in lines if len(line) > WIDTH] == []


@each_notebook
def test_what_needs_more_is_marked(source):
    for cell in code_cells(source):
        for name in OPTIONAL:
            if re.search(
                rf"^\s*(import|from) {name}\b|backend=\"(numba|loops)\"", cell.source, re.M
            ):
                marks = cell.metadata.get("tags", [])
                assert any(mark.startswith("needs-") for mark in marks), cell.source


# The first hour, by the clock of a reader who knows NumPy and no machine learning. 200 words are a
# minute, because each number is followed. A table is read cell by cell, which takes a minute
# whatever its words; so do a report (of `trace`, `gradcheck`) and a picture of more than a hundred
# numbers, whose cell has the tag "table". Two minutes are the least on a page to play with. Of code
# the names and comments are read: up to six lines at a glance (10 s), more in 30 to 40 s, and of a
# folded cell only the output. A prediction takes 20 to 30 s before its answer is read. Exercises
# have their minutes in the catalogue; what is for after the hour is marked so.
SHORT, TABLE, REPORT, PAGES = 6, "table", r"^(display\(t\)|gradcheck\()", "stepper|training_page"
NOT_READ = {"exercise", "check", "hint", "after-the-hour"}


def stated_minutes(source):
    """Return how many minutes the head of a notebook says that it takes."""
    return int(re.search(r"^\*About (\d+) minutes", notebook_of(source).cells[0].source, re.M)[1])


def exercise_of(source):
    """Return an exercise, and whether it is for after the hour, by the heading and the check."""
    (code,) = tagged(source, "check")
    exercise = find_exercise(re.search(r'check\("(.*?)"', code)[1])
    text = source.read_text(encoding="utf-8")
    later, minutes = re.search(r"^# ## Exercise: .* \((.*?)(\d+) minutes\)$", text, re.M).groups()
    assert int(minutes) == exercise.minutes
    return exercise, later == "after the hour, "


def lines_of(code):
    """Count lines of a hundred characters: a call that is wrapped takes no longer to read."""
    lines, used, row, column = 0, 0, 0, 0
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NEWLINE:
            lines, used = lines + math.ceil(used / 100), 0
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
            used += len(token.string) + (token.start[1] - column) * (token.start[0] == row)
        row, column = token.end
    return lines


def estimated_minutes(source):
    """Add up what readers spend on words, tables, pages, code and predictions, and the exercise."""
    exercise, is_later = exercise_of(source)
    cells = notebook_of(source).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    read = [c for c in code_cells(source)[1:] if not NOT_READ & set(tags(c))]
    tables = [cell for cell in read if TABLE in tags(cell) or re.search(REPORT, cell.source, re.M)]
    long = sum(lines_of(c.source) > SHORT for c in read if sync.FOLDED not in tags(c))
    pages = sum(bool(re.search(rf"^({PAGES})\(", cell.source, re.M)) for cell in read)
    text, written = re.subn(r"^(\|.*\n?)+", "", text, flags=re.M)
    plain = re.sub(
        r"```.*?```|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)|<[^>]*>", " ", text, flags=re.DOTALL
    )
    words = sum(bool(re.search(r"[^\W\d_]", word)) for word in plain.split())
    return (
        words / 200
        + (written + len(tables)) * 1
        + pages * 2
        + long * 35 / 60
        + (len(read) - long) * 10 / 60
        + text.count("**Predict first.**") * 25 / 60
        + (0 if is_later else exercise.minutes)
    )


@pytest.mark.parametrize("source", HOUR, ids=lambda source: source.stem)
def test_a_notebook_of_the_hour_takes_what_it_says(source):
    stated = stated_minutes(source)
    assert estimated_minutes(source) <= stated + 0.5
    assert stated <= 12
    (first,) = re.findall(rf"^# \| \[?{source.stem[:2]} .*", HOUR[0].read_text("utf-8"), re.M)
    assert int(first.split("|")[2]) == stated


def test_the_first_hour_is_an_hour():
    assert 55 <= sum(map(stated_minutes, HOUR)) <= 62
    assert sum(map(estimated_minutes, HOUR)) <= 62


@pytest.mark.parametrize("source", HOUR, ids=lambda source: source.stem)
def test_imports_are_folded(source):
    first = next(cell for cell in notebook_of(source).cells if cell.cell_type == "code")
    assert tags(first) == [sync.FOLDED]
    assert first.metadata.jupyter == {"source_hidden": True}
    settings = len(first.source.split("\n")) - import_lines(first.source)
    assert settings <= 3  # of NumPy's print options, and empty lines around
