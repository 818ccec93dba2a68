"""`mha-numpy lab` as a user starts it: JupyterLab in a browser runs a notebook."""

import os
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from mha_numpy.show.page import stepper
from mha_numpy.show.pictures import weights_by_head
from tests.show.pictures.helpers import recorded

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install jupyterlab")
nbformat = pytest.importorskip("nbformat.v4", reason="nbformat is not installed")
pytestmark = pytest.mark.slow

NOTEBOOK = "03_many-heads.ipynb"  # with the stepper
CONFIG = """
c.LabApp.expose_app_in_browser = True
c.IdentityProvider.token = ""
c.ServerApp.disable_check_xsrf = True
"""
# wait until the notebook stands in the main area and its kernel can be asked
OPENED = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const isNotebook = each => each.sessionContext && each.content;
  let panel;
  while (!(panel = [...app.shell.widgets("main")].find(isNotebook))) {
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  await panel.context.ready;
  await panel.sessionContext.ready;
  app.shell.activateById(panel.id);
  window.panel = panel;
}"""
RUN_ALL = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
CODE_CELLS = """() => window.panel.context.model.sharedModel.cells
  .filter(cell => cell.cell_type === "code")
  .map(cell => ({count: cell.execution_count, outputs: cell.getOutputs()}))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Start the program on a free port; return its folder and its address."""
    tmp_path = tmp_path_factory.mktemp("lab")
    config = tmp_path / "config"
    config.mkdir()
    (config / "jupyter_lab_config.py").write_text(CONFIG)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {
        f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower())
        for kind in ("CONFIG", "DATA", "RUNTIME")
    }
    command = [sys.executable, "-m", "mha_numpy", "lab", str(tmp_path / "mine"), "--open", "5"]
    options = ["--no-browser", f"--port={port}", "--allow-root"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command + options, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, **places},
        )  # fmt: skip
        try:
            _await(f"http://127.0.0.1:{port}/api", process, tmp_path / "log")
            yield tmp_path / "mine", f"http://127.0.0.1:{port}/lab/tree"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def _await(address, process, log):
    """Wait until a server answers."""
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            urlopen(address, timeout=1).close()
        except OSError:
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
        else:
            return
    raise AssertionError(log.read_text())


@pytest.fixture
def open_notebook(lab, browser):
    """Return a function that opens a notebook, given as its name."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})

    def opened(name):
        page.goto(f"{lab[1]}/{name}")
        page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        page.evaluate(OPENED)
        return page

    yield opened
    page.close()


def test_a_notebook_runs_and_its_stepper_steps(open_notebook):
    page = open_notebook(NOTEBOOK)
    page.evaluate(RUN_ALL)

    cells = page.evaluate(CODE_CELLS)
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert sum("<img " in str(output) for output in outputs) > 5

    frame = page.locator(".jp-OutputArea-output iframe")
    frame.scroll_into_view_if_needed()
    inside = frame.content_frame
    first = inside.locator("#story-title").inner_text()
    inside.locator("#story-next").click()
    assert inside.locator("#story-title").inner_text() not in ("", first)
    assert frame.bounding_box()["height"] > 700  # the page said how high it is


def test_what_an_untrusted_notebook_shows(lab, open_notebook):
    """As one that was executed elsewhere: scripts and frames are taken out when it is opened."""
    t, weights = recorded()
    shown = [stepper(t), weights_by_head(weights[0], "abcde"), t]
    outputs = [nbformat.new_output("display_data", {"text/html": s._repr_html_()}) for s in shown]
    cells = [nbformat.new_code_cell(outputs=[output]) for output in outputs]
    notebook = nbformat.writes(nbformat.new_notebook(cells=cells))
    (lab[0] / "untrusted.ipynb").write_text(notebook, encoding="utf-8")
    page = open_notebook("untrusted.ipynb")
    outputs = page.locator(".jp-OutputArea-output")
    table = outputs.nth(0).locator("table")
    table.wait_for()
    assert page.locator("iframe").count() == 0
    assert table.locator("tr").count() == 1 + len(t)
    assert "Trust this notebook to step through" in table.inner_text()
    assert table.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    outputs.nth(1).scroll_into_view_if_needed()
    images = outputs.nth(1).locator("img")
    widths = images.evaluate_all("images => images.map(image => [image.naturalWidth, image.width])")
    assert len(widths) == 2
    assert all(natural == shown > 200 for natural, shown in widths)
    assert "Rows: queries. Columns: keys." in outputs.nth(1).inner_text()
    assert outputs.nth(2).locator("tr").count() == 1 + len(t)
