"""One drawing: words and cells in an SVG whose unit is a pixel of the narrowest phone.

Its colours are names, so that it follows the theme of the page that it is part of, and outside of a
page that of the system.
"""

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from unicodedata import combining, east_asian_width

import numpy as np
from PIL import Image  # matplotlib brings it

from mha_numpy.dtypes import Array
from mha_numpy.look import FAMILIES, tokens

PHONE, DESK = 326, 662  # units: the widest drawing on a phone, and in a column of text
MARGIN = 10  # from the drawing's edge to what is drawn
SMALL, NUMBER, LARGE = 13, 14, 15  # text: the least, a number, a title
LEVELS = 16  # of opacity, where cells are merged
ROUND = 14  # sides from here on have round corners, which are most of a picture's bytes

_SIZES = {
    "w": 16,
    "n": NUMBER,
    "m": NUMBER,
    "sh": SMALL,
    "s": SMALL,
    "t": LARGE,
    "v": NUMBER,
    "says": LARGE,
}
_RULES = f"""
.mha-picture text {{ font: 400 {NUMBER}px {FAMILIES["sans"]}; fill: var(--m-ink); }}
.mha-picture .w {{ font: 480 16px {FAMILIES["serif"]}; }}
.mha-picture .n {{ text-anchor: middle; font-variant-numeric: tabular-nums; }}
.mha-picture .m {{ font: 600 {NUMBER}px {FAMILIES["mono"]}; }}
.mha-picture .sh {{ font: 400 {SMALL}px {FAMILIES["mono"]}; fill: var(--m-soft); }}
.mha-picture .s {{ font-size: {SMALL}px; fill: var(--m-soft); }}
.mha-picture .says {{ font-size: {LARGE}px; }}
.mha-picture .i {{ fill: var(--m-ink); }} .mha-picture .v {{ font-weight: 600; }}
.mha-picture .t {{ font-weight: 600; font-size: {LARGE}px; }}
.mha-picture .s3 {{ font-size: {SMALL}px; }}
.mha-picture .b {{ font-weight: 700; }} .mha-picture .z {{ fill: var(--m-dim); font-weight: 400; }}
.mha-picture .cell {{ fill: var(--m-card); stroke: var(--m-line); }}
"""
_ALWAYS = ("card", "ink", "soft", "dim", "line", "edge", "sunk")


def width_of(text: str, kind: str = "s", size: float = 0) -> float:
    """Return about how wide a text is, in units: rather more than less.

    >>> width_of("it") < width_of("WE") < width_of("\N{HIRAGANA LETTER A}" * 3)
    True
    """
    size = size or _SIZES[kind]
    if kind in ("m", "sh"):
        return 0.605 * size * sum(1 + (east_asian_width(c) in "WF") for c in text)
    wide = sum(_advance(character) for character in text)
    return size * wide * (1.06 if kind == "w" else 1.08 if kind in "tv" else 1.0)


def _advance(character: str) -> float:
    if combining(character):
        return 0.0
    if east_asian_width(character) in "WF":
        return 1.05
    for share, known in (
        (0.34, "iljI.,:;'|!()[] "),
        (0.42, 'frt-/"\\'),
        (0.95, "mwMW%@—"),
        (0.85, "+=\N{MINUS SIGN}\N{MULTIPLICATION SIGN}"),
    ):
        if character in known:
            return share
    return 0.7 if character.isupper() else 0.6


def shortened(text: str, room: float, kind: str = "w") -> str:
    """Return a text, cut short where it is wider than the room.

    >>> shortened("internationalisation", 60)
    'inter…'
    """
    if width_of(text, kind) <= room:
        return text
    while text and width_of(f"{text}…", kind) > room:
        text = text[:-1]
    return f"{text}…"


def wrapped(text: str, room: float, kind: str = "s") -> list[str]:
    """Break a text into lines that fit; none if it is empty."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, kind) <= room:
            lines[-1] = longer
        else:
            lines.append(shortened(word, room, kind))
    return lines


class Drawing:
    """Words and cells; it grows with what is drawn, from its upper left corner."""

    def __init__(self, title: str, desc: str = "") -> None:
        self.title, self.desc = title, desc or title
        self.parts: list[str] = []
        self.defs: list[str] = []
        self.used: set[str] = set(_ALWAYS)
        self.style = ""  # rules of its own
        self.width = self.height = 0.0  # of what is drawn

    def reach(self, x: float, y: float) -> None:
        """Make the drawing as large as a place is far."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(
        self, x: float, y: float, text: str, kind: str = "s", *, align: str = "start",
        is_turned: bool = False,
    ) -> None:  # fmt: skip
        """Write a line with its foot at y: kinds are w(ord), n(umber), m(ono), sh(ape), s, t(itle).

        A turned text is read upward from (x, y).
        """
        first = kind.split()[0]
        long = width_of(text, first)
        anchor = f' text-anchor="{align}"' if align != "start" and first != "n" else ""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if is_turned else ""
        self.parts.append(
            f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}"{anchor}{turn}>'
            f"{escape(text, quote=False)}</text>"
        )
        after = {"start": long, "middle": long / 2, "end": 0}["middle" if first == "n" else align]
        self.reach(x + (3.5 if is_turned else after), y + (0 if is_turned else 5))

    def add(self, element: str, x: float = 0.0, y: float = 0.0) -> None:
        """Add an element of SVG that reaches to (x, y); its colours are `fill` and `stroke`."""
        self.parts.append(element)
        self.reach(x, y)

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str = "", stroke: str = "",
        thick: float = 1.0, rx: float = 0.0, kind: str = "",
    ) -> None:  # fmt: skip
        """Draw a box of a kind; its colours are tokens, and it is empty without a fill."""
        style = f"fill:{self.color(fill) if fill else 'none'}"
        style += f";stroke:{self.color(stroke)};stroke-width:{_n(thick)}" if stroke else ""
        at = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(rx)}"'
        self.add(f'<rect class="{kind or "box"}" style="{style}" {at}/>', x + width, y + height)

    def color(self, token: str) -> str:
        """Return a token's colour, as an attribute's value in a style."""
        self.used.add(token)
        return f"var(--m-{token})"

    def mark(self, x: float, y: float, head: int) -> None:
        """Draw a head's shape in its colour, around (x, y): a disc, a square, and so on."""
        fill = f'style="fill:{self.color(f"head-{head % 8}")}"'
        shapes = (
            f'<circle {fill} cx="{_n(x)}" cy="{_n(y)}" r="5.5"/>',
            f'<rect {fill} x="{_n(x - 5)}" y="{_n(y - 5)}" width="10" height="10" rx="1.5"/>',
            f'<path {fill} d="M{_n(x)} {_n(y - 6)}l6.5 11h-13z"/>',
            f'<path {fill} d="M{_n(x)} {_n(y - 6.5)}l6.5 6.5-6.5 6.5-6.5-6.5z"/>',
            f'<rect {fill} x="{_n(x - 5.5)}" y="{_n(y - 3)}" width="11" height="6" rx="3"/>',
        )
        self.add(shapes[min(head, 4)])

    def svg(self, *, nested: tuple[float, float] | None = None) -> str:
        """Return the SVG; nested at a place (x, y) in another one, its body alone."""
        width, height = self.size
        body = "".join(self.parts)
        defs = "".join(self.defs)
        name = f"m{zlib.crc32((self.title + body).encode()):08x}"
        content = (f"<defs>{defs}</defs>" if defs else "") + body
        content = content.replace("ID-", f"{name}-")
        box = f'viewBox="0 0 {_n(width)} {_n(height)}"'
        if nested:
            at = (
                f'x="{_n(nested[0])}" y="{_n(nested[1])}" width="{_n(width)}" height="{_n(height)}"'
            )
            return f"<svg {at} {box}>{content}</svg>"
        style = style_of(self.used) + _RULES + self.style
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="mha-picture" {box} '
            f'width="{_n(width)}" height="{_n(height)}" role="img" '
            f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(self.title)}</title>'
            f'<desc id="{name}-d">{escape(self.desc)}</desc><style>{style}</style>'
            f'<rect class="ground" style="fill:var(--m-card)" width="100%" height="100%" rx="12"/>'
            f"{content}</svg>"
        )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the SVG, in units."""
        return math.ceil(self.width + MARGIN - 1e-6), math.ceil(self.height + MARGIN - 1e-6)

    def hatch(self, *, is_broken: bool = False) -> str:
        """Return the fill of hidden cells, or of broken ones, whose lines cross."""
        name = "ID-broken" if is_broken else "ID-hidden"
        lines = "M-1 7L7-1M-2 2L2-2M4 8L8 4" + "M-1-1L7 7M4-2L8 2M-2 4L2 8" * is_broken
        pattern = (
            f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<path style="stroke:{self.color("edge")}" d="{lines}"/></pattern>'
        )
        if pattern not in self.defs:
            self.defs.append(pattern)
        return f"url(#{name})"

    def cells(
        self, at: tuple[float, float], shares: Array, color: str | Array,
        cell: tuple[float, float], gap: float = 2.0, *,
        hidden: Array | None = None, broken: Array | None = None,
    ) -> None:  # fmt: skip
        """Paint (rows, columns) of shares, -1 to 1, as cells of a size (width, height).

        More than zero is filled, less is a ring; the nearer to 1, the stronger. Hidden cells are
        hatched, broken ones cross-hatched. The color is a token, or a token for each cell.
        """
        rows, columns = shares.shape
        (left, top), (wide, high) = at, cell
        self.reach(left + columns * (wide + gap) - gap, top + rows * (high + gap) - gap)
        nowhere, colors = np.zeros(shares.shape, bool), np.broadcast_to(color, shares.shape)
        hidden = nowhere if hidden is None else hidden
        broken = nowhere if broken is None else broken
        shares = np.where(hidden | broken, 0, np.clip(np.nan_to_num(shares), -1, 1))
        if min(wide, high) < 2.5:
            self._image(at, shares, colors.flat[0], cell, hidden, broken)
            return

        def path(where: Array, inset: float = 0.0) -> str:
            places = [
                (left + column * (wide + gap) + inset, top + row * (high + gap) + inset)
                for row, column in np.argwhere(where).tolist()
            ]
            return _boxes(places, wide - 2 * inset, high - 2 * inset, inset)

        side = min(wide, high)
        if side >= 12:
            self.parts.append(f'<path class="cell" d="{path(~nowhere)}"/>')
        else:
            ground = f'<path style="fill:{self.color("line")}" opacity=".6" d="'
            self.parts.append(f'{ground}{path(np.abs(shares) < 0.03)}"/>')
        ring = float(min(3.0, max(1.0, side / 6)))
        levels = np.rint(np.maximum(1, np.abs(shares) * LEVELS)).astype(int)
        levels = np.where(np.abs(shares) < 0.004, 0, np.where(shares < 0, -levels, levels))
        looks = {look for look in zip(colors.flat, levels.flat, strict=True) if look[1]}
        for token, level in sorted(looks, key=lambda look: (look[0], abs(look[1]), look[1] < 0)):
            share, kind = abs(level) / LEVELS, "more" if level > 0 else "less"
            look, inset = f"fill:{self.color(token)}", 0.0
            if level < 0:
                mark = self.color(token.replace("fill-x", "plain").replace("fill-", "head-"))
                look, inset = f"fill:none;stroke:{mark};stroke-width:{_n(ring)}", ring / 2
                share = 0.3 + 0.7 * share
            boxes = path((colors == token) & (levels == level), inset)
            self.parts.append(
                f'<path class="{kind}" style="{look}" opacity="{_n(share)}" d="{boxes}"/>'
            )
        for where, kind in ((hidden, "hidden"), (broken, "broken")):
            if where.any():
                fill = self.hatch(is_broken=kind == "broken")
                self.parts.append(f'<path class="{kind}" fill="{fill}" d="{path(where)}"/>')

    def _image(
        self, at: tuple[float, float], shares: Array, color: str, cell: tuple[float, float],
        hidden: Array, broken: Array,
    ) -> None:  # fmt: skip
        """Paint cells too small to be shapes: a colour behind a mask; less than zero is grey."""
        rows, columns = shares.shape
        width, height = columns * cell[0], rows * cell[1]
        where = f'x="{_n(at[0])}" y="{_n(at[1])}" width="{_n(width)}" height="{_n(height)}"'
        less = "plain" if color != "plain" else "edge"
        layers = (
            ("more", np.maximum(shares, 0), f"fill:{self.color(color)}"),
            ("less", np.maximum(-shares, 0), f"fill:{self.color(less)}"),
            ("hidden", hidden.astype(float), ""),
            ("broken", broken.astype(float), ""),
        )
        self.parts.append(f'<rect class="cell" {where}/>')
        for kind, strength, look in layers:
            if not strength.any():
                continue
            name = f"ID-{kind}-{len(self.defs)}"
            file = BytesIO()
            Image.fromarray(np.round(255 * strength).astype(np.uint8)).save(file, "png")
            data = b64encode(file.getvalue()).decode()
            self.defs.append(
                f'<mask id="{name}"><image {where} preserveAspectRatio="none" '
                f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/></mask>'
            )
            paint = (
                f'style="{look}"' if look else f'fill="{self.hatch(is_broken=kind == "broken")}"'
            )
            self.parts.append(f'<rect class="{kind}" {paint} {where} mask="url(#{name})"/>')


def style_of(used: set[str]) -> str:
    """Return the variables of some tokens: the page's, or else light or dark as the system is."""
    named = tokens()
    light, dark = (
        "".join(f"--m-{name}:var(--{name},{named[name][theme]});" for name in sorted(used))
        for theme in (0, 1)
    )
    return (
        f".mha-picture {{{light}}} "
        f"@media (prefers-color-scheme: dark) {{ .mha-picture {{{dark}}} }}"
    )


def _boxes(places: Sequence[tuple[float, float]], wide: float, high: float, inset: float) -> str:
    """Return the path of equal boxes; large ones have round corners."""
    side = min(wide, high)
    r = max(0.0, min(6.0, 0.15 * side + 1) - inset) if side >= ROUND else 0.0
    if r:
        w, h, c = _n(wide - 2 * r), _n(high - 2 * r), _n(r)
        shape = (
            f"h{w}a{c} {c} 0 0 1 {c} {c}v{h}a{c} {c} 0 0 1-{c} {c}h-{w}"
            f"a{c} {c} 0 0 1-{c}-{c}v-{h}a{c} {c} 0 0 1 {c}-{c}z"
        )
    else:
        shape = f"h{_n(wide)}v{_n(high)}h-{_n(wide)}z"
    return "".join(f"M{_n(x + r)} {_n(y)}{shape}" for x, y in places)


def _n(number: float) -> str:
    """Return a number in few characters."""
    return f"{number:.2f}".rstrip("0").rstrip(".") if number % 1 else f"{number:.0f}"
