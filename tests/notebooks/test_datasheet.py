"""The notebook that only a browser has: paste a function, read its datasheet."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from tests.notebooks.cells import ROOT, run, sync
from tests.notebooks.test_run import BROWSER

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's program
SOURCE = ROOT / "docs" / "examples" / "show_it_your_attention.py"


def test_its_cells_say_what_its_text_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in sync.notebook_of(SOURCE).cells:
        if cell.cell_type == "code":
            run(cell.source, names)
    sheet = names["sheet"]
    assert (sheet.value("scale"), sheet.value("mask")) == ("1/d", "true = blocked")
    assert sheet.value("blind") == "mean of all values"
    assert [row.setting for row in sheet.mistakes] == ["mask"]
    assert sheet.name in (tmp_path / "datasheet.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_runs_as_in_a_browser(tmp_path):
    notebook = nbformat.from_dict(sync.notebook_of(SOURCE))
    notebook.cells.insert(0, new_code_cell(BROWSER))
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": tmp_path}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (shown,) = (output.data["text/html"] for output in outputs if "data" in output)
    assert "line 5" in shown  # sources of cells are read, too
