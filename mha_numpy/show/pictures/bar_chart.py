"""Numbers as bars, one below the other."""

from collections.abc import Mapping

from mha_numpy.checks import check_count, check_number
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.labels import check_text, printable, short_number
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import DESK, MARGIN, PHONE, Drawing, shortened, width_of

LONGEST_NAME = 60  # characters
PITCH, HIGH = 28, 16  # units: from one bar to the next; a bar


def bar_chart(
    bars: Mapping[str, float],
    *,
    title: str,
    unit: str = "",
    head: int | None = None,
) -> Picture:
    """Draw numbers as horizontal bars.

    Parameters
    ----------
    bars : mapping of name to number >= 0
        From top to bottom.
    title : str
        What is seen.
    unit : str
        What the numbers count, written under the title.
    head : int, optional
        Whose colour the bars have; default grey, as of numbers that belong to no head.

    Returns
    -------
    Picture
        Its ``alt`` says every number.

    Examples
    --------
    >>> bar_chart({"grouped": 2.5, "multi-head": 20}, title="KV cache", unit="GB").alt
    'KV cache, in GB. grouped: 2.5; multi-head: 20.'
    """
    values = _check_bars(bars)
    title, unit = check_text("title", title), check_text("unit", unit)
    texts = [short_number(value) for value in values.values()]
    told = "; ".join(f"{name}: {text}" for name, text in zip(values, texts, strict=True))
    alt = f"{title}{f', in {unit}' if unit else ''}. {told}."
    largest = max(values.values()) or 1.0
    drawn = [
        (printable(name, LONGEST_NAME), text, value / largest)
        for (name, value), text in zip(values.items(), texts, strict=True)
    ]
    color = "plain" if head is None else f"head-{check_count('head', head, least=0) % 8}"
    phone, desk = (_draw(title, alt, drawn, color, limit) for limit in (PHONE, DESK))
    notes = [f"In {unit}."] * bool(unit)
    return Picture([phone], title=title, notes=notes, alt=alt, wide=[desk])


def _draw(
    title: str, alt: str, bars: list[tuple[str, str, float]], color: str, limit: int
) -> Drawing:
    """Draw each bar beside its name, or under it where names are long; its number at its end."""
    drawn = Drawing(title, alt)
    across = limit - 2 * MARGIN
    beside = max(width_of(name, "s") for name, *_ in bars) + 12
    is_under = beside > 0.36 * across
    left = MARGIN + (0 if is_under else beside)
    room = limit - MARGIN - left - max(width_of(text, "v") for _, text, _ in bars) - 8
    top = float(MARGIN)
    for name, text, share in bars:
        drawn.text(MARGIN, top + 14, shortened(name, across, "s"), "s i")
        top += 20 * is_under
        long = max(1.0, share * room)
        drawn.box(left, top + 2, room, HIGH, fill="sunk", rx=4, kind="track")
        drawn.box(left, top + 4, long, HIGH - 4, fill=color, rx=3, kind="more")
        drawn.text(left + long + 8, top + 15, text, "v")
        top += PITCH + 4 * is_under
    drawn.reach(limit - MARGIN, 0)
    return drawn


def _check_bars(bars: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(bars, Mapping) or not bars:
        raise ConfigError(
            f"bars: expected a Mapping of at least one name to its number; got {describe(bars)}"
        )
    values = {str(key): check_number(f"bars[{key!r}]", bar) for key, bar in bars.items()}
    for key, value in values.items():
        if value < 0:
            raise ConfigError(f"bars[{key!r}]: expected a number >= 0; got {value:g}")
    return values
