"""Arrays side by side, read back: cells, numbers, hatches, labels; nothing overlaps."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba

from mha_numpy.core import causal_mask, padding_mask, window_mask
from mha_numpy.look import PALETTE
from mha_numpy.show.pictures import matrices
from mha_numpy.show.pictures.labels import MINUS
from mha_numpy.show.pictures.matrices import MAY_ATTEND
from tests.show.pictures.helpers import cells_of, hatched_cells, words_across, words_down, words_of

BLUE, ORANGE = (np.array(to_rgba(PALETTE[i])) for i in (0, 1))
WORDS = ["The", "animal", "didn't", "cross", "the", "street"]
NAN, INF = np.nan, np.inf


def panels_of(picture):
    return {ax.get_title(loc="left"): ax for ax in picture.axes if ax.get_label() != "scale"}


def numbers_of(ax):
    """Return the texts in the cells by row and column."""
    texts = [text for text in ax.texts if text.get_ha() == "center"]
    places = [tuple(int(n) for n in text.get_position()[::-1]) for text in texts]
    return dict(zip(places, [text.get_text().replace(MINUS, "-") for text in texts], strict=True))


def facts_of(ax):
    (facts,) = (text.get_text() for text in ax.texts if text.get_ha() == "left")
    return facts.split("\n")


def scale_of(picture):
    (scale,) = (ax for ax in picture.axes if ax.get_label() == "scale")
    return [label.get_text().replace(MINUS, "-") for label in scale.get_xticklabels()]


# numbers


def test_colours_tell_sign_and_size():
    x = np.array([[-2.0, -1, 0], [1, 2, 0.5]])
    colors = cells_of(panels_of(matrices({"x": x}))["x"])
    np.testing.assert_allclose(colors[0, 0], ORANGE, atol=0.01)
    np.testing.assert_allclose(colors[1, 1], BLUE, atol=0.01)
    np.testing.assert_array_equal(colors[0, 2], 1)
    np.testing.assert_allclose(colors[0, 1], (1 + ORANGE) / 2, atol=0.01)
    np.testing.assert_allclose(colors[1, 2], 0.75 + BLUE / 4, atol=0.01)
    assert [to_hex(color) for color in (ORANGE, BLUE)] == ["#d55e00", "#0072b2"]


def test_arrays_share_a_scale_or_have_their_own():
    arrays = {"small": np.array([1.0, 0.5]), "large": np.array([[4.0], [2.0]])}
    shared, own = matrices(arrays), matrices(arrays, shared=False)
    small = [cells_of(panels_of(picture)["small"])[0, 0] for picture in (shared, own)]
    np.testing.assert_allclose(small[0], 0.75 + BLUE / 4, atol=0.01)
    np.testing.assert_allclose(small[1], BLUE, atol=0.01)
    assert scale_of(shared) == ["0", "4"]
    assert scale_of(own) == ["0", "largest |x|"]
    assert facts_of(panels_of(own)["large"]) == ["(2, 1)", "largest |x| 4"]
    assert facts_of(panels_of(shared)["small"]) == ["(2,)"]
    assert scale_of(matrices(arrays | {"negative": [-8.0]})) == ["-8", "0", "8"]
    signed = matrices(arrays | {"negative": [-8.0]}, shared=False)
    assert scale_of(signed) == ["-largest |x|", "0", "largest |x|"]


def test_one_row_and_many():
    p = np.array([0.7, 0.2, 0.1])
    panels = panels_of(matrices({"p": p, "jacobian": np.diag(p) - np.outer(p, p)}))
    assert list(panels) == ["p", "jacobian"]
    assert list(numbers_of(panels["p"]).values()) == [".7", ".2", ".1"]
    assert numbers_of(panels["jacobian"]) == {
        (0, 0): ".21", (0, 1): "-.14", (0, 2): "-.07", (1, 0): "-.14", (1, 1): ".16",
        (1, 2): "-.02", (2, 0): "-.07", (2, 1): "-.02", (2, 2): ".09",
    }  # fmt: skip
    assert facts_of(panels["p"]) == ["(3,)"]
    assert panels["p"].get_position().y1 == panels["jacobian"].get_position().y1
    for ax in panels.values():
        assert ax._left_title.get_fontfamily() == ["monospace"]


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
    ax = panels_of(matrices({"x": np.array(values)}))["x"]
    assert list(numbers_of(ax).values()) == expected


def test_minus_is_a_minus_that_can_be_seen():
    (text,) = (t for t in panels_of(matrices({"x": [[-1.0]]}))["x"].texts if t.get_ha() == "center")
    assert text.get_text() == f"{MINUS}1"


@pytest.mark.parametrize(("n", "has_numbers"), [(12, True), (13, False)])
def test_up_to_twelve_have_numbers(n, has_numbers):
    ax = panels_of(matrices({"x": np.ones((n, 2))}))["x"]
    assert bool(numbers_of(ax)) == has_numbers
    places = words_down(ax)
    assert places == ([] if has_numbers else ["0", "2", "4", "6", "8", "10", "12"])


def test_long_axes_are_counted():
    ax = panels_of(matrices({"x": np.ones((512, 64))}))["x"]
    assert words_down(ax) == [str(64 * i) for i in range(8)]
    np.testing.assert_array_equal(ax.get_xticks(), 8 * np.arange(8) + 0.5)
    assert cells_of(ax).shape == (512, 64, 4)


# masks, hidden and broken cells


@pytest.mark.parametrize(
    "mask",
    [causal_mask(6), window_mask(6, window=(1, 1)), padding_mask(np.array([5]), 7)[0, 0],
     np.array([True, False]), np.ones((2, 2), bool), np.zeros((1, 1), bool),
     np.random.default_rng(1).random((100, 100)) < 0.5],
)  # fmt: skip
def test_masks_are_filled_or_hatched(mask):
    picture = matrices({"mask": mask})
    ax, rows = panels_of(picture)["mask"], np.atleast_2d(mask)
    np.testing.assert_array_equal(hatched_cells(ax, rows.shape), ~rows)
    np.testing.assert_array_equal((cells_of(ax) == MAY_ATTEND).all(axis=-1), rows)
    np.testing.assert_array_equal((cells_of(ax) == 1).all(axis=-1), ~rows)
    words = words_of(picture)
    assert ("True: may attend" in words) == mask.any()
    assert ("False: hidden" in words) == (not mask.all())
    assert not numbers_of(ax)
    assert [ax.get_label() for ax in picture.axes] == ["matrix mask"]


def test_hidden_and_broken_numbers_are_hatched_and_set_no_scale():
    x = np.array([[1.0, -INF, NAN], [INF, -3, -INF]])
    picture = matrices({"x": x, "mask": causal_mask(2), "nan": np.full(2, NAN)})
    ax = panels_of(picture)["x"]
    np.testing.assert_array_equal(hatched_cells(ax, x.shape), x == -INF)
    np.testing.assert_array_equal(hatched_cells(ax, x.shape, "broken"), np.isnan(x) | (x == INF))
    assert scale_of(picture) == ["-3", "0", "3"]
    assert {"False or -inf: hidden", "NaN or +inf"} <= set(words_of(picture))
    assert hatched_cells(panels_of(picture)["nan"], (1, 2), "broken").all()


# labels


def test_labels_stand_at_rows_and_columns():
    arrays = {"causal": causal_mask(6), "padding": np.ones((1, 6), bool), "one": np.ones(6)}
    picture = matrices(arrays, row_labels=WORDS, column_labels=WORDS)
    for name, ax in panels_of(picture).items():
        assert words_across(ax) == WORDS
        rows = words_down(ax)
        assert rows == (WORDS if name == "causal" else [])


def test_where_not_all_labels_fit_the_picture_says_so():
    labels = [f"token {i}" for i in range(40)]
    picture = matrices({"x": np.eye(40)}, row_labels=labels)
    ax = panels_of(picture)["x"]
    assert words_down(ax) == labels[::2]
    assert "Labels: one row of every 2." in words_of(picture)


def test_short_column_labels_lie_and_long_ones_stand():
    for labels, rotation in ((["a", "b"], 0), (["a long one", "b"], 90)):
        ax = panels_of(matrices({"x": np.eye(2)}, column_labels=labels))["x"]
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {rotation}


def test_an_empty_array_says_so():
    picture = matrices({"a": np.ones((0, 3)), "m": np.ones((2, 0), bool)})
    assert facts_of(panels_of(picture)["a"]) == ["(0, 3)", "no cells"]
    assert picture.get_label() == "2 arrays: a (0, 3), no cells; m (2, 0), no cells."


def test_arrays_that_do_not_fit_into_a_line_wrap():
    arrays = {f"array number {i}": np.ones((3, 5)) for i in range(9)}
    axes = panels_of(matrices(arrays)).values()
    corners = [(-round(ax.get_position().y1, 4), ax.get_position().x0) for ax in axes]
    assert corners == sorted(corners)
    assert len({y for y, _ in corners}) > 1


def test_a_title_of_several_lines_becomes_one():
    picture = matrices({"a": np.eye(2)}, title="one\n\ttwo ", meaning=("a\nb", "c"))
    assert picture.get_label().startswith("one two. 1 array")


def test_bools_that_are_no_mask_say_what_they_mean():
    arrays = {"reacts": np.eye(3, dtype=bool), "x": np.array([[1.0, -INF]])}
    picture = matrices(arrays, meaning=("reacts", "stays"))
    assert words_of(picture)[-3:] == ["True: reacts", "False: stays", "-inf: hidden"]
    assert "reacts (3, 3), 3 of 9 cells: reacts" in picture.get_label()
    assert "False or -inf: hidden" in words_of(matrices(arrays))


def test_matrices_in_words():
    arrays = {"p": np.array([0.7, -0.25]), "mask": causal_mask(3), "n": np.full((1, 2), NAN)}
    arrays["s"] = np.array([[1.0, -INF], [NAN, 1234.5]])
    assert matrices(arrays, title="Scores").get_label() == (
        "Scores. 4 arrays: p (2,), -0.25 to 0.7; mask (3, 3), 6 of 9 cells: may attend; "
        "n (1, 2), no finite number, 2 NaN or +inf; s (2, 2), 1 to 1,234, 1 hidden, 1 NaN or +inf."
    )
