"""What docs/conformance.md says of PyTorch and JAX, by the files that it shows."""

import re
import tomllib
from pathlib import Path

import pytest

from mha_numpy.conformance import cases
from mha_numpy.conformance.conventions import load, make_conventions
from mha_numpy.conformance.running import make_contender, reason_to_skip
from mha_numpy.conformance.verdict import find_trouble

PAGE = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
TABLES = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
PATHS = re.findall(r"`([\w.]+:(?:scaled_\w+|dot_\w+|attention_forward))`", PAGE)


def outcome(number, **changes):
    """Return how many cases agree, and the names of those that differ."""
    table = TABLES[number] | changes
    contender = make_contender(load(PATHS[number]), make_conventions(table))
    runs = [case for case in cases() if not reason_to_skip(contender, case)]
    wrong = [case.name for case in runs if find_trouble(contender, case)]
    return len(runs) - len(wrong), wrong


def test_pytorch():
    pytest.importorskip("torch")
    assert outcome(0) == (40, ["bias-T_k", "mask-T_k"])
    _, wrong = outcome(0, hidden_numbers="not read")
    assert wrong[2:] == ["hidden-nan", "hidden-inf", "hidden-query"]
    assert "40 cases agree and two differ" in " ".join(PAGE.split())


def test_jax():
    pytest.importorskip("jax")
    different = ["value-width", "blind-bias", "window-left", "window-right", "and-all"]
    assert outcome(1)[1] == different


def test_ours():
    assert outcome(2) == (len(cases()) - 2, [])
