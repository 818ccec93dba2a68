"""Bars side by side with what they are measured against."""

import math
from collections.abc import Mapping
from typing import Any

from mha_numpy.checks import check_number
from mha_numpy.errors import ConfigError, describe
from mha_numpy.look import PALETTE
from mha_numpy.show.pictures.colors import GREY, INK
from mha_numpy.show.pictures.labels import check_text, printable, short_number, widest
from mha_numpy.show.pictures.layout import Box, patch, start_page
from mha_numpy.show.pictures.save import Picture

PALE = "#EFEFEF"
LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
SIZE = 9  # of text, in points
WIDTH, PITCH = 7.0, 0.4  # of the chart; from one bar to the next; in inches


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
    names = [printable(name, LONGEST_NAME) for name in values]
    texts = {name: short_number(value) for name, value in values.items()}
    for name, other in others.items():
        texts[name] += f" (vs {short_number(other)}{_ratio(values[name], other)})"
    left, number = widest(names, SIZE) + 0.12, widest(list(texts.values()), SIZE) + 0.1
    length = max(WIDTH - left - number, 2.0)  # of the longest bar
    in_unit, legend, alt = f"in {unit}" if unit else "", {}, title
    if unit:
        alt += f", {in_unit}"
    if others and against_label:
        alt += f", vs {against_label}"
        legend[against_label] = patch(facecolor=PALE, linewidth=0.8)
    alt += f". {'; '.join(f'{name}: {text}' for name, text in texts.items())}."
    box = Box(length, PITCH * len(values), left=left, right=number)
    picture, (ax,) = start_page([[box]], title, [in_unit], alt=alt, legend=legend)
    ax.set_label("bars")
    largest = max([*values.values(), *others.values()]) or 1.0
    rows = range(len(values))
    pale: dict[str, Any] = {"color": PALE, "edgecolor": GREY, "linewidth": 0.8, "clip_on": False}
    shares, behind = ([n.get(name, 0.0) / largest for name in values] for n in (values, others))
    ax.barh(rows, behind, 0.75, **pale, label="against")
    ax.barh(rows, shares, 0.5, color=PALETTE[0], label="bars")
    ends = ax.barh(rows, list(map(max, shares, behind)), alpha=0)
    ax.bar_label(ends, list(texts.values()), padding=5, fontsize=SIZE, color=INK)
    ax.set(xlim=(0, 1), ylim=(len(values) - 0.5, -0.5), xticks=[])
    ax.set_yticks(rows, names, fontsize=SIZE, color=INK, parse_math=False)
    ax.tick_params(length=0, pad=7)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.spines["left"].set(color=GREY, linewidth=0.8)
    return picture


def _check_bars(name: str, bars: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(bars, Mapping) or not bars:
        raise ConfigError(
            f"{name}: expected a Mapping of at least one name to its number; got {describe(bars)}"
        )
    values = {str(key): check_number(f"{name}[{key!r}]", bar) for key, bar in bars.items()}
    for key, value in values.items():
        if value < 0:
            raise ConfigError(f"{name}[{key!r}]: expected a number >= 0; got {value:g}")
    return values


def _ratio(value: float, other: float) -> str:
    """Return a ratio in words, after a colon; nothing where one number is 0."""
    if value == other:
        return ": equal"
    if not value or not other:
        return ""
    factor = max(value / other, other / value)
    ratio = short_number(factor) if math.isfinite(factor) else f"over {LARGEST:g}"
    if ratio == "1":
        return ": about equal"
    return f": {ratio}x {'less' if value < other else 'more'}"
