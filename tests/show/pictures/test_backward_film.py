"""The backward film, read back: who stands beside whom, signs, and the first difference."""

from functools import cache

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

import mha_numpy.core.attention as core_attention
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import RopeOptions, attention_backward, attention_forward
from mha_numpy.show.pictures import backward_film, head_color, shape_film
from mha_numpy.steps import step
from tests.show.pictures.helpers import (
    assert_nothing_overlaps,
    colors_of,
    grid_of,
    recorded,
    recorded_rank_2,
    squares_of,
    steps_of,
    words_of,
)


@cache
def whole_pass():
    """Draw a layer's whole backward pass once, for all tests that read it."""
    t, _ = recorded(B=2, D=12, H=6, H_kv=2, rope=RopeOptions(), is_causal=True)
    return t, backward_film(t)


def title_of(panel):
    return panel.get_title(loc="left")


def gradient_panel(film, name):
    (panel,) = (ax for ax in film.axes if ax.get_label() == f"gradient {name}")
    return panel


def lines_of(panel):
    return [text.get_text() for text in panel.texts]


def verdict_of(film):
    return film.get_label().split(". Each beside")[0].split(". ", 1)[1]


def lit_cell(panel):
    """Return the upper left corner of the framed cell."""
    (frame,) = (p for p in panel.findobj(Rectangle) if p.get_label() == "first difference")
    return frame.get_xy(), (frame.get_width(), frame.get_height())


def negative_cells(panel):
    """Return where a minus stands, as a grid like `grid_of`."""
    _, _, xs, ys = grid_of(panel)
    found = np.zeros((len(ys), len(xs)), bool)
    cell = xs[1] - xs[0]
    for lines in panel.collections:
        if isinstance(lines, LineCollection):
            for (left, y), (right, _) in lines.get_segments():
                x = (left + right) / 2 - cell / 2
                found[np.abs(ys + cell / 2 - y).argmin(), np.abs(xs - x).argmin()] = True
    return found


def subset(right, *names, **changes):
    """Return some of the gradients of a trace, some of them changed, as steps of one's own."""
    found = [(s.name, s.array.copy(), s.axes) for s in right if s.name in names]
    return steps_of(*((n, changes.get(n, np.array)(array), axes) for n, array, axes in found))


# who stands beside whom


def test_each_gradient_stands_right_of_its_array_in_the_order_of_backward():
    t, film = whole_pass()
    arrays, gradients = film.axes[::2], film.axes[1::2]
    names = [s.name for s in t if s.is_backward]
    assert [title_of(ax).split()[1] for ax in gradients] == names
    beside = {"d_x": "x_q", "d_x_kv": "x_k"}
    for array, gradient, name in zip(arrays, gradients, names, strict=True):
        assert title_of(array).replace(" ◆", "").split()[-1] == beside.get(name, name[2:])
        assert array.get_position().y0 == pytest.approx(gradient.get_position().y0)
        assert array.get_position().x1 < gradient.get_position().x0
        equation = next(s.equation for s in t if s.name == name)
        shown = "".join(lines_of(gradient)).replace(" ", "")
        assert equation.replace(" ", "") in shown
    places = [(-round(ax.get_position().y1, 4), ax.get_position().x0) for ax in film.axes]
    assert places == sorted(places)
    heading = f"Backward film: {len(names)} gradients, sequence 0 of a batch of 2. Each beside"
    assert film.get_label().startswith(heading)
    assert "d_w_q [D=12, H*d_k=12] (of a param);" in film.get_label()


def test_params_are_not_recorded_and_leave_an_empty_place():
    _, film = whole_pass()
    empty = {ax.get_label() for ax in film.axes if "param, not recorded" in lines_of(ax)}
    assert empty == {f"array {letter}_{name}" for letter in "wb" for name in "qkvo"}
    panel = next(ax for ax in film.axes if ax.get_label() == "array w_q")
    assert not squares_of(panel)
    missing = [p for p in panel.patches if p.get_label() == "missing"]
    assert len(missing) == 6  # the places of six heads


def test_cells_have_the_colour_of_their_head():
    _, film = whole_pass()
    for name in ("weights", "heads", "q", "q_by_token", "w_o"):
        expected = [head_color(h) for h in range(6)]
        assert colors_of(gradient_panel(film, f"d_{name}")) == expected, name
    for name in ("k", "v_projected"):
        panel = gradient_panel(film, f"d_{name}")
        assert colors_of(panel) == [head_color(0), head_color(3)], name
        assert "◆" in title_of(panel)


def test_negative_cells_have_a_minus():
    array = np.array([[1.0, -2.0, 0.0], [-0.0, -np.inf, np.nan], [-4.0, 0.5, 3.0]])
    t = steps_of(("x", array, "T D"), ("d_x", array.copy(), "T D"))
    ours, gradient = backward_film(t).axes
    expected = np.zeros((3, 3), bool)
    expected[[0, 2], [1, 0]] = True
    for ax in (ours, gradient):
        np.testing.assert_array_equal(negative_cells(ax), expected)
    np.testing.assert_array_equal(grid_of(ours)[1], grid_of(gradient)[1])


def test_signs_of_many_heads_lie_in_their_cells():
    right, _ = recorded(T=3, D=6, H=3)
    t = subset(right, "d_q_projected", "d_q_by_token", "d_w_o")
    film = backward_film(t, reference=right)
    for name, shape in (("d_q_projected", (3, 6)), ("d_q_by_token", (3, 6)), ("d_w_o", (6, 6))):
        found = negative_cells(gradient_panel(film, name))
        np.testing.assert_array_equal(found, t[name].reshape(shape) < 0)


def test_cells_too_small_for_a_sign_say_so():
    tall = -np.ones((400, 3))
    t = steps_of(("x", tall, "T D"), ("d_x", tall, "T D"))
    for panel in (*backward_film(t).axes, *shape_film(steps_of(("x", tall, "T D"))).axes):
        assert "cells too small for a minus" in lines_of(panel)
        assert not any(isinstance(lines, LineCollection) for lines in panel.collections)


def test_two_passes_are_matched_last_with_first():
    t = Trace()
    for name, value in (("x", 1.0), ("x", 2.0), ("d_x", 3.0), ("d_x", 4.0)):
        t.record(name, np.full((2, 2), value), "T D", "")
    assert [title_of(ax) for ax in backward_film(t).axes] == ["2 x", "3 d_x", "1 x", "4 d_x"]
    assert "in all 2 gradients" in verdict_of(backward_film(t, reference=t))
    film = backward_film(t, reference={"d_x": np.full((2, 2), 3.0)})
    assert verdict_of(film) == "Agrees with the reference in the 1 of 2 gradients that both have"


# the reference


def test_a_trace_agrees_with_itself():
    right, _ = recorded()
    t = subset(right, "d_out", "d_v", "d_b_q")
    for reference in (t, {s.name: s.array for s in t}):
        film = backward_film(t, reference=reference)
        assert verdict_of(film) == "Agrees with the reference in all 3 gradients"
        assert all(title_of(ax).endswith(" =") for ax in film.axes[1::2])
        assert not any("the reference's" in lines_of(ax) for ax in film.axes)
        assert not any("first" in str(p.get_label()) for p in film.findobj(Rectangle))
    own = steps_of(*((s.name, s.array, s.axes) for s in right if s.name in ("d_q", "d_k")),
                   ("d_own", np.ones(2), "D"))  # fmt: skip
    film = backward_film(own, reference=right)
    assert verdict_of(film) == ("Agrees with the reference in the 2 of 3 gradients that both have")
    assert [title_of(ax) for ax in film.axes[1::2]] == ["1 d_q =", "2 d_k =", "3 d_own"]


def test_the_first_difference_of_a_forgotten_row_sum_is_in_d_scores(monkeypatch):
    def run():
        rng = np.random.default_rng(5)
        q, k, v = (rng.normal(size=(1, 2, *shape)) for shape in ((5, 4), (7, 4), (7, 3)))
        with trace() as t:
            out, cache = attention_forward(q, k, v)
            attention_backward(rng.normal(size=out.shape), cache)
        return t

    right = run()
    monkeypatch.setattr(core_attention, "softmax_steps_backward", lambda d, weights, _: weights * d)
    wrong = run()
    film = backward_film(wrong, reference=right)
    got, expected = wrong["d_scores"][0, 0, 0, 0], right["d_scores"][0, 0, 0, 0]
    assert verdict_of(film) == (
        f"First difference: d_scores[0, 0, 0, 0] = {got:.4g}, expected {expected:.4g}; "
        "70 of 70 cells differ. In all, 3 of 6 gradients differ"
    )
    assert verdict_of(film) in " ".join(words_of(film))
    assert_nothing_overlaps(film)
    after = {title_of(ax).split()[1] for ax in film.axes[1::2] if title_of(ax).endswith("≠")}
    assert after == {"d_scores", "d_q", "d_k"}
    assert len(film.findobj(lambda artist: artist.get_label() == "start here")) == 1
    assert "d_v [B=1, H_kv=2, T_k=7, d_v=3], agrees;" in film.get_label()
    assert "d_q [B=1, H=2, T_q=5, d_k=4], differs;" in film.get_label()


@pytest.mark.parametrize(
    ("name", "cell", "place"),
    [
        ("d_scores", (0, 1, 2, 3), (5 + 2, 3)),  # heads stand one below the other
        ("d_q_by_token", (0, 3, 1, 2), (3, 4 + 2)),  # every row is cut into pieces
        ("d_q_projected", (0, 3, 6), (3, 6)),
        ("d_w_o", (5, 1), (5, 1)),
        ("d_x", (0, 4, 7), (4, 7)),
        ("d_b_q", (6,), (0, 6)),
    ],
)
def test_the_first_diverging_cell_is_framed_and_pointed_at(name, cell, place):
    right, _ = recorded()

    def change(array):
        array[cell] += 1
        array[tuple(n - 1 for n in array.shape)] += 2  # the last one too
        return array

    film = backward_film(subset(right, "d_out", name, **{name: change}), reference=right)
    assert len(film.axes) == 4
    panel = gradient_panel(film, name)
    _, _, xs, ys = grid_of(panel)
    corner, size = lit_cell(panel)
    row, column = place
    inset = 0.06 * size[0]
    np.testing.assert_allclose(corner, (xs[column] - inset, ys[row] - inset), atol=1e-4)
    (arrow,) = panel.findobj(Annotation)
    np.testing.assert_allclose(
        np.abs(np.subtract(arrow.xy, corner) - np.divide(size, 2)), np.divide(size, 2), atol=1e-9
    )
    at = ", ".join(map(str, cell))
    assert f"First difference: {name}[{at}] = " in film.get_label()
    others = [ax for ax in film.axes if ax is not panel]
    assert not any(p.get_label() == "first difference" for ax in others for p in ax.patches)


def test_the_cell_of_the_drawn_sequence_comes_first():
    right, _ = recorded(B=3)

    def change(array):
        array[1, 0, 2, 1] += 1
        array[2, 1, 0, 0] += 1
        return array

    wrong = subset(right, "d_weights", "d_scores", "d_q", d_scores=change)
    film = backward_film(wrong, reference=right, sequence=2)
    assert "d_scores[2, 1, 0, 0] =" in verdict_of(film)
    lit_cell(gradient_panel(film, "d_scores"))
    film = backward_film(wrong, reference=right)
    assert "d_scores[1, 0, 2, 1] =" in verdict_of(film)
    assert "none of them in sequence 0: draw it with sequence=1" in verdict_of(film)
    panel = gradient_panel(film, "d_scores")
    assert not [p for p in panel.patches if p.get_label() == "first difference"]


def test_another_shape_diverges():
    right, _ = recorded()
    wrong = steps_of(("d_scores", right["d_scores"], "B H T_q T_k"),
                     ("d_k", right["d_k"].swapaxes(2, 3), "B H_kv d_k T_k"))  # fmt: skip
    film = backward_film(wrong, reference=right)
    expected = "First difference: d_k has the shape (1, 2, 4, 5), expected (1, 2, 5, 4)"
    assert expected in verdict_of(film)
    corner, size = lit_cell(gradient_panel(film, "d_k"))
    squares = squares_of(gradient_panel(film, "d_k"))
    for i in (0, 1):
        assert corner[i] < min(square[i + 1] for square in squares)
        assert corner[i] + size[i] > max(square[i + 1] for square in squares)


def test_steps_of_one_s_own_borrow_arrays_and_heads_from_the_reference():
    right, _ = recorded()
    own = subset(right, "d_q_projected")
    array, gradient = backward_film(own, reference=right).axes
    number = next(s.number for s in right if s.name == "q_projected")
    assert title_of(array) == f"{number} q_projected"
    assert "the reference's" in lines_of(array)
    assert colors_of(gradient) == [head_color(0), head_color(1)]
    array, gradient = backward_film(own).axes
    assert "not recorded" in lines_of(array)


ODD = np.array([1.0, np.nan, np.inf, 2.0])


@pytest.mark.parametrize(
    ("mine", "expected", "verdict"),
    [
        (np.ones(2), np.array([1, 1 + 2e-13]), "Agrees"),  # a thousand roundings of the largest
        (np.ones(2), np.array([1, 1 + 2.5e-13]), "First difference: d_x[1] ="),
        (np.array([1, 1e-16]), np.array([1, -3e-16]), "Agrees"),  # 0 but for rounding
        (np.array([0.1, 0.7]), np.float32([0.1, 0.7]), "Agrees"),  # by its own rounding
        (ODD, ODD, "Agrees"),
        (ODD * [1, 1, 1, np.nan], ODD, "d_x[3] = nan, expected 2; 1 of 4 cells"),
        (np.ones(3), np.ones(3) + 1e-5, "d_x[0] = 1, expected 1.00001;"),  # digits that differ
    ],
)
def test_which_numbers_differ(mine, expected, verdict):
    film = backward_film(steps_of(("d_x", mine, "D")), reference={"d_x": expected})
    assert verdict in verdict_of(film)


def test_traces_without_heads_are_drawn():
    t = recorded_rank_2()
    film = backward_film(t)
    titles = [(title_of(a).split()[1], title_of(g).split()[1]) for a, g in
              zip(film.axes[::2], film.axes[1::2], strict=True)]  # fmt: skip
    assert titles == [
        (name, f"d_{name}")
        for name in ("heads", "weights", "v", "biased", "capped", "bias", "scores", "q", "k")
    ]
    assert "no head" in words_of(film)


def test_one_number_and_no_number_are_drawn():
    t = steps_of(("d_loss", np.array(2.0), ""), ("d_x", np.ones((0, 3)), "T D"))
    film = backward_film(t, reference={"d_loss": np.array(1.0), "d_x": np.ones((0, 3))})
    assert "First difference: d_loss = 2, expected 1; 1 of 1 cells differ" in film.get_label()
    lit_cell(gradient_panel(film, "d_loss"))
    assert "no cells" in lines_of(gradient_panel(film, "d_x"))


def test_a_film_of_own_steps_needs_no_forward():
    with trace() as t:
        step("d_scores", np.ones((2, 2)), "T_q T_k", "weights * d_weights")
    assert [title_of(ax) for ax in backward_film(t).axes] == ["scores", "1 d_scores"]
