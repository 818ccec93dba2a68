"""Arrays side by side, read back: cells, numbers, hatches, labels."""

import numpy as np
import pytest

from mha_numpy.core import causal_mask, padding_mask, window_mask
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures import matrices
from mha_numpy.show.pictures.labels import MINUS
from mha_numpy.show.pictures.svg import DESK, PHONE
from tests.show.pictures.helpers import grid_of, root_of, texts_in, tokens_in, words_in

WORDS = ["The", "animal", "didn't", "cross", "the", "street"]
NAN, INF = np.nan, np.inf
STEP = 1 / 16  # strengths are drawn in so many


def panels_of(picture):
    return {panel.title: panel for panel in picture.panels}


def numbers_of(picture, name="x"):
    """Return what the cells of an array say, where there is room for it."""
    at = [panel.title for panel in picture.panels].index(name)
    return texts_in(picture.wide[at] or picture.panels[at], "n")


# numbers


def test_what_is_filled_and_what_is_a_ring_tell_sign_and_size():
    x = np.array([[-2.0, -1, 0], [1, 2, 0.5]])
    panel = panels_of(matrices({"x": x}))["x"]
    cells = grid_of(panel)
    assert cells["kind"].tolist() == [["less", "less", ""], ["more", "more", "more"]]
    np.testing.assert_allclose(cells["share"], x / 2, atol=STEP)
    assert set(tokens_in(panel)) == {"fill-x", "plain"}


def test_arrays_share_a_scale_or_have_their_own():
    arrays = {"small": np.array([1.0, 0.5]), "large": np.array([[4.0], [2.0]])}
    shared, own = matrices(arrays), matrices(arrays, shared=False)
    small = [grid_of(panels_of(picture)["small"])["share"][0, 0] for picture in (shared, own)]
    assert small == [0.25, 1.0]
    assert texts_in(panels_of(own)["large"], "sh") == ["(2, 1)", "largest |x| 4"]
    assert texts_in(panels_of(shared)["small"], "sh") == ["(2,)"]
    assert shared.notes == []
    assert "The strongest colour stands for 8." in matrices({"x": np.full((20, 2), -8.0)}).notes
    assert "Rings mark negative numbers." in matrices({"x": np.full((20, 2), -8.0)}).notes
    assert matrices({"x": [-8.0]}).notes == []  # its minus is written


def test_columns_have_the_colours_of_their_heads():
    arrays = {"both": np.ones((2, 6)), "one": -np.ones((2, 3)), "none": np.ones((2, 3))}
    panels = panels_of(matrices(arrays, heads=[[0, 2], [2], []]))
    assert set(tokens_in(panels["both"])) == {"fill-0", "fill-2"}
    assert grid_of(panels["both"])["token"].tolist() == [["fill-0"] * 3 + ["fill-2"] * 3] * 2
    assert set(tokens_in(panels["one"])) == {"head-2"}  # a ring
    assert set(tokens_in(panels["none"])) == {"fill-x"}
    for wrong in ([[0, 1]], [[0, 1], [0, 1], []]):  # two arrays have none; 3 columns, 2 heads
        with pytest.raises(ConfigError, match="heads: expected equal blocks of columns"):
            matrices(arrays, heads=wrong)


def test_one_row_and_many():
    p = np.array([0.7, 0.2, 0.1])
    picture = matrices({"p": p, "jacobian": np.diag(p) - np.outer(p, p)})
    assert numbers_of(picture, "p") == [".7", ".2", ".1"]
    assert numbers_of(picture, "jacobian") == [
        ".21", "-.14", "-.07", "-.14", ".16", "-.02", "-.07", "-.02", ".09",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-1.0, 0.0, 3.0], ["-1", "0", "3"]),
        ([12345, -7], ["12345", "-7"]),
        ([0.125, -0.0004], [".125", "-.000"]),
        ([0.25, 0.5], [".25", ".50"]),
        ([-1.234, 5.0], ["-1.23", "5.00"]),
        ([-12.34, 5.5], ["-12.3", "5.5"]),
        ([123.4, -0.2], ["123", f"{-0.0:.0f}"]),
        ([1.94e-15, -4e-16, 0.0], ["1.9e-15", "-4.0e-16", "0"]),
        ([1e300, 2.5, -4e7], ["1.0e300", "2.5", "-4.0e7"]),
        ([NAN, INF, -INF, 2.0], ["2"]),
    ],
)
def test_numbers_in_cells_are_short(values, expected):
    assert numbers_of(matrices({"x": np.array(values)})) == expected


def test_minus_is_a_minus_that_can_be_seen():
    (word,) = (
        word for word in words_in(matrices({"x": [[-1.0]]}).panels[0]) if word.text[1:] == "1"
    )
    assert word.text == f"{MINUS}1"


@pytest.mark.parametrize(("n", "has_numbers"), [(12, True), (13, False)])
def test_up_to_twelve_have_numbers(n, has_numbers):
    picture = matrices({"x": np.ones((n, 2))})
    assert bool(numbers_of(picture)) == has_numbers
    places = [text for text in texts_in(picture.panels[0], "s") if text.isdigit()]
    assert places == ([] if has_numbers else ["0", "2", "4", "6", "8", "10", "12"])


@pytest.mark.parametrize(("columns", "on_a_phone"), [(6, True), (12, False)])
def test_numbers_that_need_more_room_than_a_phone_have_a_second_drawing(columns, on_a_phone):
    (narrow,), (wide,) = (
        (picture := matrices({"x": np.full((3, columns), 0.25)})).panels, picture.wide
    )  # fmt: skip
    assert bool(texts_in(narrow, "n")) == on_a_phone == (wide is None)
    assert narrow.size[0] <= PHONE
    if wide:
        assert texts_in(wide, "n") == [".25"] * 36
        assert PHONE < wide.size[0] <= DESK
        html = matrices({"x": np.full((3, columns), 0.25)})._repr_html_()
        assert '<source media="(min-width: 45rem)"' in html


def test_long_axes_are_counted_and_large_arrays_are_images():
    (panel,) = matrices({"x": np.ones((512, 64))}).panels
    assert texts_in(panel, "s")[-8:] == [str(64 * i) for i in range(8)]
    (image,) = (e for e in root_of(panel).iter() if e.tag.endswith("image"))
    assert image.attrib["href"].startswith("data:image/png;base64,")
    noise = np.random.default_rng(0).normal(size=(512, 512))
    assert len(matrices({"x": noise}).svg()) < 1_000_000
    assert len(matrices({"x": np.eye(512)}).svg()) < 20_000


# masks, hidden and broken cells


@pytest.mark.parametrize(
    "mask",
    [causal_mask(6), window_mask(6, window=(1, 1)), padding_mask(np.array([5]), 7)[0, 0],
     np.array([True, False]), np.ones((2, 2), bool), np.zeros((1, 1), bool),
     np.random.default_rng(1).random((30, 30)) < 0.5],
)  # fmt: skip
def test_masks_are_filled_or_hatched(mask):
    picture = matrices({"mask": mask})
    cells, rows = grid_of(picture.panels[0]), np.atleast_2d(mask)
    np.testing.assert_array_equal(cells["kind"] == "hidden", ~rows)
    np.testing.assert_array_equal(cells["kind"] == "more", rows)
    assert ("Filled (True): may attend." in picture.notes) == mask.any()
    assert ("Hatched (False): hidden." in picture.notes) == (not mask.all())
    assert not numbers_of(picture, "mask")


def test_hidden_and_broken_numbers_are_hatched_and_set_no_scale():
    x = np.array([[1.0, -INF, NAN], [INF, -3, -INF]])
    picture = matrices({"x": x, "mask": causal_mask(2), "nan": np.full(2, NAN)})
    cells = grid_of(panels_of(picture)["x"])
    np.testing.assert_array_equal(cells["kind"] == "hidden", x == -INF)
    np.testing.assert_array_equal(cells["kind"] == "broken", np.isnan(x) | (x == INF))
    assert cells["share"][1, 1] == pytest.approx(-1)
    assert {"Hatched (False or -inf): hidden.", "Cross-hatched: NaN or +inf."} <= {*picture.notes}
    assert (grid_of(panels_of(picture)["nan"])["kind"] == "broken").all()
    assert numbers_of(picture) == ["1", "-3"]


# labels


def test_labels_are_at_rows_and_columns():
    arrays = {"causal": causal_mask(6), "padding": np.ones((1, 6), bool), "one": np.ones(6)}
    picture = matrices(arrays, row_labels=WORDS, column_labels=WORDS)
    for name, panel in panels_of(picture).items():
        assert texts_in(panel, "w") == WORDS * (1 + (name == "causal"))


def test_where_not_all_labels_fit_some_are_left_out():
    labels = [f"token {i}" for i in range(40)]
    (panel,) = matrices({"x": np.eye(40)}, row_labels=labels).panels
    shown = texts_in(panel, "w")
    assert shown == labels[::3]


def test_column_labels_are_turned_where_they_do_not_fit():
    for labels, is_turned in ((["a", "b"], False), (["a long one", "b"], True)):
        (panel,) = matrices({"x": np.eye(2)}, column_labels=labels).panels
        assert {word.is_turned for word in words_in(panel) if "w" in word.kinds} == {is_turned}


def test_an_empty_array_says_so():
    picture = matrices({"a": np.ones((0, 3)), "m": np.ones((2, 0), bool)})
    assert texts_in(panels_of(picture)["a"], "sh") == ["(0, 3)", "no cells"]
    assert picture.alt == "2 arrays: a (0, 3), no cells; m (2, 0), no cells."


def test_a_title_of_several_lines_becomes_one():
    picture = matrices({"a": np.eye(2)}, title="one\n\ttwo ", meaning=("a\nb", "c"))
    assert picture.alt.startswith("one two. 1 array")
    assert picture.title == "one two"


def test_bools_that_are_no_mask_say_what_they_mean():
    arrays = {"reacts": np.eye(3, dtype=bool), "x": np.array([[1.0, -INF]])}
    picture = matrices(arrays, meaning=("reacts", "stays"))
    assert picture.notes == [
        "Filled (True): reacts.", "Hatched (False): stays.", "Hatched (-inf): hidden.",
    ]  # fmt: skip
    assert "reacts (3, 3), 3 of 9 cells: reacts" in picture.alt
    assert "Hatched (False or -inf): hidden." in matrices(arrays).notes


def test_matrices_in_words():
    arrays = {"p": np.array([0.7, -0.25]), "mask": causal_mask(3), "n": np.full((1, 2), NAN)}
    arrays["s"] = np.array([[1.0, -INF], [NAN, 1234.5]])
    assert matrices(arrays, title="Scores").alt == (
        "Scores. 4 arrays: p (2,), -0.25 to 0.7; mask (3, 3), 6 of 9 cells: may attend; "
        "n (1, 2), no finite number, 2 NaN or +inf; s (2, 2), 1 to 1,234, 1 hidden, 1 NaN or +inf."
    )


def test_every_row_has_its_word_where_columns_are_narrow():
    words = ["two", "hundred", "forty", "five"]
    for drawing in (p := matrices({"keys": np.ones((4, 16))}, row_labels=words)).panels + p.wide:
        assert texts_in(drawing, "w") == words
        heights = [word.y for word in words_in(drawing) if "w" in word.kinds]
        assert np.diff(heights).min() >= 18


LONG_WORDS = ["property to its owner", "by the market place"]


def test_long_words_of_rows_are_whole_where_there_is_room():
    (narrow,), (wide,) = (
        (p := matrices({"a": np.ones((2, 3))}, row_labels=LONG_WORDS)).panels,
        p.wide,
    )
    assert texts_in(wide, "w") == LONG_WORDS
    assert all(text.endswith("…") for text in texts_in(narrow, "w"))
