"""The backward film, read back: who is beside whom, signs, and the first difference."""

from functools import cache

import numpy as np
import pytest

import mha_numpy.core.attention as core_attention
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import RopeOptions, attention_backward, attention_forward
from mha_numpy.show.pictures import backward_film
from mha_numpy.show.pictures.svg import PHONE
from mha_numpy.steps import step
from tests.show.pictures.helpers import (
    assert_readable,
    painted,
    recorded,
    recorded_rank_2,
    root_of,
    steps_of,
    texts_in,
    tokens_in,
    words_in,
)


@cache
def whole_pass():
    """Draw a layer's whole backward pass once, for all tests that read it."""
    t, _ = recorded(B=2, D=12, H=6, H_kv=2, rope=RopeOptions(), is_causal=True)
    return t, backward_film(t)


def pair(film, name):
    """Return the panel of a gradient."""
    (panel,) = (panel for panel in film.panels if name in panel.title.split())
    return panel


def titles_of(panel):
    """Return the titles of the array and of its gradient."""
    return texts_in(panel, "m")


def lines_of(panel):
    return texts_in(panel, "sh")


def gradient_cells(panel):
    """Return the gradient's cells: right of its array, or below it."""
    array, gradient = (word for word in words_in(panel) if "m" in word.kinds)
    if gradient.x > array.x:
        return [cell for cell in painted(panel) if cell.x > gradient.x]
    return [cell for cell in painted(panel) if cell.y > gradient.y]


def grid_of(cells):
    """Return the kinds of cells as rows and columns."""
    ys, xs = (sorted({cell[i] for cell in cells}) for i in (4, 3))
    found = np.full((len(ys), len(xs)), "zero", object)
    for cell in cells:
        if cell.kind != "cell":
            found[ys.index(cell.y), xs.index(cell.x)] = cell.kind
    return found, np.array(xs), np.array(ys)


def verdict_of(film):
    return film.alt.split(". Each beside")[0].split(". ", 1)[1]


def frames_of(panel, kind="first"):
    """Return middle and size of the frames of a kind."""
    rects = [e.attrib for e in root_of(panel).iter() if e.attrib.get("class") == kind]
    boxes = [[float(at[side]) for side in ("x", "y", "width", "height")] for at in rects]
    return [(x + w / 2, y + h / 2, w, h) for x, y, w, h in boxes]


def subset(right, *names, **changes):
    """Return some of the gradients of a trace, some of them changed, as steps of one's own."""
    found = [(s.name, s.array.copy(), s.axes) for s in right if s.name in names]
    return steps_of(*((n, changes.get(n, np.array)(array), axes) for n, array, axes in found))


# who is beside whom


def test_each_gradient_is_beside_its_array_in_the_order_of_backward():
    t, film = whole_pass()
    names = [s.name for s in t if s.is_backward]
    assert [panel.title.split()[1] for panel in film.panels] == names
    beside = {"d_x": "x_q", "d_x_kv": "x_k"}
    for panel, name in zip(film.panels, names, strict=True):
        array, gradient = titles_of(panel)
        assert array.replace(" ◆", "").split()[-1].startswith(beside.get(name, name[2:])[:8])
        assert gradient.split()[1].startswith(name[:8])
        equation = next(s.equation for s in t if s.name == name)
        assert equation.replace(" ", "") in "".join(lines_of(panel)).replace(" ", "")
        one, other = (word for word in words_in(panel) if "m" in word.kinds)
        assert (other.x > PHONE / 2) != (other.y > one.y)
    heading = f"Backward film: {len(names)} gradients, sequence 0 of a batch of 2. Each beside"
    assert film.alt.startswith(heading)
    assert "d_w_q [D=12, H*d_k=12];" in film.alt


def test_a_param_is_beside_its_gradient_and_has_no_number():
    _, film = whole_pass()
    panel = pair(film, "d_w_q")
    assert titles_of(panel)[0] == "w_q"
    assert "constant" in lines_of(panel)


def test_cells_have_the_colour_of_their_head():
    _, film = whole_pass()
    for name in ("weights", "heads", "q", "q_by_token", "w_o"):
        assert tokens_in(pair(film, f"d_{name}")) == [f"head-{h}" for h in range(6)], name
    for name in ("k", "v_projected"):
        panel = pair(film, f"d_{name}")
        assert tokens_in(panel) == ["head-0", "head-3"], name
        assert "◆" in panel.title


def test_negative_cells_are_rings():
    array = np.array([[1.0, -2.0, 0.0], [-0.0, -np.inf, np.nan], [-4.0, 0.5, 3.0]])
    t = steps_of(("x", array, "T D"), ("d_x", array.copy(), "T D"))
    (panel,) = backward_film(t).panels
    expected = [["more", "less", "zero"], ["zero", "hidden", "broken"], ["less", "more", "more"]]
    gradient = gradient_cells(panel)
    array_cells = [cell for cell in painted(panel) if cell not in gradient]
    for cells in (gradient, array_cells):
        assert grid_of(cells)[0].tolist() == expected


def test_signs_of_many_heads_are_in_their_cells():
    right, _ = recorded(T=3, D=6, H=3)
    t = subset(right, "d_q_projected", "d_q_by_token", "d_w_o")
    film = backward_film(t, reference=right)
    for name, shape in (("d_q_projected", (3, 6)), ("d_q_by_token", (3, 6)), ("d_w_o", (6, 6))):
        found = grid_of(gradient_cells(pair(film, name)))[0]
        np.testing.assert_array_equal(found == "less", t[name].reshape(shape) < 0)


def test_two_passes_are_matched_last_with_first():
    t = Trace()
    for name, value in (("x", 1.0), ("x", 2.0), ("d_x", 3.0), ("d_x", 4.0)):
        t.record(name, np.full((2, 2), value), "T D", "")
    shown = [title for panel in backward_film(t).panels for title in titles_of(panel)]
    assert shown == ["2 x", "3 d_x", "1 x", "4 d_x"]
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
        assert all(panel.title.endswith(" =") for panel in film.panels)
        assert not any("the reference's" in lines_of(panel) for panel in film.panels)
        assert not any(frames_of(panel) for panel in film.panels)
    own = steps_of(*((s.name, s.array, s.axes) for s in right if s.name in ("d_q", "d_k")),
                   ("d_own", np.ones(2), "D"))  # fmt: skip
    film = backward_film(own, reference=right)
    assert verdict_of(film) == ("Agrees with the reference in the 2 of 3 gradients that both have")
    assert [panel.title for panel in film.panels] == ["1 d_q =", "2 d_k =", "3 d_own"]


def test_the_first_difference_of_a_forgotten_row_sum_is_in_d_scores(monkeypatch):
    def run():
        rng = np.random.default_rng(5)
        q, k, v = (rng.normal(size=(1, 2, *shape)) for shape in ((5, 4), (7, 4), (7, 3)))
        with trace() as t:
            out, cache = attention_forward(q, k, v)
            attention_backward(rng.normal(size=out.shape), cache)
        return t

    right = run()
    monkeypatch.setattr(
        core_attention, "softmax_steps_backward", lambda d, weights, *_: weights * d
    )
    wrong = run()
    film = backward_film(wrong, reference=right)
    errors = np.abs(wrong["d_scores"] - right["d_scores"])
    at = tuple(int(i) for i in np.unravel_index(errors.argmax(), errors.shape))
    got, expected = wrong["d_scores"][at], right["d_scores"][at]
    assert verdict_of(film) == (
        f"First difference: d_scores: 70 of 70 numbers differ, most at {list(at)}: {got:.4g}, "
        f"expected {expected:.4g}. In all, 3 of 6 gradients differ"
    )
    assert f"{verdict_of(film)}." in film.notes
    assert_readable(film)
    after = {panel.title.split()[1] for panel in film.panels if panel.title.endswith("≠")}
    assert after == {"d_scores", "d_q", "d_k"}
    started = [panel.title for panel in film.panels if frames_of(panel, "start")]
    assert [title.split()[1] for title in started] == ["d_scores"]
    assert "d_v [B=1, H_kv=2, T_k=7, d_v=3], agrees;" in film.alt
    assert "d_q [B=1, H=2, T_q=5, d_k=4], differs;" in film.alt


@pytest.mark.parametrize(
    ("name", "cell", "place"),
    [
        ("d_scores", (0, 1, 2, 3), (5 + 2, 3)),  # one head below the other
        ("d_q_by_token", (0, 3, 1, 2), (3, 4 + 2)),  # every row is cut into pieces
        ("d_q_projected", (0, 3, 6), (3, 6)),
        ("d_w_o", (5, 1), (5, 1)),
        ("d_x", (0, 4, 7), (4, 7)),
        ("d_b_q", (6,), (0, 6)),
    ],
)
def test_the_cell_that_differs_most_is_framed(name, cell, place):
    right, _ = recorded()

    def change(array):
        array[cell] += 2
        array.flat[[0, -1]] += 1  # the first and the last one differ, too, but less
        return array

    film = backward_film(subset(right, "d_out", name, **{name: change}), reference=right)
    assert len(film.panels) == 2
    panel = pair(film, name)
    _, xs, ys = grid_of(gradient_cells(panel))
    row, column = place
    assert frames_of(panel)
    for x, y, width, height in frames_of(panel):
        assert (x, y) == pytest.approx((xs[column], ys[row]), abs=0.2)
        assert width == height < 20
    assert "The first that differs: start here." in texts_in(panel, "t")
    assert f"First difference: {name}: " in film.alt
    assert f", most at {list(cell)}: " in film.alt
    assert not any(frames_of(other) for other in film.panels if other is not panel)


def test_a_cell_of_the_drawn_sequence_is_framed():
    right, _ = recorded(B=3)

    def change(array):
        array[1, 0, 2, 1] += 1
        array[2, 1, 0, 0] += 0.1
        return array

    wrong = subset(right, "d_weights", "d_scores", "d_q", d_scores=change)
    film = backward_film(wrong, reference=right, sequence=2)
    assert "most at [1, 0, 2, 1]" in verdict_of(film)
    assert frames_of(pair(film, "d_scores"))
    film = backward_film(wrong, reference=right)
    assert not frames_of(pair(film, "d_scores"))
    assert frames_of(pair(film, "d_scores"), "start")


def test_another_shape_diverges():
    right, _ = recorded()
    wrong = steps_of(("d_scores", right["d_scores"], "B H T_q T_k"),
                     ("d_k", right["d_k"].swapaxes(2, 3), "B H_kv d_k T_k"))  # fmt: skip
    film = backward_film(wrong, reference=right)
    expected = "First difference: d_k: expected shape (1, 2, 5, 4); got (1, 2, 4, 5)"
    assert expected in verdict_of(film)
    panel = pair(film, "d_k")
    assert not frames_of(panel)
    assert frames_of(panel, "start")


def test_steps_of_one_s_own_borrow_arrays_and_heads_from_the_reference():
    right, _ = recorded()
    own = subset(right, "d_q_projected")
    (panel,) = backward_film(own, reference=right).panels
    number = next(s.number for s in right if s.name == "q_projected")
    assert titles_of(panel)[0].startswith(f"{number} q_projected"[:10])
    assert "the reference's" in lines_of(panel)
    assert tokens_in(panel) == ["head-0", "head-1"]
    (panel,) = backward_film(own).panels
    assert titles_of(panel) == ["1 d_q_projected"]


ODD = np.array([1.0, np.nan, np.inf, 2.0])


@pytest.mark.parametrize(
    ("mine", "expected", "verdict"),
    [
        (np.ones(2), np.array([1, 1 + 2e-13]), "Agrees"),  # a thousand roundings of the largest
        (np.ones(2), np.array([1, 1 + 2.5e-13]), "d_x: 1 of 2 numbers differ, most at [1]"),
        (np.array([1, 1e-16]), np.array([1, -3e-16]), "Agrees"),  # 0 but for rounding
        (np.array([0.1, 0.7]), np.float32([0.1, 0.7]), "Agrees"),  # by its own rounding
        (ODD, ODD, "Agrees"),
        (ODD * [1, 1, 1, np.nan], ODD, "d_x: 1 of 4 numbers differ, most at [3]: nan, expected 2"),
        (np.ones(3), np.ones(3) + 1e-5, "most at [0]: 1, expected 1.00001"),  # digits that differ
    ],
)
def test_which_numbers_differ(mine, expected, verdict):
    film = backward_film(steps_of(("d_x", mine, "D")), reference={"d_x": expected})
    assert verdict in verdict_of(film)


def test_traces_without_heads_are_drawn():
    t = recorded_rank_2()
    film = backward_film(t)
    titles = [[title.split()[1] for title in titles_of(panel)] for panel in film.panels]
    assert titles == [
        [name, f"d_{name}"]
        for name in ("heads", "weights", "v", "biased", "capped", "bias", "scores", "q", "k")
    ]
    assert {token for panel in film.panels for token in tokens_in(panel)} == {"plain"}


def test_one_number_and_no_number_are_drawn():
    t = steps_of(("d_loss", np.array(2.0), ""), ("d_x", np.ones((0, 3)), "T D"))
    film = backward_film(t, reference={"d_loss": np.array(1.0), "d_x": np.ones((0, 3))})
    assert "First difference: d_loss: 2, expected 1" in film.alt
    assert frames_of(pair(film, "d_loss"))
    assert "no cells" in texts_in(pair(film, "d_x"), "s")


def test_a_film_of_own_steps_needs_no_forward():
    with trace() as t:
        step("d_scores", np.ones((2, 2)), "T_q T_k", "weights * d_weights")
    assert titles_of(backward_film(t).panels[0]) == ["1 d_scores"]
