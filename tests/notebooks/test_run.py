"""Every notebook from a clean kernel, top to bottom: no error, no warning, no files left."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from mha_numpy.teach.exercises.notebook import NO_LIMITS
from tests.notebooks.cells import each_notebook, each_notebook_run, tags

LONGEST = 300  # seconds of a cell, to end what hangs
BROWSER = Path(__file__).with_name("as_in_a_browser.py").read_text()
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"  # in the program that runs the kernel
)


@each_notebook_run
def test_runs_from_a_clean_kernel(source, tmp_path):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    run(notebook, tmp_path)


@pytest.mark.slow
@each_notebook
def test_runs_as_in_a_browser(source, tmp_path):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    notebook.cells.insert(0, new_code_cell(BROWSER))
    printed = run(notebook, tmp_path)
    assert set(printed.splitlines()) == {NO_LIMITS}


def run(notebook, tmp_path):
    """Run all cells; return what the checks have printed."""
    client = NotebookClient(notebook, timeout=LONGEST, resources={"metadata": {"path": tmp_path}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (check,) = (cell for cell in notebook.cells if "check" in tags(cell))
    verdicts = [output for output in check.outputs if output.output_type == "display_data"]
    assert verdicts
    shown = [output.data["text/html"] for output in verdicts]
    assert all("not written yet" in html or "the bug is still there" in html for html in shown)
    told = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert not re.sub(r".+: \d+ of \d+\n", "", told)  # long work says so on a slow machine
    shown = [output.data.get("text/plain", "") for output in outputs if "data" in output]
    assert not [text for text in shown if "np.float" in text]  # numbers are printed plainly
    assert not list(tmp_path.iterdir())
    return "".join(output.get("text", "") for output in check.outputs)
