"""What is drawn, and how it is read back from the SVG: words, cells, colours; what is readable."""

import json
import re
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_backward, attention_forward, rope_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.look import tokens
from mha_numpy.show.pictures.labels import MINUS
from mha_numpy.show.pictures.svg import PHONE, width_of
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


SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("more", "less", "hidden", "broken", "cell")
SIZES = {"w": 16, "n": 14, "m": 14, "sh": 13, "s": 13, "t": 15, "v": 14, "says": 15}


class Word(NamedTuple):
    """A text as it is drawn."""

    text: str
    kinds: list[str]
    x: float
    y: float
    anchor: str
    is_turned: bool

    @property
    def size(self):
        return 13 if "s3" in self.kinds else SIZES[self.kinds[0]]

    @property
    def box(self):
        """Left, top, right, bottom; by what a text is taken to need."""
        wide = width_of(self.text, self.kinds[0], self.size)
        anchor = "middle" if self.kinds[0] == "n" else self.anchor
        start = {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        up, down = 0.72 * self.size, 0.22 * self.size
        if self.is_turned:
            return self.x - up, self.y - wide, self.x + down, self.y
        return self.x - start, self.y - up, self.x - start + wide, self.y + down


def root_of(drawing):
    return ElementTree.fromstring(drawing.svg())


def words_in(drawing):
    """Return every text of a drawing."""
    found = []
    for text in root_of(drawing).iter(f"{SVG}text"):
        at = text.attrib
        found.append(Word(
            text.text or "", at["class"].split(), float(at["x"]), float(at["y"]),
            at.get("text-anchor", "start"), "transform" in at,
        ))  # fmt: skip
    return found


def texts_in(drawing, kind=""):
    """Return the texts of a kind, with a minus that can be typed."""
    return [
        word.text.replace(MINUS, "-") for word in words_in(drawing)
        if not kind or kind in word.kinds
    ]  # fmt: skip


class Painted(NamedTuple):
    """A cell as it is drawn."""

    kind: str  # more, less, hidden, broken, or cell: its ground
    token: str
    strength: float
    x: float  # of its middle
    y: float
    wide: float


def painted(drawing):
    """Return every cell of a drawing that is a shape."""
    found = []
    for path in root_of(drawing).iter(f"{SVG}path"):
        kind = path.attrib.get("class", "")
        if kind not in KINDS:
            continue
        token = "".join(re.findall(r"var\(--m-([\w-]+)\)", path.attrib.get("style", "")))
        strength = float(path.attrib.get("opacity", 1))
        for box in path.attrib["d"].split("M")[1:]:
            numbers = re.match(r"([\d.]+) ([\d.]+)h([\d.]+)(?:a([\d.]+)[^v]*)?v([\d.]+)", box)
            x, y, across, r, down = (float(n or 0) for n in numbers.groups())
            middle = (round(x + across / 2, 1), round(y + r + down / 2, 1))
            found.append(Painted(kind, token, strength, *middle, across + 2 * r))
    return found


def grid_of(drawing, shape=None):
    """Return tokens, signed strengths and kinds of the cells, as rows and columns.

    Cells that are painted have a strength; hidden and broken ones have none.
    """
    cells = painted(drawing)
    ys, xs = (sorted({cell[i] for cell in cells}) for i in (4, 3))
    found = np.zeros((len(ys), len(xs)), [("token", "U12"), ("share", float), ("kind", "U8")])
    for cell in cells:
        at = ys.index(cell.y), xs.index(cell.x)
        if cell.kind in ("hidden", "broken"):
            found[at] = ("", np.nan, cell.kind)
        elif cell.kind != "cell":
            # a ring is never fainter than 0.3
            share = cell.strength if cell.kind == "more" else -(cell.strength - 0.3) / 0.7
            found[at] = (cell.token, share, cell.kind)
    return found if shape is None else found.reshape(shape)


def tokens_in(drawing):
    """Return the colours of the cells, in the order in which they are painted."""
    return list(dict.fromkeys(c.token for c in painted(drawing) if c.kind in ("more", "less")))


def panel_of(picture, name):
    """Return the panel of a step by its name."""
    (panel,) = (panel for panel in picture.panels if panel.title.split()[1] == name)
    return panel


def drawings_of(picture):
    return [*picture.panels, *(wide for wide in picture.wide if wide is not None)]


def assert_readable(picture, limit=PHONE):
    """Check sizes, places and colours of all that a picture draws."""
    for drawing in drawings_of(picture):
        svg, (width, height) = drawing.svg(), drawing.size
        assert width <= (limit if drawing in picture.panels else 800), (width, drawing.title)
        assert_well_made(svg)
        if "<svg" in svg[4:]:  # a chart
            sizes = [float(n) * 96 / 72 for n in re.findall(r"font-size: ([\d.]+)px", svg)]
            assert min(sizes, default=13) > 12.99
            continue
        words = words_in(drawing)
        for word in words:
            left, top, right, bottom = word.box
            assert word.size >= 13
            is_inside = left > -1 and top > -1 and right < width + 1 and bottom < height + 1
            assert is_inside, f"{word} is cut"
        for cell in painted(drawing):
            assert 0 < cell.x < width
            assert 0 < cell.y < height
        for i, one in enumerate(words):
            for other in words[i + 1 :]:
                low = np.maximum(one.box[:2], other.box[:2])
                high = np.minimum(one.box[2:], other.box[2:])
                assert not (high - low > 1).all(), f"{one.text!r} overlaps {other.text!r}"
    assert_well_made(picture.svg())


def assert_well_made(svg):
    """Check that a file says what it shows, brings no colour of its own, and keeps to itself."""
    root = ElementTree.fromstring(svg)
    assert root.attrib["role"] == "img"
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert len(ids) == len(set(ids))
    assert set(root.attrib["aria-labelledby"].split()) <= set(ids)
    assert all(re.match(r"m[0-9a-f]{8}-", name) for name in ids)
    title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title.text
    assert desc.text
    (style,) = (e.text for e in root.iter(f"{SVG}style"))
    known = {name: {light, dark} for name, (light, dark) in tokens().items()}
    for name, token, color in re.findall(r"--m-([\w-]+):var\(--([\w-]+),(#\w{6})\)", style):
        assert name == token
        assert color in known[token], color
    without = re.sub(r"--m-[\w-]+:var\(--[\w-]+,#\w{6}\);", "", svg)
    own = re.findall(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsl|oklab)\(", re.sub(r"#m\w+-", "", without))
    assert not own, own
    missing = set(re.findall(r"var\(--m-([\w-]+)\)", svg)) - set(
        re.findall(r"--m-([\w-]+):", style)
    )
    assert not missing, missing
    for selector in re.findall(r"(?:^|})\s*([^{}@]+){", re.sub(r"@media[^{]*{", "", style)):
        if not re.match(r"(?:from|to|\d)", selector.strip()):
            assert selector.strip().startswith(".mha-picture"), selector


def data_of(page):
    """Return the JSON that a page carries."""
    (text,) = re.findall(r'id="data">(.*?)</script>', page.to_html(), re.DOTALL)
    return json.loads(text)


def assert_needs_no_network(page):
    """Check that a page asks for nothing, and that its browser is told to refuse the rest."""
    html = page.to_html().replace("http://www.w3.org/2000/svg", "")
    assert "default-src 'none'" in html
    assert not re.findall(r"""https?:|src=|href=(?!.{1,2}#)|url\(|@import|import\(|fetch\(""", html)
