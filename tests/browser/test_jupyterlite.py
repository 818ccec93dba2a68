"""JupyterLite as it is built for the site: a notebook opens, and its kernel has this package.

Pyodide's CDN is not asked: npm has its core, PyPI its packages in plain Python. It alone has NumPy
for a browser, so that all but NumPy is tried here.
"""

import functools
import hashlib
import json
import runpy
import shutil
import subprocess
import sys

import pytest

from tests.browser.conftest import TYPES, served
from tests.notebooks.cells import ROOT

kernel = pytest.importorskip(
    "jupyterlite_pyodide_kernel.constants", reason="no JupyterLite: pip install mha-numpy[site]"
)
pytestmark = pytest.mark.slow

LOADED = ("micropip", "ipython", "jedi", "rich")  # and what these need
# what does not import of the standard library, and at what the import of this package ends
CODE = """
import ast, importlib, sys
from importlib.util import find_spec
from pathlib import Path

def imports_of(path):
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:  # a file of its own folder
            yield node.module

failed = []
paths = Path(find_spec("mha_numpy").origin).parent.rglob("*.py")
names = {name for path in paths for name in imports_of(path)}
for name in names:
    if name.partition(".")[0] in sys.stdlib_module_names:
        try:
            importlib.import_module(name)
        except ImportError:
            failed.append(name)
try:
    import mha_numpy.core
except ModuleNotFoundError as error:
    print(sys.version, sys.platform, len(names) > 100, failed, error.name)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build JupyterLite into a folder of a site, and serve this; return its address."""
    folder = tmp_path_factory.mktemp("site")
    built = runpy.run_path(str(ROOT / "docs" / "jupyterlite.py"))
    built["build_jupyterlite"](folder / "project" / "lite")
    with served(folder) as address:
        yield f"{address}project/lite"


@pytest.fixture(scope="module")
def cdn(tmp_path_factory):
    """Return a folder with files that Pyodide's CDN has, too."""
    if shutil.which("npm") is None:
        pytest.skip("no npm, which fetches Pyodide: install it, as by apt-get install npm")
    folder = tmp_path_factory.mktemp("cdn")
    run = functools.partial(subprocess.run, cwd=folder, check=True, capture_output=True)
    run(["npm", "pack", f"pyodide@{kernel.PYODIDE_VERSION}"])
    run(["tar", "-xzf", f"pyodide-{kernel.PYODIDE_VERSION}.tgz", "--strip-components=1"])
    lock = json.loads((folder / "pyodide-lock.json").read_text())
    needed = [lock["packages"][name] for name in sorted(_needed(LOADED, lock["packages"]))]
    wheels = [f"{package['name']}=={package['version']}" for package in needed]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    run([*pip, f"--python-version={kernel.PYODIDE_PYTHON_VERSION}", *wheels])
    for package in needed:  # the CDN's were compressed anew
        content = (folder / package["file_name"]).read_bytes()
        package["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "pyodide-lock.json").write_text(json.dumps(lock))
    return folder


def _needed(names, packages):
    """Return the names of packages, and of all that these need."""
    names = {name.lower().replace("_", "-") for name in names}
    return names.union(*(_needed(packages[name]["depends"], packages) for name in names))


@pytest.fixture
def page(site, cdn, browser):
    """Return a page that asks no other host than the site and Pyodide's CDN."""
    others = []

    def answer(route):
        address = route.request.url
        path = cdn / address.rpartition("/")[2]
        if address.startswith((site, "blob:", "data:")):
            route.continue_()
        elif not address.startswith(kernel.PYODIDE_CDN_URL):
            others.append(address)
            route.abort()
        elif path.exists():
            headers = {"Access-Control-Allow-Origin": "*"}
            content_type = TYPES.get(path.suffix, "application/octet-stream")
            route.fulfill(path=path, headers=headers, content_type=content_type)
        else:
            route.abort()

    context = browser.new_context()
    context.route("**/*", answer)
    yield context.new_page()
    context.close()
    assert others == []


def test_a_notebook_opens_and_its_kernel_has_all_but_numpy(site, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site}/notebooks/index.html?path=03_many-heads.ipynb")
    cells = page.locator(".jp-Notebook .jp-Cell")
    page.get_by_role("heading", name="One head has one row").wait_for(timeout=60_000)

    cell = cells.nth(4)  # what comes before it is folded
    cell.locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.insert_text(CODE)
    page.keyboard.press("Shift+Enter")
    output = cell.locator(".jp-OutputArea-output")
    output.wait_for(timeout=120_000)
    printed = output.inner_text()
    assert printed.startswith(kernel.PYODIDE_PYTHON_VERSION)
    assert printed.split("emscripten")[1].split() == ["True", "[]", "numpy"]
    (wheel,) = (address for address in asked if "mha_numpy-" in address)
    assert wheel.startswith(f"{site}/pypi/")
    assert any("/numpy-" in address for address in asked)
