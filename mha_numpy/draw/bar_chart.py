"""Bars side by side with what they are measured against."""

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mha_numpy.checks import check_number
from mha_numpy.draw.colors import GREY, INK, MUTED, PALETTE
from mha_numpy.draw.labels import (
    MARGIN,
    NOTE_SIZE,
    check_text,
    content_at,
    printable,
    short_number,
    start_picture,
    widest,
    wrap_heading,
)
from mha_numpy.draw.save import Picture
from mha_numpy.errors import ConfigError, describe

PALE = "#EFEFEF"
LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
SMALL, SIZE = 8, 9  # of text, in points

# lengths in inches
WIDTH = 7.6
BAR, PALE_BAR, BAR_PITCH, TEXT_GAP = 0.2, 0.3, 0.4, 0.07


def bar_chart(
    bars: Mapping[str, float],
    *,
    title: str,
    unit: str = "",
    against: Mapping[str, float] | None = None,
    against_label: str = "",
) -> Picture:
    """Draw numbers as horizontal bars, each before what it is measured against.

    Parameters
    ----------
    bars : mapping of name to number >= 0
        From top to bottom.
    title : str
        What is seen.
    unit : str
        What the numbers count, written under the title.
    against : mapping of name to number >= 0, optional
        Drawn as a pale bar behind the bar of that name, with the ratio: "8x less".
    against_label : str
        What the pale bars are.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text, with every number.

    Raises
    ------
    ConfigError
        There is no bar, a number is negative or not finite, or `against` names a bar that is not
        there.

    Examples
    --------
    >>> picture = bar_chart({"grouped": 2.5}, title="KV cache", unit="GB", against={"grouped": 20})
    >>> picture.get_label()
    'KV cache, in GB. grouped: 2.5 (vs 20: 8x less).'
    """
    values = _check_bars("bars", bars)
    others = {} if against is None else _check_bars("against", against)
    for name in others:
        if name not in values:
            raise ConfigError(f"against: expected names of bars; got {describe(name)}")
    title, unit = check_text("title", title), check_text("unit", unit)
    against_label = check_text("against_label", against_label)
    names = {name: printable(name, LONGEST_NAME) for name in values}
    texts = {name: short_number(value) for name, value in values.items()}
    ratios = {name: _compared(values[name], other) for name, other in others.items()}
    after = {  # in inches
        name: TEXT_GAP + widest([text], SIZE, weight="bold")
        + (2 * TEXT_GAP + widest([ratios[name]], SMALL) if name in ratios else 0)
        for name, text in texts.items()
    }  # fmt: skip
    left = MARGIN + widest(list(names.values()), SIZE) + 0.12
    width = max(WIDTH, left + max(after.values()) + 2.0 + MARGIN)
    room = width - MARGIN - left
    largest = max([*values.values(), *others.values()]) or 1.0
    reach = {name: max(values[name], others.get(name, 0.0)) / largest for name in values}
    scale = min([room] + [(room - after[name]) / share for name, share in reach.items() if share])

    heading = wrap_heading(title, width - 2 * MARGIN)
    notes = [f"in {unit}"] if unit else []
    top = content_at(heading, notes)
    bars_at = top + 0.3 * bool(others and against_label)
    height = bars_at + BAR_PITCH * len(values) + MARGIN - 0.05
    picture, _ = start_picture(width, height, heading, notes)
    picture.set_label(_bars_in_words(title, unit, texts, ratios, against_label))
    ax = picture.add_axes((0, 0, 1, 1), label="bars")
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.axis("off")
    ax.plot([left, left], [bars_at, bars_at + BAR_PITCH * len(values)], color=GREY, linewidth=0.8)
    for i, name in enumerate(values):
        y = bars_at + BAR_PITCH * (i + 0.5)
        _write(ax, left - 0.1, y, names[name], fontsize=SIZE, ha="right")
        end, other = (scale * (n.get(name, 0.0) / largest) for n in (values, others))
        if name in others:
            _bar(ax, (left, y), other, PALE_BAR, f"against {name}", facecolor=PALE, edgecolor=GREY)
        _bar(ax, (left, y), end, BAR, name, facecolor=PALETTE[0], edgecolor="none")
        value_width = 2 * TEXT_GAP + widest([texts[name]], SIZE, weight="bold")
        value_at = end if other < end or end + value_width < other else other
        _write(ax, left + value_at + TEXT_GAP, y, texts[name], fontsize=SIZE, fontweight="bold")
        if name in others:
            ratio_at = max(other, value_at + value_width - TEXT_GAP) + TEXT_GAP
            _write(ax, left + ratio_at, y, ratios[name], fontsize=SMALL, color=MUTED)
    if others and against_label:
        y = top + 0.08
        _bar(ax, (left, y), 0.3, 0.16, "legend", facecolor=PALE, edgecolor=GREY)
        _write(ax, left + 0.4, y, against_label, fontsize=NOTE_SIZE)
    return picture


def _check_bars(name: str, bars: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers as floats >= 0, or raise a ConfigError."""
    if not isinstance(bars, Mapping) or not bars:
        raise ConfigError(
            f"{name}: expected a Mapping of at least one name to its number; got {describe(bars)}"
        )
    values = {str(key): check_number(f"{name}[{key!r}]", bar) for key, bar in bars.items()}
    for key, value in values.items():
        if value < 0:
            raise ConfigError(f"{name}[{key!r}]: expected a number >= 0; got {value:g}")
    return values


def _compared(value: float, other: float) -> str:
    """Return what a number is measured against, and the ratio in words."""
    text = f"vs {short_number(other)}"
    if value == other:
        return f"{text}: equal"
    if not value or not other:
        return text
    factor = max(value / other, other / value)
    ratio = short_number(factor) if math.isfinite(factor) else f"over {LARGEST:g}"
    if ratio == "1":
        return f"{text}: about equal"
    return f"{text}: {ratio}x {'less' if value < other else 'more'}"


def _bars_in_words(
    title: str, unit: str, texts: dict[str, str], ratios: dict[str, str], against_label: str
) -> str:
    """Return the bars in words."""
    told = [
        f"{name}: {text}" + (f" ({ratios[name]})" if name in ratios else "")
        for name, text in texts.items()
    ]
    measure = f", in {unit}" if unit else ""
    versus = f", vs {against_label}" if ratios and against_label else ""
    return f"{title}{measure}{versus}. {'; '.join(told)}."


def _bar(
    ax: Axes, at: tuple[float, float], length: float, thickness: float, label: str, **style: Any
) -> None:
    """Draw a bar from the middle of its left edge."""
    corner = at[0], at[1] - thickness / 2
    ax.add_patch(Rectangle(corner, length, thickness, linewidth=0.8, label=label, **style))


def _write(ax: Axes, x: float, y: float, text: str, **style: Any) -> None:
    """Write a line of text on the height y."""
    default: dict[str, Any] = {"va": "center_baseline", "color": INK, "parse_math": False}
    ax.text(x, y, text, **default | style)
