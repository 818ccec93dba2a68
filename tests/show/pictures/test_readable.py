"""Every picture is readable: sizes, places, no overlap, and colours that are names."""

import numpy as np
import pytest

from mha_numpy.core import ProportionalScaling, RopeOptions, causal_mask
from mha_numpy.show.pictures import (
    arrows,
    backward_film,
    bar_chart,
    line_chart,
    matrices,
    origin_film,
    shape_film,
    sharing_map,
    wavelength_chart,
    weights_by_head,
    weights_over_picture,
)
from tests.show.pictures.helpers import (
    SENTENCE,
    assert_readable,
    ramp,
    recorded,
    recorded_rank_2,
    stages_of_splitting,
    steps_of,
    turned,
    two_splits,
)

NAN, INF = np.nan, np.inf
LONG = "a name that is much too long to stand at the end of a line"
TITLE = "A title that is longer than most pictures are wide " * 2
TWELVE = [SENTENCE[i % 12] * (1 + i % 2) for i in range(64)]
SIGNED = np.random.default_rng(2).normal(size=(12, 12))
ODD = ["$x$", "\n", "", " ", "a_{1}$", "long" * 20, "▁the"]
POWERS = 2.0 ** np.arange(11)
LINES = {f"line {i}": 1 + np.random.default_rng(i).random(11) for i in range(8)}
AXES = {"title": "Title", "x_label": "across", "y_label": "upward"}
FORMULAS = {"title": "a $long$ title " * 10, "x_label": "$x_1$", "y_label": "$y$ (nats)"}
PIXELS = (np.random.default_rng(0).random((16, 16, 3)) > 0.7).astype(float)
VERY_LONG_CALL = "some_function(" + "argument, " * 20 + ")"


def both_films(**options):
    trace, _ = recorded(**options)
    return [shape_film(trace), backward_film(trace)]


def beside_reference(**options):
    right, _ = recorded(**options)
    gradients = [step for step in right if step.is_backward]
    wrong = steps_of(*((s.name, s.array * (1 + (s.name == "d_heads")), s.axes) for s in gradients))
    return [backward_film(right), backward_film(wrong, reference=right)]


def heatmaps(H, T, **options):
    weights = np.full((2, H, T, T), 1 / T)
    return weights_by_head(weights, TWELVE[:T], visible=causal_mask(T), **options)


def bars(numbers):
    return [bar_chart(numbers, title="a title", unit="$")]


def panels(arrays):
    return [matrices(arrays, title=TITLE, shared=False), matrices(arrays)]


FAST = {
    "both films": lambda: both_films(
        B=2, T=5, D=12, H=6, H_kv=2, rope=RopeOptions(), is_causal=True
    ),
    "film without heads": lambda: shape_film(recorded_rank_2()),
    "film of long names": lambda: shape_film(
        steps_of(
            ("a_name_that_is_longer_than_most_names_are", np.ones((2, 2)), "T D"),
            ("b", np.zeros((2, 2)), "T D", VERY_LONG_CALL),
            ("c", np.full((2, 2), 3.0), "T D", "unbroken" * 20),
            ("$c_1$", np.full((2, 2), 4.0), "T D", "$x^2$ + $y"),
        )
    ),
    "film of many heads": lambda: shape_film(steps_of(("a", np.ones((2, 20)), "T H"))),
    "film of the last of many": lambda: shape_film(
        steps_of(("a", np.ones((999, 2)), "B T")), sequence=998
    ),
    "backward without heads": lambda: backward_film(recorded_rank_2()),
    "backward, a number and none": lambda: backward_film(
        steps_of(("d_loss", np.array(2.0), ""), ("d_x", np.ones((0, 3)), "T D")),
        reference={"d_loss": np.array(1.0), "d_x": np.ones((0, 3))},
    ),
    "one cell": lambda: heatmaps(1, 1),
    "two heatmaps": lambda: heatmaps(2, 5, head_names=["layer 1: the token before", "layer 2"]),
    "a long heading": lambda: heatmaps(1, 3),
    "numbers": lambda: heatmaps(1, 12),
    "odd labels": lambda: weights_by_head(np.full((2, 7, 7), 1 / 7), ODD),
    "2 x 2": lambda: panels({"a": SIGNED[:2, :2], "b": SIGNED[:2, :2] * 1e-15}),
    "hidden": lambda: matrices(
        {"x": np.array([[1.0, -INF, NAN], [INF, -3, -INF]]), "mask": causal_mask(2)}
    ),
    "labels": lambda: matrices(
        {"causal": causal_mask(6), "padding": np.ones((1, 6), bool), "one": np.ones(6)},
        row_labels=SENTENCE[:6],
        column_labels=SENTENCE[:6],
        meaning=("reacts\nb", "stays"),
    ),
    "some of the labels": lambda: matrices(
        {"x": np.eye(40)}, row_labels=[f"token {i}" for i in range(40)]
    ),
    "no cells": lambda: panels(
        {"a": np.ones((0, 3)), "b": np.ones((3, 0)), "c": np.ones(0), "d": np.ones((0, 0))}
    ),
    "huge": lambda: panels({"a": np.array([[1.7e308, -1.7e308], [1, 5e-324]]), "b": [5e-324]}),
    "long names": lambda: panels(
        {"a_name_that_is_longer_than_its_array_and_cut": np.eye(2), "$b$": np.eye(1)}
    ),
    "lines": lambda: line_chart(POWERS, LINES, **AXES),
    "lines that meet": lambda: line_chart(
        [0, 1], {f"n{i}": np.array([i, 3.5]) for i in range(8)}, **AXES
    ),
    "lines that meet at the bottom": lambda: line_chart(
        [0, 1], {f"n{i}": np.zeros(2) for i in range(7)} | {"up": [9, 9]}, **AXES
    ),
    "lines with a legend": lambda: line_chart(POWERS, {LONG: POWERS, "b": POWERS / 2}, **AXES),
    "no values": lambda: line_chart([1, 2], {"none": [NAN, NAN]}, **AXES, log_y=True),
    "waves": lambda: wavelength_chart(
        {"all turn": RopeOptions(), "some turn": RopeOptions(scaling=ProportionalScaling(0.5))}, 64
    ),
    "formulas": lambda: line_chart([1, 2], {"$a$": np.ones(2)}, **FORMULAS),
    "bars": lambda: bar_chart({"a": 19, "b": 25, "c": 2, "d": 1.0}, title="t"),
    "arrows": lambda: arrows(turned(8), title="Turned"),
    "patches": lambda: weights_over_picture(
        PIXELS, np.random.default_rng(0).dirichlet(np.ones(16), 5), SENTENCE[:5], note="A note."
    ),
    "two patches by two": lambda: weights_over_picture(PIXELS, np.eye(4)[:2], ["a", LONG]),
    "splits": lambda: origin_film(two_splits(), 2),
    "one token": lambda: origin_film({"x": ramp(1, 3), "a": np.array([2])}, 1),
    "two sequences": lambda: origin_film(two_splits(2), 2),
    **{
        f"sharing {sizes}": lambda sizes=sizes: sharing_map(*sizes)
        for sizes in [(8, 8), (8, 2), (12, 4), (8, 1), (1, 1), (64, 8), (71, 1)]
    },
}

SLOW = {
    "causal films": lambda: both_films(T=12, D=16, H=4, is_causal=True),
    "films of multi-query": lambda: both_films(
        T=4, D=12, H=6, H_kv=1, softcap=2.0, bias=np.ones((6, 1, 4)), head_gate=np.arange(6.0)
    ),
    "small films": both_films,
    "wide films": lambda: both_films(T=16, D=64, H=8),
    "large films": lambda: both_films(T=64, D=64, H=16, is_causal=True),
    "a hundred heads": lambda: shape_film(
        steps_of(
            ("a", np.ones((200, 2, 128 * 4)), "B T H*d_k"),
            ("b", np.ones((200, 2, 128, 4)), "B T H d_k"),
            ("c", np.ones((200, 128, 2, 4)), "B H T d_k"),
        ),
        sequence=123,
    ),
    "beside a reference": beside_reference,
    "beside a reference, wide": lambda: beside_reference(T=9, D=32, H=8),
    "many tokens": lambda: heatmaps(1, 40),
    "many heads": lambda: heatmaps(16, 64),
    "12 rows": lambda: panels({"a": SIGNED[:, :4] * 1e-15, "mask": causal_mask(12)}),
    "64 x 64": lambda: panels(
        {name: np.ones((64, 64)) for name in ("expected", "actual", "difference")}
    ),
    "512 x 512": lambda: panels({"a": np.ones((512, 512)), "mask": causal_mask(512)}),
    "thin": lambda: panels(
        {"row": np.ones(300), "column": np.ones((300, 1)), "angles": np.ones((64, 4))}
    ),
    "single": lambda: panels({"a": np.array([[5.0]]), "b": np.array([[True]])}),
    "zeros": lambda: panels({"a": np.zeros((2, 3)), "b": np.zeros(2, int)}),
    "broken": lambda: panels(
        {"a": np.full((2, 3), NAN), "b": np.full((2, 3), INF), "c": np.full(3, -INF)}
    ),
    "many arrays": lambda: panels({f"array number {i}": SIGNED[:3, :5] * 10**i for i in range(9)}),
    **{
        f"bars of {numbers}": lambda numbers=numbers: bars(numbers)
        for numbers in [
            {"a": 0},
            {"a": 1e300, "b": 5e-324},
            {"a": 5e-324},
            {LONG: 1, "b": 2},
            {f"bar {i}": 1e3**i for i in range(12)},
            {"$x$": 3, "\n": 1},
        ]
    },
    "seven stages": lambda: origin_film(stages_of_splitting(1, 4, 8, 2), 2),
    "eight heads": lambda: origin_film(stages_of_splitting(1, 4, 32, 8), 8),
    "seventeen heads": lambda: origin_film(two_splits(1, 3, 34, 17), 17),
    "seven blocks in a batch": lambda: origin_film(two_splits(2, 6, 28, 7), 7),
    "wide splits": lambda: origin_film(two_splits(1, 10, 64, 8), 8),
    "tall splits": lambda: origin_film(two_splits(1, 64, 8, 4), 4),
    "a long name": lambda: origin_film({"$x$": ramp(2, 4), VERY_LONG_CALL: np.array([3, 1])}, 2),
    "large numbers": lambda: origin_film({"x": ramp(2, 15, 32)}, 4),
}


@pytest.mark.parametrize(
    "draw",
    [pytest.param(draw, id=name) for name, draw in FAST.items()]
    + [pytest.param(draw, id=name, marks=pytest.mark.slow) for name, draw in SLOW.items()],
)
def test_everything_is_readable(draw):
    drawn = draw()
    for picture in drawn if isinstance(drawn, list) else [drawn]:
        assert_readable(picture)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda drawn: drawn.text(40, 40, "one text", "s") or drawn.text(42, 40, "two"),
            "overlaps",
        ),
        (lambda drawn: drawn.parts.append('<text class="s" x="-9" y="40">cut</text>'), "cut"),
        (lambda drawn: drawn.add('<rect style="fill:#123456"/>'), "123456"),
        (lambda drawn: drawn.add('<rect fill="rgb(1, 2, 3)"/>'), "rgb"),
        (lambda drawn: drawn.add('<rect style="fill:var(--m-head-9)"/>'), "head-9"),
    ],
)
def test_the_check_sees_what_is_not(spoil, words):
    picture = matrices({"a": np.eye(2)})
    assert_readable(picture)
    spoil(picture.panels[0])
    with pytest.raises(AssertionError, match=words):
        assert_readable(picture)
