"""Charts, read back from their artists: values, looks, names, numbers; nothing overlaps."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from mha_numpy.look import PALETTE
from mha_numpy.show.pictures import bar_chart, line_chart
from mha_numpy.show.pictures.labels import MINUS, short_number, widest
from mha_numpy.show.pictures.line_chart import _apart
from tests.show.pictures.helpers import (
    assert_nothing_overlaps,
    contrast,
    extent_of,
    texts_of,
    ticks_of,
    words_of,
)

POWERS = 2.0 ** np.arange(11)
AXES = {"title": "Title", "x_label": "across", "y_label": "upward"}
LONG = "a name that is much too long to stand at the end of a line"


def lines_of(count, n=11):
    rng = np.random.default_rng(3)
    return {f"line {i}": 1 + rng.random(n) for i in range(count)}


def tick_texts(axis):
    return [label.get_text().replace(MINUS, "-") for label in ticks_of(axis)]


def text_of(picture, text):
    """Return a text, in its place."""
    picture.draw_without_rendering()
    (found,) = (artist for artist in texts_of(picture) if artist.get_text() == text)
    return found


# lines


def test_every_line_has_its_values_and_a_look_of_its_own():
    lines = lines_of(8)
    picture = line_chart(POWERS, lines, **AXES, log_x=True)
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
    picture = line_chart(POWERS, lines, **AXES)
    names = [text_of(picture, name) for name in lines]
    assert all(contrast(to_rgb(text.get_color()), (1, 1, 1)) > 4.5 for text in names)
    assert len({text.get_color() for text in names}) == 8
    heights = [extent_of(text).y0 for text in names]
    np.testing.assert_array_equal(np.argsort(heights), np.argsort([v[-1] for v in lines.values()]))
    assert min(extent_of(text).x0 for text in names) > picture.axes[0].bbox.x1


def test_names_of_lines_that_meet_are_moved_apart():
    picture = line_chart([0, 1], {f"n{i}": np.array([i, 3.5]) for i in range(8)}, **AXES)
    names = [extent_of(text_of(picture, f"n{i}")) for i in range(8)]
    middle = np.mean([(box.y0 + box.y1) / 2 for box in names])
    ax = picture.axes[0]
    assert middle == pytest.approx(ax.transData.transform((1, 3.5))[1], abs=2)


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
    np.testing.assert_allclose(_apart(wanted, 1.0, 0.0, 10.0), expected)


def test_a_line_that_ends_early_is_named_at_its_last_value():
    lines = {"early": np.array([1, 2, np.nan]), "late": np.array([1, 1, 1.0])}
    picture = line_chart([1, 2, 3], lines, **AXES)
    ax, box = picture.axes[0], extent_of(text_of(picture, "early"))
    assert (box.y0 + box.y1) / 2 == pytest.approx(ax.transData.transform((2, 2))[1], abs=2)
    np.testing.assert_array_equal([name.xy for name in ax.texts], [(3, 1), (2, 2)])


def test_long_names_stand_in_a_legend():
    picture = line_chart(POWERS, {LONG: POWERS, "b": POWERS / 2}, **AXES)
    assert text_of(picture, LONG).get_window_extent().y0 > picture.axes[0].bbox.y1
    assert picture.axes[0].bbox.x1 > 0.92 * picture.bbox.x1  # the plot is as wide as it can be
    handles = picture.legends[0].get_lines()
    assert [line.get_marker() for line in handles] == ["o", "s"]


def test_a_gap_is_a_gap_and_a_point_alone_is_marked():
    values = np.ones(101)
    values[[50, 52]] = np.nan
    values[60:] = np.nan
    line = line_chart(np.arange(101), {"a": values}, **AXES).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), values)
    assert 51 in line.get_markevery()
    assert len(line.get_markevery()) < 22


def test_a_line_without_values_says_so():
    picture = line_chart([1, 2], {"a": np.ones(2), "none": np.full(2, np.nan)}, **AXES)
    assert "No values: none." in words_of(picture)
    assert "none has no values" in picture.get_label()


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
    picture = line_chart(x, {"a": np.ones(len(x))}, **AXES, log_x=is_log)
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
    picture = line_chart(x, {"a": np.array(values)}, **AXES, log_x=is_log, log_y=is_log)
    assert_nothing_overlaps(picture)
    for axis in (picture.axes[0].xaxis, picture.axes[0].yaxis)[: 1 + is_log]:
        texts = tick_texts(axis)
        assert 1 <= len(texts) == len(set(texts)) <= 12


def test_a_line_chart_in_words():
    lines = {"plain": np.array([3.1, 0.25, 1.0]), "scaled": np.array([np.nan, 2, 2.5])}
    picture = line_chart([1, 4, 1024], lines, **AXES, log_x=True)
    assert picture.get_label() == (
        "Title. upward over across from 1 to 1,024: plain is lowest, 0.25, at 4 and highest, 3.1, "
        "at 1; scaled is lowest, 2, at 4 and highest, 2.5, at 1,024."
    )


# bars

KV = {"Llama 2 70B": 2.5, "Mistral 7B": 0.31, "Falcon 7B": 0.03125, "GPT-3": 1234, "none": 0}
MULTI_HEAD = {"Llama 2 70B": 20, "Mistral 7B": 1.24, "GPT-3": 1234, "none": 3}


def bars_of(picture, label):
    """Return the bars of a kind, from top to bottom, in their places."""
    picture.draw_without_rendering()
    (bars,) = (bars for bars in picture.axes[0].containers if bars.get_label() == label)
    return bars.patches


def test_bars_are_as_long_as_their_numbers():
    picture = bar_chart(KV, title="KV cache", against=MULTI_HEAD)
    others = [MULTI_HEAD.get(name, 0) for name in KV]
    for label, numbers in (("bars", KV.values()), ("against", others)):
        lengths = [bar.get_width() for bar in bars_of(picture, label)]
        np.testing.assert_allclose(lengths, np.array([*numbers]) / 1234)


def test_bars_have_names_numbers_and_ratios():
    picture = bar_chart(
        KV, title="KV cache", unit="GB", against=MULTI_HEAD, against_label="were it multi-head"
    )
    words = {text.get_text() for text in texts_of(picture)}
    assert {*KV, "in GB", "were it multi-head"} <= words
    numbers = ["2.5 (vs 20: 8x less)", "0.31 (vs 1.24: 4x less)", "0.0312",
               "1,234 (vs 1,234: equal)", "0 (vs 3)"]  # fmt: skip
    assert [text.get_text() for text in picture.axes[0].texts] == numbers
    heights = [-text_of(picture, name).get_window_extent().y0 for name in KV]
    assert heights == sorted(heights)


def test_a_number_stands_behind_both_of_its_bars():
    values, against = {"a": 19, "b": 25, "c": 2, "d": 1.0}, {"a": 20, "b": 20, "c": 20, "d": 1.001}
    picture = bar_chart(values, title="t", against=against)
    kinds = (picture.axes[0].texts, bars_of(picture, "bars"), bars_of(picture, "against"))
    for text, *bars in zip(*kinds, strict=True):
        end = max(bar.get_window_extent().x1 for bar in bars)
        assert 0 < extent_of(text).x0 - end < 15
    words = " ".join(text.get_text() for text in kinds[0])
    for ratio in ("vs 20: 1.05x less", "vs 20: 1.25x more", "vs 1: about equal"):
        assert ratio in words


def test_a_pale_bar_is_outlined_and_lies_behind():
    picture = bar_chart({"a": 1}, title="t", against={"a": 2})
    (pale,), (bar,) = bars_of(picture, "against"), bars_of(picture, "bars")
    patches = picture.axes[0].patches
    assert patches.index(pale) < patches.index(bar)
    assert sum(pale.get_facecolor()[:3]) > 2.7
    assert pale.get_linewidth() > 0
    assert pale.get_height() > bar.get_height()
    assert to_hex(bar.get_facecolor()) == PALETTE[0].lower()


def test_bars_in_words():
    picture = bar_chart(
        {"GQA": 2.5, "MHA": 20}, title="Cache", unit="GB", against={"GQA": 20}, against_label="MHA"
    )
    assert picture.get_label() == "Cache, in GB, vs MHA. GQA: 2.5 (vs 20: 8x less); MHA: 20."


# numbers and files


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.3125, "0.312"), (999.7, "1,000"), (0.0009996, "0.001"), (-0.0, "0"), (123456.7, "123,457"),
     (9.996e8, "1e9"), (-2.5, "-2.5"), (1e-320, "1e-320")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert short_number(value).lstrip("-" * (value == 0)) == text


def test_the_width_of_no_words_is_none():
    assert widest([], 9) == 0 < widest(["i"], 9) < widest(["i", "mm"], 9)
