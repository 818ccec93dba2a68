"""Every notebook from a clean kernel, top to bottom: no error, no warning, no files left."""

import nbformat
import pytest
from nbclient import NotebookClient

from tests.notebooks.cells import each_notebook_run, tags

LONGEST = 300  # seconds of a cell, to end what hangs


@each_notebook_run
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in the program that runs the kernel
def test_runs_from_a_clean_kernel(source, tmp_path):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    client = NotebookClient(notebook, timeout=LONGEST, resources={"metadata": {"path": tmp_path}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (check,) = (cell for cell in notebook.cells if "check" in tags(cell))
    assert check.outputs
    shown = [output.data["text/html"] for output in check.outputs]
    assert all("not written yet" in html or "the bug is still there" in html for html in shown)
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    shown = [output.data.get("text/plain", "") for output in outputs if "data" in output]
    assert not [text for text in shown if "np.float" in text]  # numbers are printed plainly
    assert not list(tmp_path.iterdir())
