"""Bars side by side with what they are measured against."""

import math
from collections.abc import Mapping

from mha_numpy.checks import check_count, check_number
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.labels import check_text, printable, short_number
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import DESK, MARGIN, PHONE, Drawing, shortened, width_of

LARGEST = 1e300  # a number that can be drawn
LONGEST_NAME = 60  # characters
PITCH, HIGH = 28, 16  # units: from one bar to the next; a bar


def bar_chart(
    bars: Mapping[str, float],
    *,
    title: str,
    unit: str = "",
    against: Mapping[str, float] | None = None,
    against_label: str = "",
    head: int | None = None,
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
    head : int, optional
        Whose colour the bars have; default grey, as of numbers that belong to no head.

    Returns
    -------
    Picture
        Its ``alt`` says every number.

    Examples
    --------
    >>> picture = bar_chart({"grouped": 2.5}, title="KV cache", unit="GB", against={"grouped": 20})
    >>> picture.alt
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
    alt = f"{title}{f', in {unit}' if unit else ''}"
    if others and against_label:
        alt += f", vs {against_label}"
    alt += f". {'; '.join(f'{name}: {text}' for name, text in texts.items())}."
    notes = [f"In {unit}."] * bool(unit)
    notes += [f"The frame behind a bar: {against_label}."] * bool(others and against_label)
    largest = max([*values.values(), *others.values()]) or 1.0
    shares, behind = (
        [n[name] / largest if name in n else None for name in values] for n in (values, others)
    )
    bars_drawn = list(zip(names, texts.values(), shares, behind, strict=True))
    color = "plain" if head is None else f"head-{check_count('head', head, least=0) % 8}"
    phone, desk = (_draw(title, alt, bars_drawn, color, limit) for limit in (PHONE, DESK))
    return Picture([phone], title=title, notes=notes, alt=alt, wide=[desk])


def _draw(
    title: str, alt: str, bars: list[tuple[str, str, float | None, float | None]], color: str,
    limit: int,
) -> Drawing:  # fmt: skip
    """Draw each bar beside its name, or under it where names are long; its number at its end."""
    drawn = Drawing(title, alt)
    across = limit - 2 * MARGIN
    beside = max(width_of(name, "s") for name, *_ in bars) + 12
    is_under = beside > 0.36 * across
    number = max(width_of(text, "v") for _, text, *_ in bars) + 8
    is_last = number > across / 2  # a number longer than its bar has a line of its own
    left = MARGIN + (0 if is_under else beside)
    room = limit - MARGIN - left - (0 if is_last else number)
    top = float(MARGIN)
    for name, text, share, behind in bars:
        drawn.text(MARGIN, top + 14, shortened(name, across, "s"), "s i")
        top += 20 * is_under
        drawn.box(left, top + 2, room, HIGH, fill="sunk", rx=4, kind="track")
        if behind is not None:
            long = max(1.0, behind * room)
            drawn.box(left, top + 2, long, HIGH, stroke="edge", rx=3, kind="less")
        if share is not None:
            long = max(1.0, share * room)
            drawn.box(left, top + 4, long, HIGH - 4, fill=color, rx=3, kind="more")
        top += 20 * is_last
        x = left if is_last else left + max(share or 0, behind or 0) * room + 8
        drawn.text(x, top + 15, text, "v", room=limit - MARGIN - x)
        top += PITCH + 4 * is_under
    drawn.reach(limit - MARGIN, 0)
    return drawn


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
