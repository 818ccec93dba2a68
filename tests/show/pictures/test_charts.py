"""Charts, read back from their artists: values, looks, names, numbers; nothing overlaps."""

import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.text import Text

from mha_numpy.look import PALETTE, tokens
from mha_numpy.show.pictures import bar_chart, line_chart
from mha_numpy.show.pictures.charts import drawing_of
from mha_numpy.show.pictures.labels import MINUS, short_number
from mha_numpy.show.pictures.line_chart import _apart, figure_of
from mha_numpy.show.pictures.svg import DESK, PHONE, width_of
from tests.show.pictures.helpers import assert_readable, root_of, texts_in, words_in

POWERS = 2.0 ** np.arange(11)
AXES = {"title": "Title", "x_label": "across", "y_label": "upward"}
LONG = "a name that is much too long to stand at the end of a line"


def lines_of(count, n=11):
    rng = np.random.default_rng(3)
    return {f"line {i}": 1 + rng.random(n) for i in range(count)}


def figure(x, lines, *, log_x=False, log_y=False, limit=DESK):
    """Return a line chart as matplotlib draws it."""
    arrays = {name: np.asarray(line, float) for name, line in lines.items()}
    drawn = figure_of(
        np.asarray(x, float), arrays, limit, "across", "upward", is_log_x=log_x, is_log_y=log_y
    )
    drawn.draw_without_rendering()
    return drawn


def texts_of(artist):
    """Return what is written, leaving out ticks that are switched off or beyond the axes."""
    found = [artist] if isinstance(artist, Text) else []
    for child in artist.get_children():
        if not isinstance(child, Axis):
            found += texts_of(child)
        elif child.axes.axison:
            found += [child.label, child.get_offset_text(), *ticks_of(child)]
    return [text for text in found if text.get_visible() and text.get_text()]


def ticks_of(axis):
    """Return the labels of the ticks within the limits of the axes."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks()
            if tick.label1.get_text() and low <= tick.get_loc() <= high]  # fmt: skip


def tick_texts(axis):
    return [label.get_text().replace(MINUS, "-") for label in ticks_of(axis)]


def extent_of(text):
    """Return the box of a text in pixels, without the arrow of an annotation."""
    return Text.get_window_extent(text)


def text_of(drawn, text):
    """Return a text, in its place."""
    drawn.draw_without_rendering()
    (found,) = (artist for artist in texts_of(drawn) if artist.get_text() == text)
    return found


def assert_nothing_overlaps(drawn):
    drawn.draw_without_rendering()
    boxes = [(text.get_text(), extent_of(text)) for text in texts_of(drawn)]
    for i, (name, box) in enumerate(boxes):
        assert box.x0 > -1, name
        assert box.y0 > -1, name
        assert box.x1 < drawn.bbox.x1 + 1, name
        assert box.y1 < drawn.bbox.y1 + 1, name
        for other, its in boxes[i + 1 :]:
            apart = min(box.x1, its.x1) - max(box.x0, its.x0) < 1
            assert apart or min(box.y1, its.y1) - max(box.y0, its.y0) < 1, (name, other)


# lines


def test_every_line_has_its_values_and_a_look_of_its_own():
    lines = lines_of(8)
    picture = figure(POWERS, lines, log_x=True)
    drawn = picture.axes[0].lines
    for line, (name, values) in zip(drawn, lines.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_xydata(), np.stack([POWERS, values], axis=1))
    assert [line.get_color() for line in drawn] == list(PALETTE)
    assert len({line.get_marker() for line in drawn}) == 8
    assert len({str(line._unscaled_dash_pattern) for line in drawn}) == 8
    assert picture.axes[0].get_xscale() == "log"
    assert picture.axes[0].get_yscale() == "linear"


def test_names_stand_at_the_ends_in_dark_colours_in_the_order_of_the_ends():
    lines = lines_of(8)
    picture = figure(POWERS, lines)
    names = [text_of(picture, name) for name in lines]
    inks = [tokens()[f"head-{i}-ink"][0] for i in range(8)]
    assert [text.get_color() for text in names] == inks
    heights = [extent_of(text).y0 for text in names]
    np.testing.assert_array_equal(np.argsort(heights), np.argsort([v[-1] for v in lines.values()]))
    assert min(extent_of(text).x0 for text in names) > picture.axes[0].bbox.x1


def test_names_of_lines_that_meet_are_moved_apart():
    picture = figure([0, 1], {f"n{i}": np.array([i, 3.5]) for i in range(8)})
    names = [extent_of(text_of(picture, f"n{i}")) for i in range(8)]
    middle = np.mean([(box.y0 + box.y1) / 2 for box in names])
    ax = picture.axes[0]
    assert middle == pytest.approx(ax.transData.transform((1, 3.5))[1], abs=2)


def test_of_several_runs_each_is_thin_and_their_mean_is_bold():
    runs = np.array([[1.0, 4, 2], [3, 2, 8]])
    (ax,) = figure([0, 1, 2], {"plain": [1, 2, 3], "tried twice": runs}).axes
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [2, 3, 5])
    thin, points = ax.collections
    np.testing.assert_array_equal([path[:, 1] for path in thin.get_segments()], runs)
    np.testing.assert_array_equal(points.get_offsets()[:, 1], runs.ravel())
    assert thin.get_linewidths()[0] < ax.lines[1].get_linewidth()
    assert ax.get_ylim()[1] > 8
    picture = line_chart([0, 1, 2], {"tried twice": runs}, **AXES)
    assert "lowest, 2, at 0 and highest, 5, at 2" in picture.alt
    assert picture.notes == ["Thin lines are single runs, a bold line is their mean."]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([1.0, 5.0], [1, 5]),
        ([3.0, 3.0], [2.5, 3.5]),
        ([3.0, 3.0, 3.2, 9.0], [2.0666667, 3.0666667, 4.0666667, 9]),
        ([0.0, 0.0], [0, 1]),
        ([10.0, 10.0], [9, 10]),
    ],
)
def test_places_stay_near_the_wanted_ones(wanted, expected):
    np.testing.assert_allclose(_apart(wanted, [1.0] * len(wanted), 10.0), expected)


def test_a_line_that_ends_early_is_named_at_its_last_value():
    lines = {"early": np.array([1, 2, np.nan]), "late": np.array([1, 1, 1.0])}
    picture = figure([1, 2, 3], lines)
    ax, box = picture.axes[0], extent_of(text_of(picture, "early"))
    assert (box.y0 + box.y1) / 2 == pytest.approx(ax.transData.transform((2, 2))[1], abs=2)
    np.testing.assert_array_equal([name.xy for name in ax.texts], [(3, 1), (2, 2)])


def test_long_names_take_several_lines_at_the_ends():
    for limit, count in ((PHONE, 5), (DESK, 3)):
        picture = figure(POWERS, {LONG: POWERS, "b, H = 2": POWERS / 2}, limit=limit)
        long, short = (text.get_text() for text in picture.axes[0].texts[::-1])
        assert long.split() == LONG.split()
        assert len(long.splitlines()) == count
        assert short == "b, H\xa0=\xa02"  # an equation stays on a line


def test_places_leave_room_for_names_of_several_lines():
    assert _apart([5.0, 5.0, 5.0], [1, 3, 1], 10.0) == [3, 5, 7]


def test_a_gap_is_a_gap_and_a_point_alone_is_marked():
    values = np.ones(101)
    values[[50, 52]] = np.nan
    values[60:] = np.nan
    line = figure(np.arange(101), {"a": values}).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert 51 in line.get_markevery()
    assert len(line.get_markevery()) < 22


def test_a_line_without_values_says_so():
    picture = line_chart([1, 2], {"a": np.ones(2), "none": np.full(2, np.nan)}, **AXES)
    assert "No values: none." in picture.notes
    assert "none has no values" in picture.alt


@pytest.mark.parametrize(
    ("x", "is_log", "expected"),
    [
        (POWERS[:9], True, ["1", "2", "4", "8", "16", "32", "64", "128", "256"]),
        (POWERS[1:], True, ["4", "16", "64", "256", "1,024"]),
        ([0.25, 1, 2], True, ["0.25", "0.5", "1", "2"]),
        ([2.0**14, 2.0**16], True, ["16,384", "32,768", "65,536"]),
        ([1, 30, 1000], True, ["1", "10", "100", "1,000"]),
        ([1e-9, 1e-5], True, ["1e-9", "1e-8", "1e-7", "1e-6", "1e-5"]),
        ([60, 100, 1000], True, ["100", "200", "500", "1,000"]),
        ([3, 4, 6], True, ["3.0", "3.5", "4.0", "4.5", "5.0", "5.5", "6.0"]),
        ([1, 2, 3], False, ["1", "2", "3"]),
        ([-1, 0.5], False, ["-1.0", "-0.8", "-0.6", "-0.4", "-0.2", "0.0", "0.2", "0.4"]),
    ],
)
def test_ticks_are_short_and_tell_values_apart(x, is_log, expected):
    picture = figure(x, {"a": np.ones(len(x))}, log_x=is_log)
    assert tick_texts(picture.axes[0].xaxis) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "values", "is_log"),
    [
        ([3], [5e6], False),
        ([1, 2], [0, 0], False),
        ([1, 2], [-2, -2], False),
        ([1, 2], [1e-320, 3e-320], False),
        ([1, 2], [-1e300, 1e300], False),
        ([1e9, 1e9 + 1], [1e9, 1e9 + 1], False),
        ([1e9, 1e9 + 11], [0, 1], False),
        ([-1e-9, 1e-9], [-3, 5], False),
        (np.arange(500), np.linspace(-1, 1, 500), False),
        *[(ends, ends, True) for ends in ([1e-280, 1e-240], [1e-9, 3e-9], [1, 64], [65536])],
        ([1e250, 1.01e250], [1e250, 1.01e250], True),
    ],
)
def test_any_range_has_ticks_that_differ(x, values, is_log):
    picture = figure(x, {"a": np.array(values)}, log_x=is_log, log_y=is_log)
    assert_nothing_overlaps(picture)
    for axis in (picture.axes[0].xaxis, picture.axes[0].yaxis)[: 1 + is_log]:
        texts = tick_texts(axis)
        assert 1 <= len(texts) == len(set(texts)) <= 12


@pytest.mark.parametrize("limit", [PHONE, DESK])
@pytest.mark.parametrize(
    "lines",
    [lines_of(8), {LONG: POWERS, "b": POWERS / 2}, {f"n{i}": np.zeros(11) for i in range(7)},
     {"none": np.full(11, np.nan)}, {"large": 1e9 * POWERS}],
)  # fmt: skip
def test_nothing_overlaps_on_a_phone_and_beside_it(lines, limit):
    drawn = figure(POWERS, lines, limit=limit)
    assert drawn.get_size_inches()[0] * 96 == pytest.approx(limit)
    assert_nothing_overlaps(drawn)


def test_a_chart_has_names_for_its_colours_and_words_that_are_words():
    picture = line_chart([1, 2], {"a": np.ones(2), "b": np.zeros(2)}, **AXES)
    assert_readable(picture)
    for drawing in (*picture.panels, *picture.wide):
        svg = drawing.svg()
        assert "var(--m-head-0)" in svg
        assert "var(--m-head-1-ink)" in svg
        assert ">upward</text>" in svg
        assert "Bitstream" not in svg


def test_a_colour_that_has_no_name_is_an_error():
    drawn = figure([1, 2], {"a": np.ones(2)})
    drawn.axes[0].lines[0].set_color("#123456")
    with pytest.raises(ValueError, match="colours are those of mha_numpy.look; got #123456"):
        drawing_of(drawn, "t", "d")


def test_a_line_chart_in_words():
    lines = {"plain": np.array([3.1, 0.25, 1.0]), "scaled": np.array([np.nan, 2, 2.5])}
    picture = line_chart([1, 4, 1024], lines, **AXES, log_x=True)
    assert picture.alt == (
        "Title. upward over across from 1 to 1,024: plain is lowest, 0.25, at 4 and highest, 3.1, "
        "at 1; scaled is lowest, 2, at 4 and highest, 2.5, at 1,024."
    )


# bars

KV = {"Llama 2 70B": 2.5, "Mistral 7B": 0.31, "Falcon 7B": 0.03125, "GPT-3": 1234, "none": 0}


def bars_of(drawing, kind):
    """Return (left, top, width, height) of the bars of a kind, from top to bottom."""
    rects = [e.attrib for e in root_of(drawing).iter() if e.attrib.get("class") == kind]
    return [[float(rect[side]) for side in ("x", "y", "width", "height")] for rect in rects]


def test_bars_are_as_long_as_their_numbers():
    (drawing,) = bar_chart(KV, title="KV cache").panels
    (room,) = {track[2] for track in bars_of(drawing, "track")}
    lengths = [bar[2] for bar in bars_of(drawing, "more")]
    wanted = np.maximum(1, room * np.array([*KV.values()]) / 1234)
    np.testing.assert_allclose(lengths, wanted, atol=0.01)


def test_bars_have_names_and_their_numbers_behind_them():
    picture = bar_chart(KV, title="KV cache", unit="GB")
    assert picture.notes == ["In GB."]
    for drawing in (*picture.panels, *picture.wide):
        assert texts_in(drawing, "i") == [*KV]
        assert texts_in(drawing, "v") == ["2.5", "0.31", "0.0312", "1,234", "0"]
        heights = [word.y for word in words_in(drawing) if "i" in word.kinds]
        assert heights == sorted(heights)
        numbers = [word for word in words_in(drawing) if "v" in word.kinds]
        for word, (left, _, width, _) in zip(numbers, bars_of(drawing, "more"), strict=True):
            assert 0 < word.x - (left + width) < 15


def test_bars_are_grey_or_of_one_head():
    for head, token in ((None, "plain"), (1, "head-1")):
        for drawing in (p := bar_chart({"a": 1, "b": 2}, title="t", head=head)).panels + p.wide:
            fills = {e.attrib["style"] for e in root_of(drawing).iter()
                     if e.attrib.get("class") == "more"}  # fmt: skip
            assert fills == {f"fill:var(--m-{token})"}


def test_short_names_are_beside_their_bars_and_long_ones_above():
    for name, is_beside in (("with", True), ("a name that takes most of a line", False)):
        (drawing,) = bar_chart({name: 1}, title="t").panels
        ((left, top, *_),), (word,) = (
            bars_of(drawing, "more"),
            [word for word in words_in(drawing) if "i" in word.kinds],
        )
        assert (left > word.x) == (word.y > top) == is_beside


def test_bars_in_words():
    picture = bar_chart({"GQA": 2.5, "MHA": 20}, title="Cache", unit="GB")
    assert picture.alt == "Cache, in GB. GQA: 2.5; MHA: 20."


# numbers and files


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.3125, "0.312"), (999.7, "1,000"), (0.0009996, "0.001"), (-0.0, "0"), (123456.7, "123,457"),
     (9.996e8, "1e9"), (-2.5, "-2.5"), (1e-320, "1e-320")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert short_number(value).lstrip("-" * (value == 0)) == text


def test_texts_are_taken_to_be_rather_wider_than_narrower():
    assert 0 == width_of("") < width_of("i") < width_of("mm")
    assert width_of("words of a sentence") > 100
