"""What is drawn, and how it is read back: colours, cells, texts, and whether any overlap."""

import json
import re

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.image import AxesImage
from matplotlib.text import Text

from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_backward, attention_forward, rope_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.steps import step

SENTENCE = [
    "The", "animal", "didn't", "cross", "the", "street", "because",
    "it", "was", "too", "tired", ".",
]  # fmt: skip


def recorded(B=1, T=5, D=8, H=2, H_kv=None, *, rope=None, **options):
    """Trace forward and backward of a layer; also return the weights."""
    rng = np.random.default_rng(5)
    layer = MultiHeadAttention(D, H, H_kv, rope=rope, rng=0)
    with trace() as t:
        out, weights = layer(rng.normal(size=(B, T, D)), return_weights=True, **options)
        layer.backward(rng.normal(size=out.shape))
    return t, weights


def recorded_rank_2():
    rng = np.random.default_rng(5)
    q, k, v = rng.normal(size=(5, 4)), rng.normal(size=(7, 4)), rng.normal(size=(7, 3))
    bias = rng.normal(size=(5, 7))
    bias[1, 2] = -np.inf
    with trace() as t:
        out, cache = attention_forward(q, k, v, bias=bias, softcap=2.0)
        attention_backward(rng.normal(size=out.shape), cache)
    return t


def steps_of(*steps):
    """Trace arrays under names and axes of one's own, some with an equation."""
    with trace() as t:
        for name, array, *axes_and_equation in steps:
            step(name, np.asarray(array), *axes_and_equation)
    return t


def turned(positions):
    """Return a vector of four pairs, turned by RoPE: one (n, 2) array for each pair."""
    x = np.tile([1.0, 0], (positions, 4))
    out, _ = rope_forward(x, positions=np.arange(positions), interleaved=True)
    return {f"pair {i}": out[:, 2 * i : 2 * i + 2] for i in range(4)}


def ramp(*shape):
    return np.arange(np.prod(shape)).reshape(shape)


def two_splits(B=1, T=4, D=8, H=2):
    x = ramp(B, T, D)
    right = x.reshape(B, T, H, D // H).transpose(0, 2, 1, 3)
    return {"x": x, "right": right, "wrong": x.reshape(B, H, T, D // H)}


def stages_of_splitting(B, T, D, H):
    x = ramp(B, T, D).astype(float)
    by_token = x.reshape(B, T, H, D // H)
    q = by_token.transpose(0, 2, 1, 3)
    heads = np.eye(T) @ q
    merged = heads.swapaxes(1, 2).reshape(B, T, D)
    return {"x": x, "q_projected": x, "q_by_token = q_projected.reshape(B, T, H, d)": by_token,
            "q = q_by_token.transpose(0, 2, 1, 3)": q, "heads": heads,
            "heads_by_token": heads.swapaxes(1, 2), "merged": merged}  # fmt: skip


def panel_of(film, name):
    (panel,) = (ax for ax in film.axes if ax.get_title(loc="left").split()[1] == name)
    return panel


def texts_of(artist):
    """Return what is written, leaving out ticks that are switched off or beyond the axes."""
    found = [artist] if isinstance(artist, Text) else []
    for child in artist.get_children():
        if not isinstance(child, Axis):
            found += texts_of(child)
        elif child.axes.axison:
            found += [child.label, child.get_offset_text(), *ticks_of(child)]
    return [text for text in found if text.get_visible() and text.get_text()]


def all_words(artist):
    return [text.get_text() for text in texts_of(artist)]


def words_across(ax):
    return [label.get_text() for label in ax.get_xticklabels()]


def words_down(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def ticks_of(axis):
    """Return the labels of the ticks within the limits of the axes."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks()
            if tick.label1.get_text() and low <= tick.get_loc() <= high]  # fmt: skip


def extent_of(text):
    """Return the box of a text in pixels, without the arrow of an annotation."""
    return Text.get_window_extent(text)


def words_of(picture):
    """Return what stands above the panels: heading, notes and legend."""
    legends = [text for legend in picture.legends for text in legend.get_texts()]
    return [text.get_text() for text in [*picture.texts, *legends]]


def colors_of(panel):
    """Return the full colour of every block, in order."""
    drawn = [c for c in panel.collections if c.get_array() is not None] + list(panel.images)
    return [to_hex(artist.get_cmap()(1.0)) for artist in drawn]


def squares_of(panel):
    """Return one (color, x, y, shade) per square, x and y of its upper left corner."""
    found = []
    for squares in panel.collections:
        if squares.get_array() is None:
            continue
        corners = [path.vertices.min(axis=0) for path in squares.get_paths()]
        color = to_hex(squares.get_cmap()(1.0))
        shades = np.ma.filled(squares.get_array(), np.nan)
        found += [(color, *xy, shade) for xy, shade in zip(corners, shades, strict=True)]
    return found


def grid_of(panel):
    """Return colours and shades as they lie on the page: left to right, top to bottom."""
    squares = squares_of(panel)
    xs, ys = (sorted({round(square[i], 6) for square in squares}) for i in (1, 2))
    colors = np.full((len(ys), len(xs)), "", dtype=object)
    shades = np.full(colors.shape, np.nan)
    for color, x, y, shade in squares:
        at = ys.index(round(y, 6)), xs.index(round(x, 6))
        colors[at], shades[at] = color, shade
    return colors, shades, np.array(xs), np.array(ys)


def cells_of(ax):
    """Return the colours of the cells of a heatmap or a matrix."""
    (image,) = ax.images
    return np.asarray(image.get_array())


def contrast(one, other):
    """Return the contrast of two colours, each (red, green, blue), as accessibility counts it."""
    parts = np.array([one, other])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    low, high = np.sort(linear @ (0.2126, 0.7152, 0.0722) + 0.05)
    return high / low


def hatched(panel, label="hidden"):
    """Return the corners of every hatched strip: (strips, 4, 2)."""
    paths = [patch.get_path() for patch in panel.patches if patch.get_label() == label]
    return np.array([path.vertices for path in paths]).reshape(-1, 5, 2)[:, :4]


def hatched_cells(panel, shape, label="hidden"):
    """Return which cells the hatched strips cover."""
    covered = np.zeros(shape, bool)
    for (x0, y0), _, (x1, y1), _ in hatched(panel, label).round().astype(int):
        covered[y0:y1, x0:x1] = True
    return covered


def data_of(page):
    """Return the JSON that a page carries."""
    (text,) = re.findall(r'id="data">(.*?)</script>', page.to_html(), re.DOTALL)
    return json.loads(text)


def assert_needs_no_network(page):
    """Check that a page asks for nothing, and that its browser is told to refuse the rest."""
    html = page.to_html().replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in html
    assert not re.findall(r"""https?:|src=|href=(?!.{1,2}#)|url\(|@import|import\(|fetch\(""", html)


def size_of_cells(ax):
    """Return width and height of a cell in pixels."""
    if ax.images:
        return ax.bbox.width / np.ptp(ax.get_xlim()), ax.bbox.height / np.ptp(ax.get_ylim())
    return np.ptp(ax.transData.transform(ax.collections[0].get_paths()[0].vertices), axis=0)


def assert_nothing_overlaps(figure):
    """Check the boxes of all texts against each other, the drawn cells and the figure's edge."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # places are needed, not pixels
    for ax in figure.axes:
        is_head = ax.get_label().startswith("head")
        inside_cells = [text for text in ax.texts if is_head or text.get_label() == "number"]
        longest = max(inside_cells, key=lambda text: len(text.get_text()), default=None)
        if longest is not None and longest.get_label() == "number":
            cell, words = size_of_cells(ax), extent_of(longest)
            assert words.width < cell[0], f"{longest.get_text()!r} is wider than its cell"
            assert words.height < cell[1]
        for text in inside_cells:
            text.set_visible(False)
    texts = texts_of(figure)
    assert not any(text.get_parse_math() for text in texts if "$" in text.get_text())
    boxes = [(text.get_text(), extent_of(text)) for text in texts]
    for ax in figure.axes:
        for artist in [*ax.collections, *ax.images]:
            if isinstance(artist, AxesImage):
                box = artist.get_window_extent()
            else:
                box = artist.get_datalim(ax.transData).transformed(ax.transData)
            if artist.get_array() is not None or artist.get_label() == "cells":
                boxes.append((f"cells of {ax.get_label()}", box))
    assert len(boxes) > len(figure.axes)
    edges = np.array([box.extents for _, box in boxes])  # (boxes, 4): x0, y0, x1, y1
    limits = np.array([0, 0, figure.bbox.x1, figure.bbox.y1])
    outside = np.where([True, True, False, False], edges < limits, edges > limits).any(axis=1)
    assert not outside.any(), f"{[boxes[i][0] for i in np.flatnonzero(outside)]} is cut"
    low, high = np.array_split(edges, 2, axis=1)
    common = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)  # (boxes, boxes, 2)
    for i, j in np.argwhere(np.triu((common > 0.5).all(axis=2), 1)):
        a, b = boxes[i][0], boxes[j][0]
        are_one_panel = a.startswith("cells of") and a == b
        assert are_one_panel, f"{a!r} overlaps {b!r}"
