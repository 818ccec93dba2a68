"""Two hundred functions by people who had not seen the package, each with the truth about it.

They are in an archive, because they are material and nobody's model: a and b were looked at while
`identify` was written, x and y only afterwards (98 of their 112 attention functions were found).
"""

import importlib.util
import json
import sys
import tarfile
from pathlib import Path

import pytest

from mha_numpy.identifying import identify

pytestmark = pytest.mark.slow
ARCHIVE = Path(__file__).with_name("foreign.tar.xz")
UNKNOWN = {  # what is not found yet: a class that needs arrays, pages of a cache
    "a": {"f38"},
    "b": {"f17", "f18", "f39"},
    "x": set(),
    "y": set(),
}
TOKENS = {"query", "x", "packed qkv", "memory", "key"}  # roles; without one it is no attention


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("foreign")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "keras"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_foreign_functions(folder, name, framework, monkeypatch):
    pytest.importorskip(framework)
    monkeypatch.syspath_prepend(folder / name)
    truths = json.loads((folder / name / "truth.json").read_text("utf-8"))
    lost, accused = [], []
    for key, truth in truths.items():
        if truth["framework"] != framework:
            continue
        sheet = identify(load(folder / name / f"{key}.py", truth["name"]), seconds=30)
        is_attention = bool(truth["rows"]) and not TOKENS.isdisjoint(truth["roles"].values())
        if is_attention and not sheet.is_found and key not in UNKNOWN[name]:
            lost.append(key)
        if sheet.mistakes and not truth["bugs"] and truth["correct"]:
            accused.append((key, [row.says for row in sheet.mistakes]))
    assert (lost, accused) == ([], [])


def load(path, name):
    spec = importlib.util.spec_from_file_location(f"foreign_{path.parent.name}_{path.stem}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)
