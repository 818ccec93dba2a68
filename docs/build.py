"""Build the website: ``python docs/build.py`` writes it to docs/_build/html.

The pages of docs, the notebooks with their outputs, a reference page for each package and the
pages to play with are laid side by side in docs/_build/source. Sphinx makes a site of them.
"""

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from conf import REPOSITORY
from execute import executed
from jupyterlite import build_jupyterlite
from reference import FIRST, write_reference
from sphinx.cmd.build import build_main
from tasks import write_tasks

from mha_numpy.show.page import stored_report, training_page
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.page import page_of

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BUILD = DOCS / "_build"
SOURCE, HTML = BUILD / "source", BUILD / "html"
CONTENTS = {  # which pages stand below which; names as the navigation shows them
    "index": (
        "Notebooks <notebooks>", "The core <reading-order>", "Exercises <exercises>",
        "Teaching <teaching>", "Gallery <gallery>", "Reference <api/index>",
        "Speed <performance>", "Project <CONTRIBUTING>",
    ),
    "notebooks": ("notebooks/*",),
    "reading-order": (
        "glossary", "conventions", "softmax", "attention", "multi-head", "grouped", "rope",
        "blocks",
    ),
    "exercises": ("tasks", "verdicts", "audit-tests", "confusion"),
    "teaching": ("coverage",),
    "performance": ("kernels",),
    "CONTRIBUTING": ("correctness", "jupyterlite", "release", "CHANGELOG"),
}  # fmt: skip
WAY_BACK = """<script>
if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme;
</script>
<p style="margin:0.5rem 1.25rem 0">
<a href="../gallery.html" target="_top" style="color:inherit">More pages like this one</a></p>
"""  # and the theme that the reader has chosen on the site


def main() -> int:
    """Build everything, and return Sphinx's exit code."""
    for old in (SOURCE, HTML):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE, ignore=shutil.ignore_patterns("_*", "*.py", "examples"))
    for page in SOURCE.glob("*.md"):
        text = _link(page.read_text(encoding="utf-8")) + _contents(CONTENTS.get(page.stem))
        page.write_text(text, encoding="utf-8")
    _write_notebooks(SOURCE / "notebooks")
    write_reference(SOURCE / "api")
    write_tasks(SOURCE / "tasks.md")
    failed = build_main(["-q", "-W", "--keep-going", "-c", f"{DOCS}", f"{SOURCE}", f"{HTML}"])
    _write_pages(HTML / "play")
    build_jupyterlite(HTML / "lite")
    return failed


def _contents(pages: Iterable[str] | None) -> str:
    """Return the list of a page's subpages, for Sphinx."""
    return "\n".join(("\n```{toctree}", ":hidden:", ":glob:", "", *pages, "```\n")) if pages else ""


def _link(text: str) -> str:
    """Point links that leave docs at the site's notebooks and packages, or at the repository."""

    def target(found: re.Match[str]) -> str:
        path, anchor = (DOCS / found[1]).resolve().relative_to(ROOT).as_posix(), found[2] or ""
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"a page of docs links to {path}, which does not exist")
        if path.startswith("notebooks/"):
            return f"]({path}{anchor})"
        package = path.removeprefix("mha_numpy/").replace("/", ".")
        if package in FIRST:
            return f"](api/{package}.md)"
        return f"]({REPOSITORY}/blob/main/{path}{anchor})"

    return re.sub(r"\]\(((?:\.\./|examples/)[^)#]+)(#[^)]*)?\)", target, text)


def _write_notebooks(folder: Path) -> None:
    """Write all notebooks with their outputs."""
    folder.mkdir()
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for notebook, done in zip(notebooks, executed(notebooks, BUILD / "cache"), strict=True):
        shutil.copy(done, folder / notebook.name)


def _write_pages(folder: Path) -> None:
    """Write the pages to play with, which need nothing but themselves."""
    folder.mkdir()
    pages = {
        "sentence": page_of(walk()),
        "translator": page_of(walk("three hundred forty-two", model="numbers")),
        "induction": page_of(walk("a b c d a b c", model="induction")),
        "learning": training_page(),
        "heads": stored_report(DOCS / "data" / "minilm-heads.json"),
    }
    for name, page in pages.items():
        html = page.to_html().replace("<body>", f"<body>\n{WAY_BACK}", 1)
        (folder / f"{name}.html").write_text(html, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
