"""`mha-numpy lab` as a user starts it: JupyterLab in a browser runs a notebook."""

import os
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed: pip install jupyterlab")

NOTEBOOK = "05_many-heads.ipynb"  # with the stepper
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


@pytest.fixture
def lab(tmp_path):
    """Start the program on a free port; end it with Ctrl-C, as a user does."""
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
            yield f"http://127.0.0.1:{port}/lab/tree/{NOTEBOOK}"
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


def test_a_notebook_runs_and_its_stepper_steps(lab, browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(lab)
    page.wait_for_function("() => window.jupyterapp", timeout=60_000)
    page.evaluate(OPENED)
    page.evaluate(RUN_ALL)

    cells = page.evaluate(CODE_CELLS)
    assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [o for o in outputs if o["output_type"] == "error" or o.get("name") == "stderr"]
    assert sum("<img " in str(output) for output in outputs) > 5

    frame = page.locator(".jp-OutputArea-output iframe")
    frame.scroll_into_view_if_needed()
    inside = frame.content_frame
    first = inside.locator("body").inner_text()
    inside.locator("input[type=range]").press("ArrowRight")
    inside.get_by_text("2 of ").wait_for()
    assert inside.locator("body").inner_text() != first
    page.close()
