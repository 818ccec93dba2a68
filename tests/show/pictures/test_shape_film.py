"""The shape film, read back: one panel a step, cells where its axes say, in colours of heads."""

from functools import cache

import numpy as np
import pytest

from mha_numpy.core import RopeOptions
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures import shape_film
from tests.show.pictures.helpers import (
    grid_of,
    painted,
    panel_of,
    recorded,
    root_of,
    steps_of,
    texts_in,
    tokens_in,
)

HEADS = [f"head-{h}" for h in range(6)]
STEP = 1 / 16  # strengths are drawn in so many


@cache
def grouped_pass():
    """Draw a layer's forward pass once, for all tests that read it."""
    t, _ = recorded(2, 5, 12, 6, 2, rope=RopeOptions(), is_causal=True)
    return t, shape_film(t)


def test_a_head_has_one_colour_in_all_panels():
    _, film = grouped_pass()
    for name in ("q_projected", "q_by_token", "q", "weights", "heads", "merged"):
        assert tokens_in(panel_of(film, name)) == HEADS, name
    for name in ("x_q", "out"):
        assert tokens_in(panel_of(film, name)) == ["plain"]


def test_a_shared_head_has_the_colour_of_its_first_query_head_and_a_mark():
    _, film = grouped_pass()
    for panel in film.panels:
        name = panel.title.split()[1]
        is_shared = name in ("k", "v") or name.startswith(("k_", "v_"))
        assert ("◆" in panel.title) == is_shared
        if is_shared:
            assert tokens_in(panel) == ["head-0", "head-3"], panel.title
            assert {"0-2", "3-5"} <= set(texts_in(panel, "sh")), panel.title
    assert any(note.startswith("◆ A key/value head") for note in film.notes)


def test_words_are_beside_the_rows_of_their_axis():
    queries, keys = ["one", "two", "three"], ["a", "an extraordinarily long one", "c", "d"]
    arrays = [("q", np.ones((2, 3, 4)), "H T_q d_k"), ("k", np.ones((2, 4, 4)), "H T_k d_k"),
              ("w_q", np.ones((4, 8)), "D H*d_k")]  # fmt: skip
    film = shape_film(steps_of(*arrays), tokens=queries, source_tokens=keys)
    shown = {name: texts_in(panel_of(film, name), "w") for name, *_ in arrays}
    assert shown == {"q": queries * 2, "k": ["a", "an extra…", "c", "d"] * 2, "w_q": []}
    with pytest.raises(ConfigError, match="tokens: expected T_q=3 of them; got 4"):
        shape_film(steps_of(*arrays), tokens=keys)
    tiny = shape_film(steps_of(("q", np.ones((60, 300)), "T_q d_k")), tokens=["one"] * 60)
    assert texts_in(tiny.panels[0], "w") == []


def test_one_panel_for_each_step_in_order():
    t, film = grouped_pass()
    steps = [s for s in t if not s.is_backward]
    titles = [panel.title.removesuffix(" ◆") for panel in film.panels]
    assert titles == [f"{s.number} {s.name}" for s in steps]
    assert [texts_in(panel, "m")[0].split()[0] for panel in film.panels] == [
        str(s.number) for s in steps
    ]


def test_a_panel_tells_axes_sizes_memory_and_equation():
    t, film = grouped_pass()
    lines = {s.name: "".join(texts_in(panel_of(film, s.name), "sh")).replace(" ", "")
             for s in t if not s.is_backward}  # fmt: skip
    assert "[B=2,T_k=5,H_kv=2,d_k=2]viewofk_projected" in lines["k_by_token"]
    assert "[B=2,T_q=5,H*d_v=12]copyofheads_by_token" in lines["merged"]
    assert lines["scores"].endswith("↓T_q→T_k")
    assert "new=scale*q@k.repeat(G,axis=1).swapaxes(-1,-2)" in lines["scores"]
    assert "sequence 0 of a batch of 2" in film.alt


def test_the_chosen_sequence_is_drawn():
    x = np.arange(12.0).reshape(2, 2, 3)
    t = steps_of(("x", x, "B T D"))
    for b in range(2):
        shares = grid_of(shape_film(t, sequence=b).panels[0])["share"]
        expected = np.where(x[b] == 0, 0, 0.1 + 0.9 * x[b] / x[b].max())
        np.testing.assert_allclose(shares, expected, atol=STEP)


# the strength tells the element: 1, 2, 3, ... have strengths 0.1 + 0.9 * n / largest
@pytest.mark.parametrize(
    ("axes", "shape", "order"),
    [
        ("T_q H*d_k", (2, 6), "t h d"),
        ("T_q H d_k", (2, 3, 2), "t h d"),
        ("H*d_v D_out", (6, 2), "h d o"),
        ("H T_q d_k", (3, 2, 2), "h t d"),
    ],
)
def test_every_number_is_where_its_axes_say(axes, shape, order):
    array = np.arange(1.0, 13.0).reshape(shape)
    t = steps_of(("a", array, axes), ("sizes", np.ones((3, 1)), "H T_k"))
    panel = panel_of(shape_film(t), "a")
    cells = grid_of(panel)
    blue, red, green = HEADS[:3]
    expected = 0.1 + 0.9 * np.arange(1, 13) / 12
    if order == "t h d":  # a row is cut into pieces
        np.testing.assert_allclose(cells["share"], expected.reshape(2, 6), atol=STEP)
        assert cells["token"].tolist() == [[blue, blue, red, red, green, green]] * 2
    else:  # one block under another
        np.testing.assert_allclose(cells["share"], expected.reshape(6, 2), atol=STEP)
        assert cells["token"].tolist() == [[c, c] for c in (blue, blue, red, red, green, green)]
    xs, ys = (sorted({cell[i] for cell in painted(panel)}) for i in (3, 4))
    is_apart_x, is_apart_y = np.diff(xs) > 18, np.diff(ys) > 18
    assert is_apart_x.tolist() == [axes == "T_q H d_k" and i % 2 == 1 for i in range(len(xs) - 1)]
    assert is_apart_y.tolist() == [axes == "H T_q d_k" and i % 2 == 1 for i in range(len(ys) - 1)]


@pytest.mark.parametrize(
    ("axes", "shape", "colors"),
    [
        ("H", (3,), 3),
        ("B H", (1, 3), 3),
        ("T_q H", (4, 3), 3),
        ("B H T_q", (1, 3, 4), 3),
        ("L B H T_q d_k", (2, 1, 3, 2, 2), 3),
        ("H 1 T_k", (3, 1, 4), 3),
        ("H T_q T_k", (7, 2, 3), 7),
        ("D", (4,), 1),
        ("H*d_k", (6,), 3),
        ("", (), 1),
        ("V", (70,), 1),
        ("T H_kv*d", (2, 7), 1),  # a product of an unknown number of heads is grey
    ],
)
def test_any_axes_are_drawn_completely(axes, shape, colors):
    t = steps_of(("a", np.ones(shape), axes), ("d_sizes", np.ones((3, 1)), "H T_k"))
    panel = panel_of(shape_film(t), "a")
    assert len(tokens_in(panel)) == colors
    assert colors > 1 or tokens_in(panel) == ["plain"]
    assert sum(cell.kind == "more" for cell in painted(panel)) == np.prod(shape)


def test_a_stretched_axis_is_no_axis():
    panel = panel_of(shape_film(steps_of(("bias", np.ones((3, 1, 4)), "H 1 T_k"))), "bias")
    assert grid_of(panel).shape == (3, 4)
    assert texts_in(panel, "sh")[-1] == "↓ H  → T_k"
    assert "[H=3, 1, T_k=4]" in texts_in(panel, "sh")


@pytest.mark.parametrize(
    ("shape", "across"),
    [((H, 5, 5), n) for H, n in {1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 9: 3, 16: 4}.items()]
    + [((3, 12, 2), 3)],  # tall
)
def test_heads_that_are_apart_make_a_square(shape, across):
    H, rows, columns = shape
    (panel,) = shape_film(steps_of(("q", np.ones(shape), "H T_q d_k"))).panels
    assert grid_of(panel).shape == (rows * -(-H // across), columns * across)


def test_sizes_come_from_the_nearest_step():
    first, _ = recorded(D=8, H=2)
    second, _ = recorded(D=8, H=4)
    steps = [(s.name, s.array, s.axes) for t in (first, second) for s in t
             if s.name in ("q_projected", "q", "out")]  # fmt: skip
    film = shape_film(steps_of(*steps))
    projected = [panel for panel in film.panels if "q_projected" in panel.title]
    assert [len(tokens_in(panel)) for panel in projected] == [2, 4]


def test_hidden_cells_are_hatched_and_exact_zeros_are_empty():
    _, film = grouped_pass()
    masked, weights = (grid_of(panel_of(film, name)) for name in ("masked", "weights"))
    for cells, kind in ((masked, "hidden"), (weights, "")):
        assert (cells["kind"] == kind).sum() == 6 * 10
    assert not (weights["kind"] == "hidden").any()
    assert "Hatched: hidden (-inf)." in film.notes
    assert not any("NaN" in note for note in film.notes)


def test_nan_and_inf_are_marked_and_do_not_set_the_scale():
    film = shape_film(steps_of(("x", [[np.nan, 1.0, np.inf], [-np.inf, -2.0, 0.0]], "T D")))
    cells = grid_of(film.panels[0])
    assert cells["kind"].tolist() == [["broken", "more", "broken"], ["hidden", "less", ""]]
    assert cells["share"][0, 1] == pytest.approx(0.55, abs=STEP)
    assert cells["share"][1, 1] == pytest.approx(-1, abs=STEP)
    assert "Cross-hatched: NaN or +inf." in film.notes


def test_a_panel_says_what_is_odd():
    film = shape_film(
        steps_of(
            ("none", np.ones((2, 0, 3)), "H T d"),
            ("tall", np.ones((900, 4)), "V D"),
            ("small", np.ones((3, 4)), "T D"),
        )
    )
    for name, words in (("none", "no cells"), ("tall", "smaller"), ("small", "input")):
        assert words in " ".join(texts_in(panel_of(film, name))), name


def test_a_large_block_is_an_image():
    film = shape_film(steps_of(("a", np.ones((64, 4)), "T D"), ("b", np.ones((200, 4)), "T F")))
    for panel, is_image in zip(film.panels, (False, True), strict=True):
        images = [e for e in root_of(panel).iter() if e.tag.endswith("image")]
        assert bool(images) == is_image


def test_the_ninth_head_has_the_first_one_s_colour_and_its_own_number():
    (panel,) = shape_film(steps_of(("a", np.ones((2, 10)), "T H"))).panels
    assert grid_of(panel)["token"][0, 8:].tolist() == ["head-0", "head-1"]
    wide = shape_film(steps_of(("a", np.ones((10, 2, 2)), "H T d"))).panels[0]
    assert set("0123456789") <= set(texts_in(wide, "sh"))
