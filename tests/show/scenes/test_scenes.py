"""The story of a trace: what is on stage in each scene, and what is said about it."""

import re
from itertools import product

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_forward
from mha_numpy.errors import MhaError
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.scenes import still, story_of
from mha_numpy.show.scenes.still import Cell
from mha_numpy.show.scenes.story import percent, signed, written
from mha_numpy.show.walk import walk
from tests.show.scenes.stories import told
from tests.sweeps import sweep

MINUS = "\N{MINUS SIGN}"
ALL = ["words", "roles", "scores", "weights", "mix", "join"]


@pytest.fixture(scope="module")
def seen():
    return walk()


@pytest.fixture(scope="module")
def story(seen):
    return told(seen)


def stills(story):
    """Yield stills of a story: every scene and head, and the words at its ends and its opening."""
    words = {0, story.opens[0], len(story.tokens) - 1}
    ways = product(story.scenes, words, range(story.num_heads), *[(False, True)] * 2)
    for scene, word, head, everything, back in ways:
        yield still(story, scene.id, word=word, head=head, everything=everything, back=back)


OTHERS = {  # the large ones last
    "cross": {"text": "to be", "cross": "sein oder nicht sein", "heads": 2, "dim": 8},
    "causal": {"text": "to be or not", "causal": True, "heads": 2, "dim": 8},
    "grouped": {"text": "to be or not", "heads": 4, "kv_heads": 2, "dim": 8},
    "one word": {"text": "be", "heads": 1, "dim": 4},
    "own sentence": {"text": "to be or not to be", "heads": 4, "dim": 16},
    "twelve heads": {"text": "to be or", "heads": 12, "dim": 24},
    "long": {"text": " ".join(["word"] * 32), "heads": 2, "dim": 8},
}


@pytest.fixture(scope="module", params=sweep(["example", *OTHERS], 5))
def any_story(request, story):
    """Return a story and all its stills."""
    if request.param != "example":
        options = dict(OTHERS[request.param])
        story = told(walk(options.pop("text"), **options))
    return story, list(stills(story))


def test_every_cell_is_the_number_of_the_trace_and_its_slope_is_that_of_L(any_story):
    story, found = any_story
    by_name = {step.name: step.array for step in story.steps.values()}
    for each in found:
        assert each.title
        for table in each.tables:
            for line in table.rows:
                assert line.is_rule or len(line.cells) == len(table.columns)
                for cell in line.cells:
                    if not isinstance(cell, Cell):
                        continue
                    assert cell.value == by_name[cell.array][cell.index]
                    assert 0 <= cell.level <= 1
                    if cell.slope is not None:
                        part = next(p for p, s in story.steps.items() if s.name == cell.array)
                        at = cell.index
                        assert cell.slope == story.steps[f"d_{part}"].array[at]


def test_sentences_are_short_and_whole(any_story):
    for each in any_story[1]:
        assert not set("{}*`") & set(each.text), each.text
        assert each.text.endswith((".", "?"))
        assert "  " not in each.text
        assert 5 <= len(each.text.split()) <= 75, each.text


def test_the_asker_and_the_wish_open_the_story(story):
    assert [scene.id for scene in story.scenes] == ALL
    assert still(story, "weights").text.startswith(
        "It has 100% of its attention to give, and the scores share it out: cat 78%, fish 17%."
    )
    back = still(story, "scores", back=True).text
    assert back.startswith("The slopes that matter are cat +0.308, fish " + MINUS + "0.278.")
    assert ("word", "cat") in still(story, "scores").sentence
    assert ("number", "4.5") in still(story, "scores").sentence


def test_where_the_wish_does_not_reach_the_sentence_says_why(story):
    def says(scene, word, head):
        return still(story, scene, word=story.tokens.index(word), head=head, back=True).text

    for scene in ALL[1:5]:
        assert "Nothing from head 1 reaches" in says(scene, "It", 1)
    assert "What ate asks for or receives makes no difference" in says("weights", "ate", 0)
    assert "the goal is about It only" in says("join", "cat", 0)
    assert "It looks at cat" in says("roles", "cat", 0)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 2, 3, 4)])
def test_a_story_without_x_and_out_begins_at_the_roles_and_ends_at_the_mix(shape):
    x = np.random.default_rng(0).normal(size=shape)
    with trace() as t:
        attention_forward(x, x, x)
    story = story_of(t, sequence=len(shape) - 3 if len(shape) > 2 else 0)
    assert [scene.id for scene in story.scenes] == ALL[1:5]
    for scene in story.scenes:
        for each in (False, True):
            assert still(story, scene.id, everything=each).tables
    with pytest.raises(MhaError, match="back: expected"):
        still(story, "mix", back=True)


def test_a_trace_of_two_layers_or_of_a_part_has_no_story():
    layer = MultiHeadAttention(4, 2, rng=0)
    with trace() as t:
        layer(layer(np.ones((1, 3, 4))))
    assert story_of(t) is None
    with trace() as t:
        pass
    assert story_of(t) is None


def test_what_is_no_scene_or_word_is_refused(story):
    for wrong in ({"scene": "x"}, {"scene": "mix", "word": 6}, {"scene": "mix", "head": 2}):
        with pytest.raises(MhaError):
            still(story, **wrong)


def test_a_share_or_score_of_each_word_is_named_with_all_that_equal_it(story):
    """Where words are equal, none is called the most: all of them are named, or none."""
    for at, head, back in product(range(6), range(2), (False, True)):
        shares = story.matrix("weights", head)[at]
        for scene in story.scenes:
            each = still(story, scene.id, word=at, head=head, back=back)
            pieces = [*zip(each.sentence, each.sentence[1:], each.sentence[2:], strict=False)]
            if back:  # a slope that is named is not zero
                assert ("text", "nothing") not in each.sentence
                assert all(re.search("[1-9]", number) for _, (_, between), (kind, number) in pieces
                           if between in (" ", " (") and kind == "number"), each.text  # fmt: skip
            assert not re.search(rf"{MINUS}0(?![.\d]*[1-9])|[+]0[.0]*(?![.\d])", each.text), (
                each.text
            )
            if back or scene.id not in ("scores", "weights", "mix"):
                continue
            named = [
                story.tokens.index(word)
                for (kind, word), (_, between), (last, _) in pieces
                if (kind, between, last) == ("word", " ", "number")
            ]
            assert named
            least = shares[named].min()
            assert sorted(named) == np.flatnonzero(shares > least - 1e-9).tolist(), each.text


def test_words_that_are_all_equal_are_counted():
    x = np.ones((1, 4, 2))
    with trace() as t:
        attention_forward(x[:, :1], x, x)
    said = still(story_of(t, source_tokens=list("abcd")), "weights").text
    assert "the scores share it out: 4 words, 25% each." in said
    with trace() as t:
        attention_forward(x, x, x, is_causal=True)
    told = story_of(t, tokens=list("abcd"))
    assert (
        "There is only one word that a can look at: a 100%." in still(told, "weights", word=0).text
    )
    assert "(3 words, 33% each)" in still(told, "mix", word=2).text


def test_a_head_that_is_switched_off_has_not_looked():
    x = np.random.default_rng(0).normal(size=(1, 3, 4))
    with trace() as t:
        MultiHeadAttention(4, 2, rng=0)(x, head_gate=np.array([1.0, 0.0]))
    story = story_of(t)
    assert [still(story, "join", head=head).text[:31] for head in (0, 1)] == [
        "Put the rows side by side, mult", "Meanwhile, head 0 has been look",
    ]  # fmt: skip
    assert "While head 1 is off, nothing from it gets through" in still(story, "join").text


def test_numbers_are_written_as_pages_write_them():
    assert [written(v) for v in (0, -0.7, 4.5, 0.125, 1e-9, 11.2, 12, -0.333)] == [
        "0", MINUS + "0.7", "4.5", "0.13", "0.00", "11.2", "12", MINUS + "0.33",
    ]  # fmt: skip
    assert [signed(v) for v in (1, -0.4172, 0.0308)] == ["+1", MINUS + "0.417", "+0.031"]
    assert [signed(v) for v in (0.0, 1e-4, -1e-4, -1e-9)] == ["0", "0.000", "0.000", "0"]
    assert [written(v) for v in (-0.0, -0.004)] == ["0", "0.00"]
    assert percent(0.7766) == "78%"
