"""The pages are true: their examples run, their quotes stand in the source, their links lead on."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SOURCE = {
    path: [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    for path in sorted((ROOT / "mha_numpy").rglob("*.py"))
}


def by_name(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


def marks(page):
    """Return the marks of a page's examples."""
    if page.stem == "audit-tests":  # runs two files of tests on every mistake
        return pytest.mark.slow
    runs_kernel = re.search(r'>>> .*backend="(numba|loops)"', page.read_text(encoding="utf-8"))
    return pytest.mark.kernel if runs_kernel else ()


def blocks(page):
    """Return the Python blocks of a page that are neither examples nor another framework's."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [block for block in found if ">>>" not in block and "import torch" not in block]


WITHOUT_EXAMPLES = (
    "glossary", "coverage", "confusion", "verdicts", "CONTRIBUTING", "CHANGELOG", "correctness",
    "notebooks", "jupyterlite",
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


def torch_blocks(page):
    """Return the Python blocks of a page that compare with PyTorch."""
    found = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [block for block in found if "import torch" in block]


@pytest.mark.parametrize("number", range(3))
def test_comparisons_with_pytorch_hold(number):
    pytest.importorskip("torch")
    blocks_there = torch_blocks(ROOT / "docs" / "conventions.md")
    assert len(blocks_there) == 3
    exec(compile(blocks_there[number], "conventions.md", "exec"), {})


def test_every_notebook_is_listed():
    listed = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert all(f"](../notebooks/{path.name})" in listed for path in ROOT.glob("notebooks/*.ipynb"))
