"""The pages are true: their examples run, their quotes stand in the source, their links lead on."""

import doctest
import re
import shutil
from pydoc import locate

import pytest

from mha_numpy.models.experiments import EXPERIMENTS, load_result
from tests.docs.scripts import load as script
from tests.notebooks.cells import NOTEBOOKS, ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
SOURCE = {
    path: [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    for folder in ("mha_numpy", "docs/examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def by_name(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


def marks(page):
    """Return the marks of a page's examples."""
    if page.stem in ("audit-tests", "own-exercise"):  # these run tests on every mistake
        return pytest.mark.slow
    runs_kernel = re.search(r'>>> .*backend="(numba|loops)"', page.read_text(encoding="utf-8"))
    return pytest.mark.kernel if runs_kernel else ()


def blocks(page, *, of_torch=False):
    """Return the Python blocks of a page that are no examples: code, or comparisons with torch."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [one for one in found if ">>>" not in one and ("import torch" in one) == of_torch]


WITHOUT_EXAMPLES = (
    "glossary", "coverage", "confusion", "verdicts", "CONTRIBUTING", "CHANGELOG", "correctness",
    "notebooks", "index", "gallery", "gpt", "jupyterlite", "release",
)  # fmt: skip


def stands_in_source(block):
    lines = [line.strip() for line in block.strip().splitlines()]
    return any(
        lines == source[i : i + len(lines)]
        for source in SOURCE.values()
        for i in range(len(source) - len(lines) + 1)
    )


@by_name([pytest.param(page, marks=marks(page)) for page in [*PAGES, ROOT / "README.md"]])
def test_examples_print_what_they_say(page):
    failed, tried = doctest.testfile(
        str(page), module_relative=False, encoding="utf-8", optionflags=doctest.ELLIPSIS
    )
    assert failed == 0
    if page.stem not in WITHOUT_EXAMPLES:
        assert tried > 0


@by_name(PAGES)
def test_quoted_code_stands_in_the_source(page):
    missing = [block for block in blocks(page) if not stands_in_source(block)]
    assert not missing, f"not in the source:\n{''.join(missing)}"


def test_the_derivations_quote_code():
    quotes = {page.stem: len(blocks(page)) for page in PAGES}
    for page in ("softmax", "attention", "multi-head", "grouped", "rope", "blocks"):
        assert quotes[page] >= 3, page
    assert not stands_in_source("d_scores = weights * d_weights")


@by_name([*PAGES, ROOT / "README.md"])
def test_links_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
    if page.parent.name == "docs":
        assert links


def test_docstrings_name_pages_that_exist():
    named = {
        name
        for lines in SOURCE.values()
        for line in lines
        for name in re.findall(r"docs/[\w-]+\.md", line)
    }
    assert len(named) >= 5
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("number", range(3))
def test_comparisons_with_pytorch_hold(number):
    pytest.importorskip("torch")
    comparisons = blocks(ROOT / "docs" / "conventions.md", of_torch=True)
    assert len(comparisons) == 3
    exec(compile(comparisons[number], "conventions.md", "exec"), {})


def test_every_notebook_is_listed():
    listed = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(f"](../notebooks/{path.name})" in listed for path in ROOT.glob("notebooks/*.ipynb"))


# what scripts write: the gallery of verdicts, and pictures


@pytest.mark.slow
def test_the_gallery_is_what_a_check_says_today():
    verdicts = script("verdicts")
    assert verdicts.page() == verdicts.PAGE.read_text(encoding="utf-8")


datasheets = script("datasheets")
NEEDS = {"annotated_transformer": "torch", "torch_head": "torch", "jax_function": "jax"}
QUICK = (datasheets.FIRST, "gpt2_style", "einsum_class", "flash_loop")  # in less than a second


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=() if file in QUICK else pytest.mark.slow)
     for file in datasheets.SHOWN],
)  # fmt: skip
def test_a_datasheet_is_what_identify_says_today(file, monkeypatch):
    pytest.importorskip(NEEDS.get(file, "numpy"))
    monkeypatch.setenv("COLUMNS", "")  # which the script sets
    page = datasheets.PAGE.read_text(encoding="utf-8")
    assert datasheets.part(file) == datasheets.stored(page, file)


def test_half_of_the_datasheets_name_a_mistake():
    page = datasheets.PAGE.read_text(encoding="utf-8")
    parts = [datasheets.stored(page, file) for file in datasheets.SHOWN]
    assert len(parts) == 11
    assert sum("\nWhat looks like a mistake\n" in part for part in parts[1:]) == 5


@pytest.mark.slow
def test_the_worked_exercise_is_what_the_commands_say_today():
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    own = script("own_exercise")
    assert own.page() == own.PAGE.read_text(encoding="utf-8")


def test_the_worked_exercise_is_on_its_page_in_full():
    page = (ROOT / "docs" / "own-exercise.md").read_text(encoding="utf-8")
    examples = ROOT / "docs" / "examples"
    for file in (*(examples / "layer-norm").iterdir(), *(examples / "handed-in").glob("*.py")):
        kind = {".py": "python", ".toml": "toml"}[file.suffix]
        assert f"```{kind}\n{file.read_text(encoding='utf-8')}```" in page, file.name


@pytest.mark.slow
def test_pictures_say_what_they_would_say_today():
    pictures = script("pictures")
    for name, draw in pictures.PICTURES.items():
        stored = (pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        words = [re.findall(">([^<>]+)<", svg) for svg in (draw().svg(pictures.PHONE), stored)]
        assert words[0] == words[1], name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/pictures").glob("*.svg")), ids=lambda p: p.stem
)
def test_a_picture_is_drawn_for_a_phone(path):
    """A wider one would be made smaller there, and its words with it."""
    width = re.search(r'viewBox="\d+ \d+ (\d+)', path.read_text(encoding="utf-8"))
    assert int(width[1]) <= 340


# the page about the kernels: the sizes in its words and in its picture

KERNELS = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")


def test_the_caption_of_the_picture_has_the_sizes_of_the_kernel():
    pytest.importorskip("numba")
    from mha_numpy.kernels.host import AVX512
    from mha_numpy.kernels.product import ROWS
    from mha_numpy.kernels.tile import BLOCK

    caption = re.search(r"\(First: [^)]*\)", KERNELS)
    *sizes, rows, vectors, lanes = (int(n) for n in re.findall(r"(?<!\S)\d+", caption[0]))
    assert sizes == [BLOCK, BLOCK, 3 * BLOCK]
    assert (rows, vectors, lanes) == (ROWS, AVX512.vectors, AVX512.register_bytes // 4)


def test_the_table_of_machines_has_the_sizes_of_the_kernel():
    pytest.importorskip("numba")
    from mha_numpy.kernels import host
    from mha_numpy.kernels.product import ROWS

    rows = re.findall(r"^\| (.*) \| (\d+) bytes \| (.*) \| (.*) \|$", KERNELS, re.MULTILINE)
    hosts = (host.AVX512, host.AVX2, host.NEON, host.BASELINE)
    for (_, size, lanes, product), machine in zip(rows, hosts, strict=True):
        assert int(size) == machine.register_bytes
        assert lanes == f"{machine.register_bytes // 4} / {machine.register_bytes // 8}"
        assert [int(n) for n in re.findall(r"\d+", product)] == [ROWS, machine.vectors]


# the page about what a course covers: sections of notebooks, and names


COVERAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8").splitlines()
ROWS = [line.strip("| ").rsplit(" | ", 2) for line in COVERAGE if line.startswith("| ")]
ROWS = [(text, here.split("; "), how) for text, here, how in ROWS if text != "in the text"]
PLACES = {place for _, here, _ in ROWS for place in here}


def is_there(place):
    section = re.fullmatch(r"\[(\d\d)\]\(\.\./notebooks/(\d\d)_[\w-]+\.ipynb\) (.*)", place)
    if section:
        (source,) = NOTEBOOKS.glob(f"{section[1]}_*.py")
        headings = re.findall(r"^# #+ (.*)$", source.read_text(encoding="utf-8"), re.MULTILINE)
        return section[1] == section[2] and section[3] in headings
    experiment = re.fullmatch(r"`mha-numpy experiment ([\w-]+)`", place)
    if experiment:
        return experiment[1] in EXPERIMENTS
    name = re.fullmatch(r"`(mha_numpy\.[\w.]+)`", place)
    return name is not None and locate(name[1]) is not None


def has_code(place):
    """Whether a place is an experiment, a function, or a section with a cell of code."""
    if place.startswith("`"):
        return True
    number, heading = re.fullmatch(r"\[(\d\d)\]\([^)]*\) (.*)", place).groups()
    (source,) = NOTEBOOKS.glob(f"{number}_*.py")
    section = re.split(f"(?m)^# #+ {re.escape(heading)}$", source.read_text(encoding="utf-8"))[1]
    return re.search(r"^# %%(?! \[markdown\])", re.split(r"(?m)^# #+ ", section)[0], re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_what_is_said_to_be_computed_has_code(row):
    _, here, how = row
    assert re.match("(computed|shown|cited)\\b", how)
    assert not how.startswith("computed") or any(map(has_code, here))


@pytest.mark.parametrize("place", sorted(PLACES))
def test_every_place_is_there(place):
    assert is_there(place)


def test_a_place_that_is_not_there_is_found():
    known = "[03](../notebooks/03_many-heads.ipynb) Summary"
    assert is_there(known)
    assert not is_there(known.replace("Summary", "Sumary"))
    assert is_there("`mha-numpy experiment grouped`")
    assert not is_there("`mha-numpy experiment groups`")
    assert not is_there(known.replace("[03]", "[06]"))
    assert not is_there("`mha_numpy.no_such`")
    assert not is_there("somewhere")


def test_every_notebook_covers_something():
    covered = {place[1:3] for place in PLACES if place[0] == "["}
    assert covered >= {f"{n:02}" for n in (1, 2, 3, 6, 7, 8, 9, 14, 15, 16, 18, 23, 25, 27)}
    assert len(ROWS) > 80


def test_what_no_chart_shows_is_on_a_page_with_its_own_picture():
    own = script("../experiments").OWN
    for name, experiment in EXPERIMENTS.items():
        has_none = any(found.chart is None for found in experiment.findings(load_result(name)))
        assert has_none == (name in own), name
