"""The walk's page: what is on record for it to play with, and the file."""

import re

import numpy as np
import pytest

from mha_numpy import cli
from mha_numpy.cli import commands
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.example import FEATURES, TOKENS, example_setting
from mha_numpy.show.walk.page import page_of, record
from tests.compare import assert_close
from tests.show.pictures.helpers import data_of
from tests.sweeps import sweep

MODELS = {
    "reverse": "3 1 4 1 5 9 2 6 5 3 5 8", "induction": "a b c d a b c",
    "numbers": "three hundred forty-two", "text": "The sea ",
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"cross": "another one", "kv_heads": 1}])
def test_what_is_added_changes_no_number(options):
    seen = walk("one two three", heads=2, dim=4, **options)
    t = record(seen)
    for step in seen.trace:
        name = re.sub("heads(?=_by_token)", "gated", step.name)
        assert_close(t[name], step.array, "float32", name=name)


def test_heads_and_causality_can_be_played_with():
    data = data_of(page_of(walk("one two three", heads=2, dim=4)))
    assert data["options"] == {
        "causal": {"mask": "mask"}, "scale": "scale", "heads": "head_gate"
    }  # fmt: skip
    assert "cut-first" in [switch["id"] for switch in data["switches"]]
    assert data["tokens"] == ["one", "two", "three"]
    assert data["note"].startswith("Random params: nothing here is trained. For numbers that you")
    trained = data_of(page_of(walk(MODELS["reverse"], model="reverse")))
    assert "For numbers" not in trained["note"]
    types = {a["name"]: a["numbers"]["type"] for a in data["arrays"] if "numbers" in a}
    del types["scale"]
    assert set(types.values()) == {"float32", "uint8"}


@pytest.mark.parametrize("model", sweep(MODELS, 1))
def test_trained_models_have_a_page(model):
    data = data_of(page_of(walk(MODELS[model], model=model)))
    assert data["note"].startswith(f"Trained (mha-numpy train {model}")
    assert data["note"].endswith("The upstream gradient is random.")
    assert {"causal", "scale", "heads"} <= data["options"].keys()
    assert all(a["equation"] == "" or "tree" in a for a in data["arrays"])


@pytest.fixture(scope="module")
def seen():
    return walk()


class TestExample:
    def test_heads_look_where_they_were_set_to(self, seen):
        by_meaning, word_before = seen.weights[0].argmax(axis=-1)
        whom = dict(zip(TOKENS, by_meaning, strict=True))
        looked_at = {token: TOKENS[j] for token, j in whom.items()}
        assert looked_at["It"] == looked_at["ate"] == "cat"
        assert looked_at["cat"] == looked_at["fish"] == "ate"
        assert np.isclose(*seen.weights[0, 0, 5, [1, 3]])  # "purred" finds both things
        assert word_before.tolist() == [0, 0, 1, 2, 3, 4]

    def test_each_number_has_at_most_one_decimal(self):
        setting = example_setting()
        for array in (*setting.inputs.values(), *setting.layer.params.values(), setting.d_out):
            assert_close(array, array.round(1), "exact")

    def test_the_loss_is_about_one_token(self, seen):
        assert np.flatnonzero(np.abs(seen.d_out[0]).sum(axis=-1)).tolist() == [TOKENS.index("It")]
        data = data_of(page_of(seen))
        assert data["features"] == FEATURES
        assert "not trained" in data["note"]


class TestTheCommand:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch, capsys):
        """A function that runs the program in an empty folder and returns what it printed."""
        monkeypatch.chdir(tmp_path)

        def run(*arguments):
            code = cli.main(["walk", *arguments])
            return code, "".join(capsys.readouterr())

        return run

    def test_a_page_is_written_and_it_says_so(self, run, tmp_path):
        code, printed = run("a b", "--dim", "4", "--html", "my.html")
        assert code == 0
        assert "wrote my.html: open it in a browser\ntry: change any number\n" in printed
        assert (tmp_path / "my.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    @pytest.mark.parametrize("found", [True, False])
    def test_it_is_opened(self, run, tmp_path, monkeypatch, found):
        opened = []
        monkeypatch.setattr(commands.webbrowser, "open", lambda url: opened.append(url) or found)
        _, printed = run("--open")
        assert opened == [(tmp_path / "page.html").as_uri()]
        said = "it is open in the browser" if found else "open it in a browser"
        assert f"wrote page.html: {said}\ntry: make the fish alive" in printed

    def test_a_file_of_somebody_else_stays(self, run, tmp_path):
        (tmp_path / "mine.html").write_text("mine")
        code, printed = run("a b", "--dim", "4", "--html", "mine.html")
        assert code == 2
        assert "mine.html exists and is not such a page; --force overwrites it" in printed
        assert (tmp_path / "mine.html").read_text() == "mine"
        for arguments in (["--force"], []):  # then it is a page of ours
            assert run("a b", "--dim", "4", "--html", "mine.html", *arguments)[0] == 0

    def test_where_no_page_can_be(self, run):
        assert "html: cannot write no/x.html" in run("a", "--dim", "4", "--html", "no/x.html")[1]
        code, printed = run("a " * 33, "--dim", "4", "--html", "x.html")
        assert (code, "html: expected T_q <= 32; got T_q=33 (x_q): take fewer" in printed) == (
            2,
            True,
        )
