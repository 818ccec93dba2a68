"""The smallest example of each finding: it is true of the function, and small."""

import json
from functools import cache

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.reporting.examples import show
from tests.sweeps import every


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def unscaled(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def strict(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    j, i = np.arange(k.shape[-2]), np.arange(q.shape[-2])[:, None]
    return softmax(np.where(j <= i + 1, scores, -np.inf)) @ v


def blocked(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(mask, -1e9, scores)) @ v


def overflowing(q, k, v):
    e = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return e / e.sum(-1, keepdims=True) @ v


def changing(q, k, v):
    q /= np.sqrt(q.shape[-1])
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def narrow(q, k, v):
    return blocked(*(x.astype(np.float32) for x in (q, k, v)), False).astype(float)


def tiled(q, k, v):
    groups = q.shape[1] // k.shape[1]
    return unscaled(q, *(np.tile(x, (1, groups, 1, 1)) for x in (k, v)))


@cache
def sheet_of(function):
    return identify(function, examples=True)


def row_of(function, setting):
    """Return the row of a setting or a fact, with its example."""
    return next(row for row in sheet_of(function).rows if row.setting == setting)


@pytest.mark.parametrize(
    ("function", "setting", "most"),
    every(3, [
        (unscaled, "scale", 10), (strict, "causal", 9), (blocked, "mask", 7),
        (blocked, "blind", 7), (blocked, "hidden_nan", 7), (unscaled, "no_keys", 1),
        (overflowing, "large_scores", 3), (narrow, "sums", 3), (tiled, "grouping", 8),
    ]),
)  # fmt: skip
def test_it_is_true_and_small(function, setting, most):
    row = row_of(function, setting)
    inputs, got, usual, says = row.example
    assert sum(np.size(x) for x in inputs.values()) <= most
    assert usual.size
    if isinstance(got, str):
        assert says == "it raises ValueError"
        with pytest.raises(ValueError, match=got.removeprefix("ValueError: ")):
            function(**inputs)
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(function(**inputs), got)
        assert usual.shape == got.shape
        assert show(got) != show(usual)
    assert 3 <= len(str(row.example).splitlines()) <= 8
    finite = [x[np.isfinite(x)] for x in inputs.values()]
    assert all(np.array_equal(2 * x, np.round(2 * x)) for x in finite)


def test_the_usual_is_that_of_the_formula():
    q, k, v = (row_of(unscaled, "scale").example.inputs[name] for name in "qkv")
    usual = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    np.testing.assert_allclose(row_of(unscaled, "scale").example.usual, usual)


def test_a_mistake_is_compared_with_what_was_meant():
    q, k, v = (row_of(strict, "causal").example.inputs[name] for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    usual = softmax(np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)) @ v
    np.testing.assert_allclose(row_of(strict, "causal").example.usual, usual)


def test_what_a_call_changes():
    example = row_of(changing, "inputs").example
    assert example.says == "the call changes q"
    np.testing.assert_array_equal(example.usual, example.inputs["q"])
    np.testing.assert_allclose(example.got * np.sqrt(2), example.usual)


def test_examples_are_made_on_request():
    assert all(row.example is None for row in identify(unscaled).rows)
    sheet = sheet_of(blocked)
    assert {row.kind for row in sheet.rows if row.example} == {"convention"}
    about = json.loads(json.dumps(sheet.to_dict(), allow_nan=False))
    blind = next(row for row in about["rows"] if row["setting"] == "blind")
    assert np.ravel(blind["example"]["usual"]).tolist() == ["nan"]
    assert "for example, the output is 1, not nan" in str(sheet)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([[True]]), "[[True]]"), (np.eye(3), "eye(3)"),
        (np.array([-0.5, 1e5]), "[-0.5, 100000]"),
        (np.zeros((1, 0)), "empty, with shape (1, 0)"), (2, "2"), (np.full(1, np.nan), "[nan]"),
        (np.arange(200.0), "[0, 1, ..., 198, 199]"), ([np.ones(1), np.zeros(1)], "[[1], [0]]"),
    ],
)  # fmt: skip
def test_arrays_are_short_lines(value, text):
    assert show(value) == text
