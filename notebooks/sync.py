"""Make each notebook from its source: ``python notebooks/sync.py`` after any change.

A source is Python text whose cells begin with ``# %%`` (the "percent" format of jupytext); its
pair is the ``.ipynb`` of the same name, without outputs.
"""

import hashlib
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

HERE = Path(__file__).parent
METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
FOLDED = "hide-input"  # the tag of a cell that the site shows as one line; so does Jupyter
PROMPTS = {  # what the site writes on that line, unless it hides imports
    "code_prompt_show": "Show how this was computed",
    "code_prompt_hide": "Hide how this was computed",
}


def sources() -> list[Path]:
    """Return the sources in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def notebook_of(source: Path) -> NotebookNode:
    """Read a source as a notebook without outputs, the same each time."""
    notebook = jupytext.reads(
        source.read_text("utf-8"), fmt="py:percent"
    )
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        if FOLDED in cell.metadata.get("tags", []):
            cell.metadata.jupyter = {"source_hidden": True}
            if number > 1:  # no longer the imports
                cell.metadata.mystnb = PROMPTS
        content = f"{number} {cell.cell_type} {cell.source}"
        digest = hashlib.sha256(content.encode()).hexdigest()
        cell.id = digest[:8]  # not random: the same bytes
    return notebook


def sync() -> list[Path]:
    """Write the pairs that are missing or differ from their source, and return them."""
    written = []
    for source in sources():
        pair = source.with_suffix(".ipynb")
        text = nbformat.writes(notebook_of(source)) + "\n"
        is_old = (
            not pair.exists() or pair.read_text("utf-8") != text
        )
        if is_old:
            pair.write_text(text, encoding="utf-8")
            written.append(pair)
    return written


if __name__ == "__main__":
    for path in sync():
        print(f"wrote {path.name}")
