"""The workflows and the citation follow their schemas, and what they name exists."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mha_numpy import __version__

pytest.importorskip("check_jsonschema")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MADE = ("dist/", "docs/_build/")  # by the commands themselves

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "paths"),
    [("github-workflows", WORKFLOWS), ("citation-file-format", [DOCS / "CITATION.cff"])],
)
def test_the_schema_is_followed(schema, paths):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    result = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    assert paths
    assert result.returncode == 0, result.stdout + result.stderr


def jobs_of(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()


def texts_in(path):
    """Return what a workflow runs, and what it hands to actions."""
    steps = [step for job in jobs_of(path) for step in [job, *job.get("steps", ())]]
    given = [str(value) for step in steps for value in step.get("with", {}).values()]
    runs = [step["run"] for step in steps if "run" in step]
    called = [step["uses"] for step in steps if step.get("uses", "").startswith("./")]
    return [*runs, *given, *called]


def missing_in(texts):
    """Return the extras and the files that are named and do not exist."""
    text = "\n".join(texts)
    extras = set(re.findall(r"\.\[([\w-]+)\]", text)) - set(PROJECT["optional-dependencies"])
    words = {word.removeprefix("./") for word in re.split(r"[\s\"'(),=]+", text)}
    paths = {
        word
        for word in words
        if re.fullmatch(r"[\w./*-]+(/[\w.*-]+|\.(py|toml|md))", word) and not word.startswith(MADE)
    }
    return extras | {each for each in paths if not any(ROOT.glob(each))}


@each_workflow
def test_what_it_names_exists(path):
    assert not missing_in(texts_in(path))


def test_what_does_not_exist_is_found():
    wrong = ['pip install -e ".[tset]"', "python docs/biuld.py", "./.ci/no-such dist/*.whl"]
    assert missing_in(wrong) == {"tset", "docs/biuld.py", ".ci/no-such"}


@each_workflow
def test_it_may_only_read_and_ends_in_time(path):
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job or "uses" in job for job in jobs_of(path))


def test_the_version_and_the_addresses_are_one():
    citation = yaml.safe_load((DOCS / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## \[(\d.*?)\]", (DOCS / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert citation["version"] == newest[1] == __version__
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert citation["url"] == PROJECT["urls"]["Homepage"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = re.findall(r"https://github\.com/[\w-]+/[\w-]+", readme)
    assert set(ours) == {PROJECT["urls"]["Source"]}
