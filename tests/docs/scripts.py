"""The scripts in docs/examples, as modules."""

import importlib.util

from tests.notebooks.cells import ROOT


def load(name):
    path = ROOT / "docs" / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"docs_examples_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
