"""Run the commands of docs/own-exercise.md, and write what they print into the page.

python docs/examples/own_exercise.py
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import fill

ROOT = Path(__file__).parents[2]
EXAMPLES, PAGE = ROOT / "docs" / "examples", ROOT / "docs" / "own-exercise.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
CAUSES = re.compile(r"```text\n(.*?)```", re.DOTALL)
AXES = "((2, 0.1), (0, 0.5), (-2, 0.2))", "((2, 0.1), (2, 0.5))"


def page() -> str:
    """Return the page with what its commands print today."""
    with TemporaryDirectory() as folder:
        for name in ("layer-norm", "handed-in"):
            shutil.copytree(EXAMPLES / name, Path(folder) / name)
        other = shutil.copytree(EXAMPLES / "layer-norm", Path(folder) / "last-axis-only")
        inputs = (other / "inputs.py").read_text(encoding="utf-8")
        (other / "inputs.py").write_text(inputs.replace(*AXES), encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
        text = BLOCK.sub(lambda block: f"```console\n{_ran(block[1], folder)}```", text)
        return CAUSES.sub(lambda _: f"```text\n{_causes(Path(folder, 'results'))}```", text)


def _ran(block: str, folder: str) -> str:
    """Return the commands of a block, each with what it prints in a folder."""
    parts = []
    for line in re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE):
        command = shlex.split(line)
        if command[0] == "mha-numpy":
            command = [sys.executable, "-m", "mha_numpy", *command[1:]]
        run = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        parts.append(f"$ {line}\n{run.stdout}")
    return "".join(parts)


def _causes(results: Path) -> str:
    """Return the likely cause that each student reads, if there is one."""
    told = ""
    for path in sorted((results / "by_student").iterdir()):
        (function,) = json.loads(path.read_text(encoding="utf-8"))["functions"]
        if cause := function["cause"].removeprefix("likely cause: "):
            told += fill(f"{path.stem}: {cause}", 100, subsequent_indent="    ") + "\n"
    return told


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
