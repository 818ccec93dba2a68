"""Pictures, read back from their artists: colours, cells, labels."""

import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from mha_numpy.core import RopeOptions, causal_mask
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures import (
    backward_film,
    bar_chart,
    fade,
    group_color,
    head_color,
    line_chart,
    matrices,
    save_figure,
    shape_film,
    weights_by_head,
)
from mha_numpy.show.pictures.colors import NO_HEAD, text_on
from tests.show.pictures.helpers import (
    SENTENCE,
    all_words,
    cells_of,
    colors_of,
    contrast,
    grid_of,
    hatched,
    hatched_cells,
    panel_of,
    recorded,
    squares_of,
    steps_of,
    words_across,
    words_down,
    words_of,
)

LABELS = {"title": "t", "x_label": "x", "y_label": "y"}


@cache
def grouped_pass():
    """Draw both passes of a layer once, for all tests that read them."""
    t, _ = recorded(2, 5, 12, 6, 2, rope=RopeOptions(), is_causal=True)
    return t, shape_film(t), shape_film(t, backward=True)


# colours


def test_heads_have_colours_of_their_own():
    assert len({head_color(h) for h in range(16)}) == 16
    assert NO_HEAD.lower() not in {head_color(h) for h in range(16)}
    assert head_color(16) == head_color(0)
    assert [group_color(g, 3) for g in range(2)] == [head_color(0), head_color(3)]


def test_text_is_legible_on_every_shade():
    for h in range(16):
        for shade in np.linspace(0, 1, 21):
            ground = fade(head_color(h))(shade)
            assert contrast(ground[:3], to_rgb(text_on(ground))) > 4, (h, shade)


def test_a_head_has_one_colour_in_the_film_and_in_the_heatmaps():
    _, film, _ = grouped_pass()
    expected = [head_color(h) for h in range(6)]
    for name in ("q_projected", "q_by_token", "q", "weights", "heads", "merged"):
        assert colors_of(panel_of(film, name)) == expected, name
    heatmaps = weights_by_head(np.ones((6, 1, 1)), ["a"]).axes[:6]
    assert [to_hex(cells_of(ax)[0, 0]) for ax in heatmaps] == expected
    assert [to_hex(ax.spines["left"].get_edgecolor()) for ax in heatmaps] == expected
    for name in ("x_q", "out"):
        assert colors_of(panel_of(film, name)) == [NO_HEAD.lower()]


def test_a_shared_head_has_the_colour_of_its_first_query_head_and_a_mark():
    for film in grouped_pass()[1:]:
        for ax in film.axes:
            title = ax.get_title(loc="left")
            name = title.split()[1].removeprefix("d_")
            is_shared = name in ("k", "v", "w_k", "w_v", "b_k", "b_v") or name.startswith(
                ("k_", "v_")
            )
            assert ("◆" in title) == is_shared, title
            if is_shared:
                assert colors_of(ax) == [head_color(0), head_color(3)], title
                assert {"0-2", "3-5"} <= set(all_words(ax)), title


# the film: what is where


def test_tokens_stand_beside_the_rows_of_their_axis():
    queries, keys = ["one", "two", "three"], ["a", "an extraordinarily long one", "c", "d"]
    arrays = [("q", np.ones((2, 3, 4)), "H T_q d_k"), ("k", np.ones((2, 4, 4)), "H T_k d_k"),
              ("w_q", np.ones((4, 8)), "D H*d_k")]  # fmt: skip
    film = shape_film(steps_of(*arrays), tokens=queries, source_tokens=keys)
    shown = {name: all_words(panel_of(film, name)) for name, *_ in arrays}
    assert ["one" in texts for texts in shown.values()] == [True, False, False]
    assert ["an extra…" in texts for texts in shown.values()] == [False, True, False]
    with pytest.raises(ConfigError, match="tokens: expected one label for each of T_q"):
        shape_film(steps_of(*arrays), tokens=keys)
    tiny = shape_film(steps_of(("q", np.ones((60, 300)), "T_q d_k")), tokens=["one"] * 60)
    assert "one" not in all_words(panel_of(tiny, "q"))


def test_one_panel_for_each_step_in_order():
    t, *films = grouped_pass()
    for backward, film in enumerate(films):
        steps = [s for s in t if s.is_backward == backward]
        titles = [ax.get_title(loc="left").removesuffix(" ◆") for ax in film.axes]
        assert titles == [f"{s.number} {s.name}" for s in steps]
        corners = [(-round(ax.get_position().y1, 4), ax.get_position().x0) for ax in film.axes]
        assert corners == sorted(corners)


def test_a_panel_tells_axes_sizes_memory_and_equation():
    t, film, _ = grouped_pass()
    lines = {s.name: all_words(panel_of(film, s.name)) for s in t if not s.is_backward}
    assert {"[B=2, T_k=5, H_kv=2, d_k=2]", "view of k_projected"} <= set(lines["k_by_token"])
    assert {"[B=2, T_q=5, H*d_v=12]", "copy of heads_by_token"} <= set(lines["merged"])
    assert {"new", "T_q", "T_k"} <= set(lines["scores"])
    code = "".join(lines["scores"]).replace(" ", "")
    assert "=scale*q@k.repeat(G,axis=1).swapaxes(-1,-2)" in code
    assert "sequence 0 of a batch of 2" in film.get_label()


def test_the_chosen_sequence_is_drawn():
    x = np.arange(12.0).reshape(2, 2, 3)
    t = steps_of(("x", x, "B T D"))
    for b in range(2):
        _, shades, _, _ = grid_of(panel_of(shape_film(t, sequence=b), "x"))
        expected = np.where(x[b] == 0, 0, 0.1 + 0.9 * x[b] / x[b].max())
        np.testing.assert_allclose(shades, expected)


# shade identifies the element: 1, 2, 3, ... have shades 0.1 + 0.9 * n / largest
@pytest.mark.parametrize(
    ("axes", "shape", "order"),
    [
        ("T_q H*d_k", (2, 6), "t h d"),
        ("T_q H d_k", (2, 3, 2), "t h d"),
        ("H*d_v D_out", (6, 2), "h d o"),
        ("H T_q d_k", (3, 2, 2), "h t d"),
    ],
)
def test_every_number_lies_where_its_axes_say(axes, shape, order):
    array = np.arange(1.0, 13.0).reshape(shape)
    t = steps_of(("a", array, axes), ("sizes", np.ones((3, 1)), "H T_k"))
    colors, shades, xs, ys = grid_of(panel_of(shape_film(t), "a"))
    numbers = (shades - 0.1) / 0.9 * 12
    blue, red, green = (head_color(h) for h in range(3))
    if order == "t h d":  # a row is cut into pieces
        np.testing.assert_allclose(numbers, np.arange(1, 13).reshape(2, 6))
        assert colors.tolist() == [[blue, blue, red, red, green, green]] * 2
    else:  # one block under another
        np.testing.assert_allclose(numbers, np.arange(1, 13).reshape(6, 2))
        assert colors.tolist() == [[c, c] for c in (blue, blue, red, red, green, green)]
    cell = xs[1] - xs[0]
    is_apart_x, is_apart_y = np.diff(xs) > 1.2 * cell, np.diff(ys) > 1.2 * cell
    assert is_apart_x.any() == (axes == "T_q H d_k")
    assert is_apart_x.tolist() in ([False, True, False, True, False], [False] * len(is_apart_x))
    apart_rows = {"T_q H d_k": [True], "H T_q d_k": [False, True, False, True, False]}
    assert is_apart_y.tolist() == apart_rows.get(axes, [False] * (len(ys) - 1))


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
        ("V", (200,), 1),
        ("T H_kv*d", (2, 7), 1),  # a product of an unknown number of heads is grey
    ],
)
def test_any_axes_are_drawn_completely(axes, shape, colors):
    t = steps_of(("a", np.ones(shape), axes), ("d_sizes", np.ones((3, 1)), "H T_k"))
    film = shape_film(t)
    panel = panel_of(film, "a")
    assert len(colors_of(panel)) == colors
    assert colors > 1 or colors_of(panel) == [NO_HEAD.lower()]
    cells = sum(np.size(a.get_array()) for a in [*panel.collections, *panel.images])
    assert cells == np.prod(shape)


def test_a_stretched_axis_is_no_axis():
    panel = panel_of(shape_film(steps_of(("bias", np.ones((3, 1, 4)), "H 1 T_k"))), "bias")
    colors, _, _, ys = grid_of(panel)
    assert colors.shape == (3, 4)
    assert {"H", "T_k", "[H=3, 1, T_k=4]"} <= set(all_words(panel))
    np.testing.assert_allclose(np.diff(ys), ys[1] - ys[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "across"),
    [((H, 5, 5), n) for H, n in {1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 9: 3, 16: 4}.items()]
    + [((3, 12, 2), 3)],  # tall
)
def test_heads_that_stand_apart_make_a_square(shape, across):
    H, rows, columns = shape
    panel = panel_of(shape_film(steps_of(("q", np.ones(shape), "H T_q d_k"))), "q")
    assert grid_of(panel)[0].shape == (rows * -(-H // across), columns * across)


def test_sizes_come_from_the_nearest_step():
    first, _ = recorded(D=8, H=2)
    second, _ = recorded(D=8, H=4)
    steps = [(s.name, s.array, s.axes) for t in (first, second) for s in t
             if s.name in ("q_projected", "q", "out")]  # fmt: skip
    film = shape_film(steps_of(*steps))
    projected = [ax for ax in film.axes if "q_projected" in ax.get_title(loc="left")]
    assert [len(colors_of(ax)) for ax in projected] == [2, 4]


def test_hidden_cells_are_hatched_and_exact_zeros_are_white():
    _, film, _ = grouped_pass()
    masked, weights = panel_of(film, "masked"), panel_of(film, "weights")
    squares = squares_of(masked)
    assert sum(np.isnan(shade) for *_, shade in squares) == 6 * 10
    cell = squares[1][1] - squares[0][1]
    widths = np.ptp(hatched(masked)[:, :, 0], axis=1) / cell
    np.testing.assert_allclose(np.sort(widths), np.repeat([1, 2, 3, 4], 6))
    assert len(hatched(weights)) == 0
    assert sum(shade == 0 for *_, shade in squares_of(weights)) == 6 * 10
    assert "-inf: hidden" in words_of(film)
    assert "NaN or +inf" not in words_of(film)


def test_nan_and_inf_are_marked_and_do_not_set_the_scale():
    film = shape_film(steps_of(("x", [[np.nan, 1.0, np.inf], [-np.inf, -2.0, 0.0]], "T D")))
    panel = panel_of(film, "x")
    assert [len(hatched(panel, label)) for label in ("broken", "hidden")] == [2, 1]
    _, shades, _, _ = grid_of(panel)
    np.testing.assert_allclose(shades, [[np.nan, 0.55, np.nan], [np.nan, 1.0, 0.0]])
    assert "NaN or +inf" in words_of(film)


def test_a_panel_says_what_is_odd():
    film = shape_film(
        steps_of(
            ("none", np.ones((2, 0, 3)), "H T d"),
            ("tall", np.ones((900, 4)), "V D"),
            ("small", np.ones((3, 4)), "T D"),
        )
    )
    for name, words in (("none", "no cells"), ("tall", "input, drawn smaller"), ("small", "input")):
        assert words in all_words(panel_of(film, name))


def test_a_large_block_is_an_image():
    film = shape_film(steps_of(("a", np.ones((64, 4)), "T D"), ("b", np.ones((65, 4)), "T F")))
    assert panel_of(film, "a").collections
    assert not panel_of(film, "a").images
    assert panel_of(film, "b").images
    assert not panel_of(film, "b").collections


def test_colours_and_a_legend_of_many_heads_begin_again():
    film = shape_film(steps_of(("a", np.ones((2, 20)), "T H")))
    assert colors_of(film.axes[0])[16:] == colors_of(film.axes[0])[:4]
    assert "16 on: again" in words_of(film)
    assert film.get_figwidth() < 7.7  # the legend takes several lines


def test_the_number_of_columns_can_be_chosen():
    t = steps_of(*((name, np.ones((2, 2)), "T D") for name in "abcde"))
    for columns in (1, 4, 99):
        film = shape_film(t, columns=columns)
        assert len({round(ax.get_position().x0, 4) for ax in film.axes}) == min(
            columns, len(film.axes)
        )


# the heatmaps


def test_a_heatmap_has_its_tokens_numbers_and_scale():
    _, weights = recorded(T=12)
    picture = weights_by_head(weights, SENTENCE)
    assert [ax.get_title(loc="left") for ax in picture.axes[:-1]] == ["head 0", "head 1"]
    for h, ax in enumerate(picture.axes[:-1]):
        np.testing.assert_array_equal(cells_of(ax), fade(head_color(h))(weights[0, h]))
        assert words_across(ax) == SENTENCE
        assert words_down(ax) == SENTENCE
        assert ax.get_xlim() == (0, 12)
        assert ax.get_ylim() == (12, 0)
        numbers = {text.get_position(): text.get_text() for text in ax.texts}
        assert len(numbers) == 144
        assert numbers[3.5, 7.5] == f"{weights[0, h, 7, 3]:.2f}"[1:]
        assert len(hatched(ax)) == 0
    assert words_across(picture.axes[-1]) == ["0", ".25", ".5", ".75", "1"]


def test_queries_and_keys_have_labels_of_their_own():
    weights = np.full((1, 2, 3), 1 / 3)
    ax = weights_by_head(weights, ["q0", "q1"], ["k0", "k1", "k2"]).axes[0]
    assert words_down(ax) == ["q0", "q1"]
    assert words_across(ax) == ["k0", "k1", "k2"]
    assert [text.get_text() for text in ax.texts] == [".33"] * 6


def test_many_tokens_have_no_numbers_and_as_many_labels_as_fit():
    picture = weights_by_head(np.full((1, 64, 64), 1 / 64), [f"token {i}" for i in range(64)])
    ax = picture.axes[0]
    assert not ax.texts
    assert words_across(ax) == [f"token {i}" for i in range(0, 64, 2)]
    assert "Labels: one token of every 2." in words_of(picture)


def test_hidden_cells_of_a_heatmap_are_hatched_and_have_no_number():
    mask = causal_mask(5).copy()
    mask[2] = False
    mask[3] = False
    _, weights = recorded(mask=mask)
    picture = weights_by_head(weights, SENTENCE[:5], visible=mask)
    for ax in picture.axes[:2]:
        np.testing.assert_array_equal(hatched_cells(ax, (5, 5)), ~mask)
        words = [text for text in ax.texts if text.get_text() == "sees nothing"]
        assert [text.get_position() for text in words] == [(2.5, 3.0)]
        assert len(ax.texts) == mask.sum() + 1
    assert "hidden: may not attend" in words_of(picture)


def test_visible_may_differ_between_heads_and_sequences():
    visible = np.ones((2, 2, 3, 3), bool)
    visible[1, 0, 1, 2] = visible[0, 1, 0, 0] = False
    weights = np.full((2, 2, 3, 3), 1 / 3)
    first, second = weights_by_head(weights, "abc", visible=visible, sequence=1).axes[:2]
    np.testing.assert_array_equal(hatched_cells(first, (3, 3)), ~visible[1, 0])
    assert len(hatched(second)) == 0


def test_a_row_of_zeros_sees_nothing_and_nan_is_marked():
    weights = np.array([[[0.5, 0.5], [0, 0]], [[1, 0], [np.nan, np.nan]]])
    first, second = weights_by_head(weights, ["a", "b"]).axes[:2]
    assert [text.get_text() for text in first.texts] == [".50", ".50", "∅"]
    np.testing.assert_array_equal(hatched_cells(first, (2, 2)), [[0, 0], [1, 1]])
    assert [text.get_text() for text in second.texts] == ["1.00", "0"]
    assert hatched_cells(second, (2, 2), "broken").tolist() == [[False] * 2, [True] * 2]
    assert len(hatched(second)) == 0


def test_heads_may_have_names():
    weights = np.full((2, 2, 3, 3), 1 / 3)
    names = ["layer 1: the token before", "layer 2"]
    picture = weights_by_head(weights, "abc", head_names=names, sequence=1)
    assert [ax.get_title(loc="left") for ax in picture.axes[:2]] == names
    assert "layer 2 gives most weight to a (0.33)" in picture.get_label()


def test_odd_labels_are_one_visible_line():
    labels = ["$x$", "\n", "", " ", "a_{1}$", "long" * 20, "▁the"]
    picture = weights_by_head(np.full((2, 7, 7), 1 / 7), labels)
    shown = words_across(picture.axes[0])
    assert shown == ["$x$", r"'\n'", "''", "' '", "a_{1}$", "long" * 5 + "lon…", "▁the"]


# files and notebooks


@pytest.mark.slow
def test_files_are_the_same_bytes_each_time_and_carry_the_alt_text(tmp_path):
    cells = np.random.default_rng(1).normal(size=(2, 30, 30))
    t = steps_of(("scores", cells, "H T_q T_k"))
    weights, labels = np.abs(cells[:, :3, :3]) / 9, [f"<{i}>" for i in range(3)]

    def draw(folder):
        heads = weights_by_head(weights, labels, visible=causal_mask(3))
        figures = {
            "film.v1": shape_film(t),
            "w": heads,
            "m": matrices({"mask": causal_mask(64), "x": cells[0], "large": np.ones((200, 200))}),
            "l": line_chart([1, 2], {"a": np.ones(2), "b": np.zeros(2)}, **LABELS, log_x=True),
            "b": bar_chart({"a": 1}, title="t", against={"a": 2}),
        }
        return [path for name, figure in figures.items()
                for path in save_figure(figure, tmp_path / folder / name)]  # fmt: skip

    first, second = draw("one"), draw("two")
    assert [path.name for path in first[:4]] == ["film.v1.png", "film.v1.svg", "w.png", "w.svg"]
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes() == again.read_bytes()
    svg = first[1].read_text()
    assert "<title>Shape film of the forward pass: 1 step</title>" in svg
    assert "1 scores [H=2, T_q=30, T_k=30]" in svg
    assert "<dc:date>" not in svg
    assert b"Shape film of the forward pass" in first[0].read_bytes()
    assert "head 1 gives most weight to &lt;" in first[3].read_text()
    assert first[1].stat().st_size < 300_000
    assert first[5].stat().st_size < 500_000


def test_a_note_stands_under_the_heading_and_in_the_alt_text():
    t = steps_of(("x", np.ones((2, 2)), "T D"), ("d_x", np.ones((2, 2)), "T D"))
    note = "Random params: nothing here is trained."
    for picture in (
        shape_film(t, note=note), backward_film(t, note=note),
        weights_by_head(np.ones((1, 1, 1)), "a", note=note),
    ):  # fmt: skip
        assert words_of(picture)[1] == note
        assert f". {note} " in picture.get_label()


def test_a_notebook_gets_an_image_with_its_alt_text():
    picture = weights_by_head(np.full((1, 2, 2), 0.5), ['"a"', "<b>"])
    html = picture._repr_html_()
    assert 'alt="Attention weights of 1 head. One heatmap' in html
    assert "&quot;a&quot; (0.50)" in html
    assert '""a""' not in html
    assert 'src="data:image/png;base64,iVBOR' in html


@pytest.mark.slow
def test_figures_stay_out_of_pyplot():
    code = (
        "import sys\n"
        "from mha_numpy.show.pictures import sharing_map\n"
        "sharing_map(2, 1)._repr_html_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
