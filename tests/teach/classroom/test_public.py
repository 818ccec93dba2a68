"""public_check: shapes and one example, in the student's conventions, and no more."""

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import public_check
from mha_numpy.teach.classroom.public import public_stages


def merge(heads):
    B, H, T, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * d)


def merge_in_reverse(heads):
    return merge(heads[:, ::-1])


def merge_in_turn(heads):
    return heads.transpose(0, 2, 3, 1).reshape(len(heads), heads.shape[2], -1)


ALTERNATE = ["heads alternate"]


@pytest.mark.parametrize(
    ("function", "conventions", "is_right"),
    [(merge, [], True), (merge, ALTERNATE, False), (merge_in_turn, ALTERNATE, True)],
)
def test_the_example_follows_the_conventions(function, conventions, is_right):
    stages = public_stages("merge-heads", function, conventions)
    assert [stage.name for stage in stages] == [
        "runs", "type and dtype", "shape", "inputs left alone", "example",
    ]  # fmt: skip
    assert all(stage.passed for stage in stages[:-1])
    assert stages[-1].passed is is_right


def test_a_mistake_is_not_named(capsys):
    public_check("merge-heads", merge_in_reverse)
    told = capsys.readouterr().out
    assert "merge-heads, public checks: not right" in told
    assert "last to first" not in told


@pytest.mark.parametrize("answer", [None, np.zeros((2, 2))])
def test_what_is_not_written_or_has_another_shape(answer):
    stages = public_stages("merge-heads", lambda heads: answer)
    assert not stages[-1].passed
    assert any(stage.passed is False for stage in stages)


def test_an_error_is_explained(capsys):
    def mine(heads):
        B, H, T, d = heads.shape
        return heads.reshape(B, T, H * d / 1)

    public_check("merge-heads", mine)
    told = capsys.readouterr().out
    assert "likely cause: `/` gives a float" in told
    assert "use `//` in `return heads.reshape(B, T, H * d / 1)`" in told


def test_wrong_use():
    with pytest.raises(ConfigError, match="function: expected a function; got 3"):
        public_check("scores", 3)
    with pytest.raises(ConfigError, match="conventions: expected the names"):
        public_check("scores", merge, ["x"])
