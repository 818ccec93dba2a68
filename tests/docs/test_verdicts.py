"""The gallery of verdicts is what a check says today."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
def test_the_page_is_what_is_said_today():
    spec = importlib.util.spec_from_file_location("verdicts", DOCS / "examples" / "verdicts.py")
    verdicts = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(verdicts)
    assert verdicts.page() == verdicts.PAGE.read_text(encoding="utf-8")
