"""Weights by head, read back; what all pictures share: colours, files, notebooks."""

import subprocess
import sys
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest

from mha_numpy.core import causal_mask
from mha_numpy.show.pictures import (
    backward_film,
    bar_chart,
    line_chart,
    matrices,
    save_figure,
    shape_film,
    weights_by_head,
)
from tests.show.pictures.helpers import (
    SENTENCE,
    grid_of,
    recorded,
    root_of,
    steps_of,
    texts_in,
    tokens_in,
    words_in,
)

LABELS = {"title": "t", "x_label": "x", "y_label": "y"}
STEP = 1 / 16  # strengths are drawn in so many


def test_a_head_has_its_words_numbers_colour_and_mark():
    _, weights = recorded(T=12)
    picture = weights_by_head(weights, SENTENCE)
    assert [panel.title for panel in picture.panels] == ["head 0", "head 1"]
    for h, drawings in enumerate(zip(picture.panels, picture.wide, strict=True)):
        for drawing, token in zip(drawings, (f"head-{h}", f"fill-{h}"), strict=True):
            np.testing.assert_allclose(grid_of(drawing)["share"], weights[0, h], atol=STEP)
            assert tokens_in(drawing) == [token]
            assert texts_in(drawing, "w") == SENTENCE * 2
            (mark,) = (
                e for e in root_of(drawing).iter()
                if e.attrib.get("style") == f"fill:var(--m-head-{h})"
                and "class" not in e.attrib
            )  # fmt: skip
            assert mark.tag.endswith(("circle", "rect")[h])
        assert texts_in(drawings[0], "n") == []
        assert texts_in(drawings[1], "n") == [f"{n:.2f}"[1:] for n in weights[0, h].flat]


def test_one_head_at_two_times_has_one_colour_and_a_mean_has_none():
    weights = np.full((3, 2, 2), 0.5)
    names = ["before", "after", "mean"]
    picture = weights_by_head(weights, ["a", "b"], head_names=names, heads=[1, 1, None])
    assert [tokens_in(panel) for panel in picture.panels] == [["fill-1"], ["fill-1"], ["fill-x"]]
    assert ["head-1" in panel.used for panel in picture.panels] == [True, True, False]


def test_wide_drawings_are_shown_where_all_fit_into_one_row():
    """Pictures that are compared are side by side."""
    alone, pair = (
        weights_by_head(np.full((H, 12, 12), 1 / 12), SENTENCE) for H in (1, 2)
    )  # fmt: skip
    assert "<source" in alone._repr_html_()
    assert "<source" not in pair._repr_html_()


def test_numbers_are_bold_from_a_tenth_on_and_exact_ones_are_short():
    (panel,) = weights_by_head(np.array([[[0.88, 0.12], [0.99, 0.01]]]), ["a", "b"]).panels
    bold = {word.text: "b" in word.kinds for word in words_in(panel) if "n" in word.kinds}
    assert bold == {".88": True, ".12": True, ".99": True, ".01": False}
    (panel,) = weights_by_head(np.array([[[1.0, 0.0]]]), ["a"], ["b", "c"]).panels
    assert texts_in(panel, "n") == ["1", "0"]


def test_queries_and_keys_have_labels_of_their_own():
    weights = np.full((1, 2, 3), 1 / 3)
    picture = weights_by_head(weights, ["q0", "q1"], ["k0", "k1", "k2"], query_name="those")
    assert texts_in(picture.panels[0], "w") == ["k0", "k1", "k2", "q0", "q1"]
    assert texts_in(picture.panels[0], "n") == [".33"] * 6
    assert "Rows: those. Columns: keys. The weights of a row sum to 1." in picture.notes


def test_many_tokens_have_no_numbers_and_as_many_labels_as_fit():
    picture = weights_by_head(np.full((1, 64, 64), 1 / 64), [f"token {i}" for i in range(64)])
    (panel,) = picture.panels
    (wide,) = picture.wide
    assert wide.size[0] > 1.5 * panel.size[0]  # its cells use the room
    assert texts_in(wide, "n") == texts_in(panel, "n") == []
    down = [word.text for word in words_in(panel) if not word.is_turned and "w" in word.kinds]
    assert down == [f"token {i}" for i in range(0, 64, 5)]
    assert "The strongest colour is a weight of 1." in picture.notes


def test_hidden_cells_are_hatched_and_have_no_number():
    mask = causal_mask(5).copy()
    mask[2] = False
    mask[3] = False
    _, weights = recorded(mask=mask)
    picture = weights_by_head(weights, SENTENCE[:5], visible=mask)
    for panel in picture.panels:
        cells = grid_of(panel)
        np.testing.assert_array_equal(cells["kind"] == "hidden", ~mask)
        assert texts_in(panel, "s") == ["sees nothing"]
        assert len(texts_in(panel, "n")) == mask.sum()
    assert "Hatched: hidden, may not attend." in picture.notes


def test_visible_may_differ_between_heads_and_sequences():
    visible = np.ones((2, 2, 3, 3), bool)
    visible[0, 0, 1, 2] = visible[0, 1, 2, 1] = visible[1, 1, 0, 0] = False
    weights = np.full((2, 2, 3, 3), 1 / 3) * visible
    for seen, panel in zip(
        visible[0], weights_by_head(weights, "abc", visible=visible).panels, strict=True
    ):
        np.testing.assert_array_equal(grid_of(panel)["kind"] == "hidden", ~seen)


def test_a_row_of_zeros_sees_nothing_and_nan_is_marked():
    weights = np.array([[[0.5, 0.5], [0, 0]], [[1, 0], [np.nan, np.nan]]])
    first, second = weights_by_head(weights, ["a", "b"]).panels
    assert texts_in(first, "n") == [".50", ".50"]
    assert texts_in(first, "s") == ["∅"]
    assert (grid_of(first)["kind"] == "hidden").tolist() == [[False] * 2, [True] * 2]
    assert texts_in(second, "n") == ["1", "0"]
    assert (grid_of(second)["kind"] == "broken").tolist() == [[False] * 2, [True] * 2]


def test_heads_may_have_names():
    weights = np.full((2, 2, 3, 3), 1 / 3)
    names = ["layer 1: the token before", "layer 2"]
    picture = weights_by_head(weights, "abc", head_names=names)
    assert [" ".join(texts_in(panel, "t")) for panel in picture.panels] == names
    assert "layer 2 gives most weight to a (0.33)" in picture.alt


def test_odd_labels_are_one_visible_line():
    labels = ["$x$", "\n", "", " ", "a_{1}$", "long" * 20, "▁the"]
    (panel,) = weights_by_head(np.full((1, 7, 7), 1 / 7), labels).panels
    shown = texts_in(panel, "w")[:7]
    assert shown[:5] == ["$x$", r"'\n'", "''", "' '", "a_{1}$"]
    assert shown[5].startswith("longlong")
    assert shown[5].endswith("…")


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
            "b": bar_chart({"a": 1}, title="t"),
        }
        return [path for name, figure in figures.items()
                for path in save_figure(figure, tmp_path / folder / name)]  # fmt: skip

    first, second = draw("one"), draw("two")
    assert [path.name for path in first] == ["film.v1.svg", "w.svg", "m.svg", "l.svg", "b.svg"]
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes() == again.read_bytes()
        assert path.stat().st_size < 300_000
    svg = first[0].read_text()
    assert "Shape film of the forward pass: 1 step</title>" in svg
    assert "1 scores [H=2, T_q=30, T_k=30]" in svg
    assert "head 1 gives most weight to &lt;" in first[1].read_text()


def test_a_file_shows_title_notes_and_all_panels_in_rows(tmp_path):
    weights = np.full((5, 6, 6), 1 / 6)
    picture = weights_by_head(weights, SENTENCE[:6], note="Random params.")
    (path,) = save_figure(picture, tmp_path / "w.svg")
    root = ElementTree.fromstring(path.read_text())
    texts = [e.text for e in root.iter() if e.tag.endswith("text")]
    assert texts[:2] == ["Attention weights of 5 heads", "Random params."]
    nested = [e.attrib for e in root if e.tag.endswith("svg")]
    corners = [(float(at["y"]), float(at["x"])) for at in nested]
    assert corners == sorted(corners)
    assert len({y for y, _ in corners}) == 3  # two in a row
    assert float(root.attrib["width"]) <= 672


def test_a_note_is_in_the_caption_and_in_the_alt_text():
    t = steps_of(("x", np.ones((2, 2)), "T D"), ("d_x", np.ones((2, 2)), "T D"))
    note = "Random params: nothing here is trained."
    for picture in (
        shape_film(t, note=note), backward_film(t, note=note),
        weights_by_head(np.ones((1, 1, 1)), "a", note=note),
    ):  # fmt: skip
        assert picture.notes[0] == note
        assert f". {note} " in picture.alt
        assert f"{picture.title}</strong>{note}" in picture._repr_html_()


def test_a_notebook_gets_images_with_words():
    html = weights_by_head(np.full((2, 2, 2), 0.5), ['"a"', "<b>"])._repr_html_()
    assert html.count("<img") == 2
    assert 'alt="head 1 gives most weight to &quot;a&quot; (0.50)."' in html
    assert "<script" not in html
    assert "<svg" not in html
    for data in html.split("data:image/svg+xml;base64,")[1:]:
        svg = b64decode(data.split('"')[0]).decode()
        assert "@media (prefers-color-scheme: dark)" in svg
        assert 'class="ground" style="fill:var(--m-card)"' in svg
    alone = weights_by_head(np.full((1, 2, 2), 0.5), ["a", "b"])
    assert f'alt="{alone.alt}"' in alone._repr_html_()


@pytest.mark.slow
def test_cells_are_drawn_without_matplotlib_and_charts_stay_out_of_pyplot():
    code = (
        "import sys\n"
        "from mha_numpy.show.pictures import bar_chart, sharing_map\n"
        "sharing_map(2, 1)._repr_html_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
