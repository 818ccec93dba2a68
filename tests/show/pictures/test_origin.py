"""The origin film, read back: every cell's colour, shade and number, and the measured sentences."""

import numpy as np
import pytest

from mha_numpy.core import attention_forward, merge_heads, split_heads
from mha_numpy.show.pictures import origin_film
from mha_numpy.show.pictures.origin import PALEST
from tests.show.pictures.helpers import grid_of, ramp, texts_in, tokens_in, two_splits, words_in


def numbers_of(panel):
    return texts_in(panel, "n")


def marks_of(panel):
    return [text for text in texts_in(panel, "sh") if text[0] in "bt"]


def blocks_in(panel):
    return [text for text in texts_in(panel, "sh") if text[0] == "["]


def sentence_of(film, i):
    return " ".join(texts_in(film.panels[i], "i"))


def check(panel, heads, tokens, T):
    """Compare the cells of a panel with (rows, columns) of heads and tokens."""
    cells = grid_of(panel)
    assert cells["token"].tolist() == [[f"fill-{h}" for h in row] for row in heads]
    strength = PALEST + (1 - PALEST) * np.array(tokens) / (T - 1)
    np.testing.assert_allclose(cells["share"], strength, atol=1 / 16)


@pytest.mark.parametrize("shape", [(1, 4, 8), (4, 8)])
def test_the_ramp_shows_heads_across_and_tokens_down(shape):
    (panel,) = origin_film({"x": ramp(*shape)}, 2).panels
    check(panel, [[0] * 4 + [1] * 4] * 4, [[t] * 8 for t in range(4)], 4)
    assert numbers_of(panel) == [str(n) for n in range(32)]
    assert marks_of(panel) == [f"t{t} h0-1" for t in range(4)]


def test_a_right_split_has_one_colour_in_each_block_and_a_wrong_one_has_many():
    film = origin_film(two_splits(), 2)
    assert [panel.title for panel in film.panels] == ["x", "right", "wrong"]
    _, right, wrong = film.panels
    check(right, *np.repeat([[[h], [t]] for h in range(2) for t in range(4)], 4, 2)
          .transpose(1, 0, 2).tolist(), 4)  # fmt: skip
    # row r of block i is piece 4 * i + r
    check(wrong, [[n % 2] * 4 for n in range(8)], [[n // 2] * 4 for n in range(8)], 4)
    assert marks_of(right) == [f"t{t} h{h}" for h in range(2) for t in range(4)]
    assert marks_of(wrong) == [f"t{t} h{h}" for t in range(4) for h in range(2)]
    assert blocks_in(wrong) == ["[0, 0]", "[0, 1]"]


def test_a_number_is_in_its_own_cell():
    panel = origin_film(two_splits(2), 2).panels[2]
    numbers = [word for word in words_in(panel) if "n" in word.kinds]
    assert [word.text for word in numbers] == [str(n) for n in range(64)]
    places = {(word.x, word.y) for word in numbers}
    assert len(places) == 64
    cells = grid_of(panel)
    assert cells["token"].size == 64
    assert tokens_in(panel) == ["fill-0", "fill-1"]


x = ramp(1, 4, 8)
x2 = ramp(2, 4, 8)
heads = x.reshape(1, 4, 2, 4).transpose(0, 2, 1, 3)
SENTENCES = [
    (x, x, "each row: both heads, one token"),
    (x, heads, "each block: one head, all 4 tokens; each row: one head, one token"),
    (x, heads.swapaxes(2, 3),
     "each block: one head, all 4 tokens; each row: one head, all 4 tokens"),
    (x, heads.reshape(1, 2, 2, 8),
     "each block: one head, all 4 tokens; each row: one head, 2 of 4 tokens"),
    (x, heads[:, :, 1:3], "each block: one head, 2 of 4 tokens; each row: one head, one token"),
    (x, heads[:, :1], "each row: one head, one token"),
    (x, x.reshape(1, 2, 4, 4),
     "each block: both heads, 2 of 4 tokens; each row: one head, one token"),
    (x, x.reshape(1, 4, 4, 2).transpose(0, 3, 1, 2),
     "each block: both heads, all 4 tokens; each row: both heads, one token"),
    (x, x.reshape(1, 4, 2, 4), "each block: both heads, one token; each row: one head, one token"),
    (x, heads.reshape(1, 4, 8), "each row: one head, 2 of 4 tokens"),
    (x, x.reshape(1, 8, 4), "each row: one head, one token"),
    (x, x.ravel()[4:28].reshape(3, 8), "each row: both heads, 2 of 4 tokens"),
    (x, x.ravel()[:30].reshape(3, 10), "each row: both heads, 2 of 4 tokens"),
    (x, x.ravel()[:20].reshape(2, 10), "each row: both heads, 2 of 4 tokens"),
    (x, np.array([[0, 1, 2], [3, 4, 8]]), "each row: 1 to 2 of 2 heads, 1 to 2 of 4 tokens"),
    (x, x[0].T, "each row: one head, all 4 tokens"),
    (x2, x2, "each block: both heads, all 4 tokens, one sequence; "
     "each row: both heads, one token, one sequence"),
    (x2, x2.reshape(4, 2, 8).swapaxes(0, 1),
     "each block: both heads, 2 of 4 tokens, both sequences; "
     "each row: both heads, one token, one sequence"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "array", "sentence"),
    [
        pytest.param(*each, marks=pytest.mark.slow if n % 3 else ())
        for n, each in enumerate(SENTENCES)
    ],
)
def test_the_sentence_says_what_was_measured(first, array, sentence):
    film = origin_film({"x": first, "a": array}, 2)
    assert sentence_of(film, 1) == sentence
    assert film.alt.endswith(f"; a {array.shape}: {sentence}.")


def test_many_heads_in_one_token_are_a_mix():
    x = ramp(1, 4, 32)
    film = origin_film({"x": x, "wrong": x.reshape(1, 8, 4, 4)}, 8)
    expected = "each block: 4 of 8 heads, one token; each row: one head, one token"
    assert sentence_of(film, 1) == expected


def test_attention_of_each_token_to_itself_keeps_the_ramp():
    x = ramp(2, 4, 8).astype(float)
    q = split_heads(x, 2)
    scores = np.where(np.eye(4, dtype=bool), 0, -np.inf)
    heads, _ = attention_forward(q, q, q, mask=np.isfinite(scores))
    off = heads + 4e-10
    film = origin_film({"x": x, "q": q, "heads": off, "merged": merge_heads(off)}, 2)
    assert sentence_of(film, 2) == sentence_of(film, 1)
    assert sentence_of(film, 3) == sentence_of(film, 0)
    assert numbers_of(film.panels[2]) == numbers_of(film.panels[1])


def test_blocks_of_the_outer_axis_begin_new_lines():
    panel = origin_film(two_splits(2, 2, 44, 11), 11).panels[1]
    lines = {}
    for word in words_in(panel):
        if word.text[0] == "[":
            lines.setdefault(word.y, []).append(word.text)
    assert [label for line in lines.values() for label in line] == [
        f"[{b}, {h}]" for b in range(2) for h in range(11)
    ]
    assert all(len({label[:3] for label in line}) == 1 for line in lines.values())


def test_the_notes_say_how_to_read_it():
    notes = " ".join(origin_film(two_splits(2), 2).notes)
    assert "from pale (0) to strong (3)" in notes
    assert "its cells came from: b for sequence, t for token, h for head" in notes
