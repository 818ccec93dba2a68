"""What docs/CONTRIBUTING.md names exists: files, functions, modules, commands, options."""

import importlib
import re
from pathlib import Path

import pytest

from mha_numpy.cli import PARSER

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
CODE = sorted(set(re.findall(r"`([^`]+)`", PROSE)))
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "mha_numpy").rglob("*.py"))
PLACES = ("notebooks/NN_name.py", "docs/*.md", ".ipynb")  # patterns and endings


def is_path(code):
    return ("/" in code or code.endswith((".py", ".md"))) and " " not in code


@pytest.mark.parametrize("path", [c for c in CODE if is_path(c) and c not in PLACES])
def test_files_exist(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", [c for c in CODE if re.fullmatch(r"\w*[_A-Z]\w*", c)])
def test_names_stand_in_the_source(name):
    pattern = rf"^\s*(?:(?:def|class) )?{name}\b"
    assert name in ("MISSED", "by_core") or re.search(pattern, SOURCE, flags=re.MULTILINE)


def test_modules_can_be_run():
    modules = re.findall(r"python -m ([\w.]+)", PAGE)
    assert modules
    for module in modules:
        assert importlib.util.find_spec(module)


def test_subcommands_and_their_options_exist():
    commands = re.findall(r"mha-numpy (\w+)([^`\n]*)", PROSE)
    assert commands
    (subcommands,) = (a.choices for a in PARSER._actions if a.dest == "command")
    for name, rest in commands:
        known = subcommands[name]._option_string_actions
        assert set(re.findall(r"--[\w-]+", rest)) <= set(known), name


def test_every_package_has_its_room():
    rooms = set(re.findall(r"`mha_numpy/(\w+)`", PROSE))
    packages = {path.parent.name for path in (ROOT / "mha_numpy").glob("*/__init__.py")}
    assert packages <= rooms
