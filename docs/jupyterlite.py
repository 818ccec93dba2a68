"""Build the notebooks for a browser, with JupyterLite: ``python docs/jupyterlite.py OUT``.

The kernel loads NumPy, matplotlib and rich from Pyodide's CDN and this package from the site, so
that a notebook runs as it is. See ``docs/jupyterlite.md``.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat

ROOT = Path(__file__).resolve().parents[1]
EPOCH = "1767225600"  # 2026, the date of all files: the same sources make the same ones
EXTENSION = "@jupyterlite/pyodide-kernel-extension"
COMM = "comm==0.2.3"  # the kernel needs it, and Pyodide's CDN does not have it
FROM_WORKER = "../../../../pypi"  # the wheels, from the file that runs in the kernel's worker
MORE = ("show_it_your_attention",)  # notebooks of docs/examples, which only a browser has
BUILD = {
    "apps": ["notebooks", "tree", "edit", "consoles", "lab"],
    "contents": ["notebooks"],
    "federated_extensions": [str(Path(sys.prefix) / "share/jupyter/labextensions" / EXTENSION)],
    "ignore_sys_prefix": True,  # no other extension that happens to be installed
    "no_sourcemaps": True,
    "no_unused_shared_packages": True,
    "source_date_epoch": int(EPOCH),
}


def build_jupyterlite(out: Path) -> None:
    """Build JupyterLite with the notebooks into a folder; one that it has built before is replaced.

    Raises
    ------
    RuntimeError
        A command failed, or warned of something.
    """
    with TemporaryDirectory() as folder:
        lite = Path(folder)
        _run("pip", "wheel", "--no-deps", "--wheel-dir", "pypi", ROOT, COMM, folder=lite)
        (wheel,) = (lite / "pypi").glob("mha_numpy-*.whl")
        (lite / "notebooks").mkdir()
        for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
            shutil.copy(notebook, lite / "notebooks")
        notebook_of = runpy.run_path(str(ROOT / "notebooks" / "sync.py"))["notebook_of"]
        for name in MORE:
            path = lite / "notebooks" / f"{name.replace('_', '-')}.ipynb"
            nbformat.write(notebook_of(ROOT / "docs" / "examples" / f"{name}.py"), path)
        packages = ["numpy", "matplotlib", "rich", f"{FROM_WORKER}/{wheel.name}"]
        kernel = {"disablePyPIFallback": True, "loadPyodideOptions": {"packages": packages}}
        data = {"appName": "mha_numpy", "litePluginSettings": {f"{EXTENSION}:kernel": kernel}}
        config = {"jupyter-lite-schema-version": 0, "jupyter-config-data": data}
        (lite / "jupyter-lite.json").write_text(json.dumps(config))
        (lite / "jupyter_lite_config.json").write_text(json.dumps({"LiteBuildConfig": BUILD}))
        for command in ("build", "check"):
            _run("jupyterlite_core", command, "--output-dir", "out", folder=lite)
        if (out / "jupyter-lite.json").exists():
            shutil.rmtree(out)
        shutil.copytree(lite / "out", out, dirs_exist_ok=True)


def _run(*command: str | Path, folder: Path) -> None:
    """Run a module's command in a folder; raise where it fails, or warns, pip excepted."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode or (command[0] != "pip" and re.search(r"\bwarn|\[W ", done.stdout, re.I)):
        raise RuntimeError(f"{command[0]} {command[1]} failed:\n{done.stdout}")


if __name__ == "__main__":
    build_jupyterlite(Path(sys.argv[1]))
