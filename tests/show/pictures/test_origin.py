"""The origin film, read back: every cell's colour, shade and number, and the measured sentences."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from mha_numpy.core import attention_forward, merge_heads, split_heads
from mha_numpy.show.pictures import fade, head_color, origin_film
from mha_numpy.show.pictures.origin import PALEST
from tests.show.pictures.helpers import ramp, texts_of, two_splits


def labelled(panel, label):
    return [text.get_text() for text in panel.texts if text.get_label() == label]


def sentence_of(film, i):
    return " ".join(labelled(film.axes[i], "sentence"))


def blocks_of(panel):
    """Return the face colours of each block's cells, (rows, columns), as they lie on the page."""
    blocks = []
    for squares in panel.collections:
        corners = np.array([path.vertices.min(axis=0) for path in squares.get_paths()]).round(4)
        xs, ys = (np.unique(corners[:, i]) for i in (0, 1))
        colors = np.empty((len(ys), len(xs)), object)
        for (x, y), face in zip(corners, squares.get_facecolors(), strict=True):
            colors[np.searchsorted(ys, y), np.searchsorted(xs, x)] = to_hex(face)
        blocks.append(colors)
    return blocks


def color(head, token, T):
    return to_hex(fade(head_color(head))(PALEST + (1 - PALEST) * token / (T - 1)))


@pytest.mark.parametrize("shape", [(1, 4, 8), (4, 8)])
def test_the_ramp_shows_heads_across_and_tokens_down(shape):
    (panel,) = origin_film({"x": ramp(*shape)}, 2).axes
    (cells,) = blocks_of(panel)
    assert cells.tolist() == [[color(c // 4, t, 4) for c in range(8)] for t in range(4)]
    assert labelled(panel, "number") == [str(n) for n in range(32)]
    assert labelled(panel, "mark") == [f"t{t} h0-1" for t in range(4)]


def test_a_right_split_has_one_colour_in_each_block_and_a_wrong_one_has_many():
    film = origin_film(two_splits(), 2)
    assert [panel.get_label() for panel in film.axes] == ["x", "right", "wrong"]
    for h, cells in enumerate(blocks_of(film.axes[1])):
        assert cells.tolist() == [[color(h, t, 4)] * 4 for t in range(4)]
    for i, cells in enumerate(blocks_of(film.axes[2])):  # row r of block i is piece 4 * i + r
        pieces = [divmod(4 * i + row, 2) for row in range(4)]
        assert cells.tolist() == [[color(h, t, 4)] * 4 for t, h in pieces]
    right, wrong = (labelled(film.axes[i], "mark") for i in (1, 2))
    assert right == [f"t{t} h{h}" for h in range(2) for t in range(4)]
    assert wrong == [f"t{t} h{h}" for t in range(4) for h in range(2)]
    assert labelled(film.axes[2], "block") == ["[0, 0]", "[0, 1]"]


def test_a_number_stands_in_its_own_cell():
    panel = origin_film(two_splits(2), 2).axes[2]
    numbers = [text for text in panel.texts if text.get_label() == "number"]
    paths = [path for squares in panel.collections for path in squares.get_paths()]
    assert [text.get_text() for text in numbers] == [str(n) for n in range(64)]
    for text, path in zip(numbers, paths, strict=True):
        assert path.contains_point(text.get_position())


x = ramp(1, 4, 8)
x2 = ramp(2, 4, 8)
heads = x.reshape(1, 4, 2, 4).transpose(0, 2, 1, 3)
SENTENCES = [
    (x, x, "each row: one token, both heads"),
    (x, heads, "each block: one head, all 4 tokens, one in each row"),
    (x, heads[:, ::-1], "each block: one head, all 4 tokens, one in each row"),
    (x, heads[:, :, ::-1],
     "each block: one head, all 4 tokens, one in each row, in another order"),
    (x, heads.swapaxes(2, 3), "each block: one head, all 4 tokens, one in each column"),
    (x, heads.reshape(1, 2, 2, 8), "each block: one head, all 4 tokens, mixed"),
    (x, heads[:, :, 1:3], "each block: one head, 2 of 4 tokens, one in each row"),
    (x, heads[:, :1], "one head, all 4 tokens, one in each row"),
    (x, x.reshape(1, 2, 4, 4), "blocks mix heads: block [0, 0] holds tokens 0 and 1 of both heads"),
    (x, x.reshape(1, 4, 4, 2).transpose(0, 3, 1, 2),
     "blocks mix heads: block [0, 0] holds all 4 tokens of both heads"),
    (x, x.reshape(1, 4, 2, 4), "each block: one token, both heads"),
    (x, heads.reshape(1, 4, 8), "rows mix tokens: row 0 holds tokens 0 and 1 of head 0"),
    (x, x.reshape(1, 8, 4), "rows part tokens: row 0 holds token 0 of head 0"),
    (x, x.ravel()[4:28].reshape(3, 8),
     "rows mix tokens: row 0 holds tokens 0 and 1 of both heads"),
    (x, x[0].T, "each column: one token, both heads"),
    (x, x[0, 2], "each row: one token, both heads"),
    (x, x[..., [0, 2, 1, 3, 4, 5, 6, 7]], "rows part tokens: row 0 holds token 0 of both heads"),
    (x2, x2, "each row: one token, both heads"),
    (x2, x2.reshape(4, 2, 8).swapaxes(0, 1), "each row: one token, both heads"),
    (x2, x2.reshape(2, 2, 2, 8).transpose(1, 0, 2, 3).reshape(2, 8, 4),
     "blocks mix sequences: block [0] holds tokens 0 and 1 of both heads of both sequences"),
    (x2, x2.reshape(2, 4, 2, 4).swapaxes(1, 2).reshape(2, 4, 8),
     "rows mix tokens: row 0 of block [0] holds tokens 0 and 1 of head 0 of sequence 0"),

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
    assert film.get_label().endswith(f"; a {array.shape}: {sentence}.")


def test_many_heads_in_one_token_are_a_mix():
    x = ramp(1, 4, 32)
    film = origin_film({"x": x, "wrong": x.reshape(1, 8, 4, 4)}, 8)
    expected = "blocks mix heads: block [0, 0] holds token 0 of heads 0 to 3"
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
    assert labelled(film.axes[2], "number") == labelled(film.axes[1], "number")


def test_blocks_of_the_outer_axis_begin_new_lines():
    film = origin_film(two_splits(2, 2, 44, 11), 11)
    texts = [text for text in film.axes[1].texts if text.get_label() == "block"]
    lines = {}
    for text in texts:
        lines.setdefault(round(text.get_position()[1], 3), []).append(text.get_text())
    assert [label for line in lines.values() for label in line] == [
        f"[{b}, {h}]" for b in range(2) for h in range(11)
    ]
    assert [len(line) for line in lines.values()] == [6, 5, 6, 5]
    assert all(len({label[:3] for label in line}) == 1 for line in lines.values())


def test_every_head_and_the_shades_are_in_the_legend():
    words = [text.get_text() for text in texts_of(origin_film(two_splits(), 2))]
    assert {"head 0", "head 1", "token 0", "token 3"} <= set(words)
