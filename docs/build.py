"""Build the website: ``python docs/build.py`` writes it to docs/_build/html.

The pages of docs, the notebooks with their outputs, a reference page for each package and the
pages to play with are laid side by side in docs/_build/source. Sphinx makes a site of them.

``python docs/build.py softmax notebooks/03 api play`` builds only the pages whose names begin so,
to try something quickly; links to all others are then broken.
"""

import re
import shutil
import sys
from collections.abc import Iterable
from html import escape, unescape
from pathlib import Path

from conf import REPOSITORY
from execute import executed
from experiments import write_experiments
from fonts import write_fonts
from jupyterlite import build_jupyterlite
from reference import FIRST, write_reference
from sphinx.cmd.build import build_main
from tasks import write_tasks

from mha_numpy.look import css_tokens
from mha_numpy.show.page import stored_report, training_page
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.page import page_of

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BUILD = DOCS / "_build"
SOURCE, HTML = BUILD / "source", BUILD / "html"
STATIC = BUILD / "static"  # files of the look that are made, not written
CONTENTS = {  # which pages are below which; names as the navigation shows them
    "index": (
        "Learn <notebooks>", "Exercises <exercises>", "Teach <teaching>", "Code <reading-order>",
        "Reference <api/index>",
    ),
    "notebooks": ("notebooks/*", "gpt", "gallery", "experiments"),
    "experiments": ("experiments/*",),
    "reading-order": (
        "glossary", "conventions", "conformance", "identify", "softmax", "attention", "multi-head",
        "forward-mode", "grouped", "rope", "merging", "caches", "latent", "differential",
        "linear-attention", "block-selection", "blocks", "pretrained", "performance", "correctness",
        "Contributing <CONTRIBUTING>",
    ),
    "exercises": ("tasks", "verdicts", "audit-tests", "confusion"),
    "teaching": ("course", "student-variants", "sandbox", "marks", "own-exercise", "coverage"),
    "performance": ("kernels", "precision"),
    "CONTRIBUTING": ("jupyterlite", "release", "CHANGELOG"),
}  # fmt: skip
ALWAYS = ("index", "glossary")  # pages that all others need
THEME = """<script>
if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme;
</script>
"""  # the theme that the reader has chosen on the site
BRAND = re.compile(r'<span class="brand">(.*?)</span></span>', re.DOTALL)
HOME = r'<a class="brand" href="../index.html" target="_top" style="color:inherit">\1</span></a>'


def main(only: tuple[str, ...] = ()) -> int:
    """Build everything, or the pages whose names begin so, and return Sphinx's exit code."""
    for old in (SOURCE, HTML, STATIC):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE, ignore=shutil.ignore_patterns("_*", "*.py", "examples"))
    for page in SOURCE.glob("*.md"):
        if only and not page.stem.startswith((*ALWAYS, *only)):
            page.unlink()
            continue
        text = _link(page.read_text(encoding="utf-8")) + _contents(CONTENTS.get(page.stem))
        page.write_text(text, encoding="utf-8")
    _write_notebooks(SOURCE / "notebooks", only)
    if not only or "api" in only:
        write_reference(SOURCE / "api")
    if not only or "tasks" in only:
        write_tasks(SOURCE / "tasks.md")
    if not only or "experiments" in only:
        write_experiments(SOURCE / "experiments", SOURCE / "experiments.md")
    STATIC.mkdir()
    faces = write_fonts(STATIC, BUILD / "npm")
    (STATIC / "look.css").write_text(css_tokens() + faces, encoding="utf-8")
    strict = [] if only else ["-W", "--keep-going"]
    failed = build_main(["-q", *strict, "-c", f"{DOCS}", f"{SOURCE}", f"{HTML}"])
    faces = faces.replace("fonts/", "../_static/fonts/")
    for notebook in (HTML / "notebooks").glob("*.html"):
        notebook.write_text(_dress_frames(notebook.read_text(encoding="utf-8"), faces), "utf-8")
    if not only or "play" in only:
        _write_pages(HTML / "play", faces)
    if not only or "lite" in only:
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


def _write_notebooks(folder: Path, only: tuple[str, ...]) -> None:
    """Write the notebooks with their outputs."""
    folder.mkdir()
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    if only:
        notebooks = [one for one in notebooks if f"notebooks/{one.name}".startswith(only)]
    for notebook, done in zip(notebooks, executed(notebooks, BUILD / "cache"), strict=True):
        shutil.copy(done, folder / notebook.name)


def _dress(html: str, faces: str) -> str:
    """Give a page to play with the site's typefaces, and the theme that its reader has chosen."""
    html = html.replace("<body>", f"<body>\n{THEME}", 1)
    html = html.replace("default-src 'none'", "default-src 'none'; font-src 'self'", 1)
    return html.replace("<style>", f"<style>\n{faces}", 1)


def _dress_frames(html: str, faces: str) -> str:
    """Do so in the frames of a notebook, which are the site's own: they need no origin apart."""
    return re.sub(
        'sandbox="allow-scripts" (style="[^"]*") srcdoc="([^"]*)"',
        lambda found: f'{found[1]} srcdoc="{escape(_dress(unescape(found[2]), faces))}"',
        html,
    )


def _write_pages(folder: Path, faces: str) -> None:
    """Write the pages to play with, which need nothing but themselves and the site's typefaces."""
    folder.mkdir()
    pages = {
        "sentence": page_of(walk()),
        "translator": page_of(walk("three hundred forty-two", model="numbers")),
        "induction": page_of(walk("a b c d a b c", model="induction")),
        "learning": training_page(),
        "heads": stored_report(DOCS / "data" / "minilm-heads.json"),
    }
    for name, page in pages.items():
        html = BRAND.sub(HOME, _dress(page.to_html(), faces), count=1)
        (folder / f"{name}.html").write_text(html, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
