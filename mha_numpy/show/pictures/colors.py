"""One look for one thing: every head's colour, and the hatches of hidden and broken cells."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb

from mha_numpy.checks import check_count
from mha_numpy.look import PALETTE

INK, MUTED = "#1A1A1A", "#5C5C5C"  # text
GREY = "#8A8A8A"  # hatches
NO_HEAD = "#6B6B6B"  # cells that belong to no head
HIDDEN, BROKEN = "//////", "xxxxxx"  # hatches: a hidden cell (-inf); NaN or +inf


def head_color(head: int) -> str:
    """Return the colour of a query head, the same in every picture.

    Parameters
    ----------
    head : int
        h, counted from 0.

    Returns
    -------
    str
        "#rrggbb". Heads 8 to 15 have the colours of 0 to 7, darker; head 16 is as head 0 again.

    Notes
    -----
    Six colours of Okabe and Ito, *Color Universal Design* (2008). Their yellow is too pale on
    white and their black too near the text. A violet and a brown replace them, which people with a
    colour deficiency can distinguish from the six.

    Examples
    --------
    >>> head_color(0), head_color(8), head_color(16)
    ('#0072b2', '#00446b', '#0072b2')
    """
    turn, place = divmod(check_count("head", head, least=0), len(PALETTE))
    strength = 0.6 if turn % 2 else 1.0
    red, green, blue = to_rgb(PALETTE[place])
    return to_hex((strength * red, strength * green, strength * blue))


def group_color(kv_head: int, group_size: int) -> str:
    """Return the colour of a key/value head: that of the first query head that it serves.

    Parameters
    ----------
    kv_head : int
        g, counted from 0.
    group_size : int
        G = H // H_kv, query heads per key/value head.

    Returns
    -------
    str
        "#rrggbb"

    Examples
    --------
    >>> group_color(1, 2) == head_color(2)
    True
    """
    first = check_count("kv_head", kv_head, least=0) * check_count("group_size", group_size)
    return head_color(first)


@cache
def fade(color: str) -> LinearSegmentedColormap:
    """Return the colormap that leads from white (0) to a colour (1).

    Parameters
    ----------
    color : str
        "#rrggbb", as from `head_color`.

    Returns
    -------
    LinearSegmentedColormap

    Examples
    --------
    >>> to_hex(fade(head_color(0))(0.0)), to_hex(fade(head_color(0))(1.0))
    ('#ffffff', '#0072b2')
    """
    return LinearSegmentedColormap.from_list(f"white to {color}", ["#ffffff", color])


def text_on(background: Sequence[float]) -> str:
    """Return black or white, whichever reads better on a background of (red, green, blue, ...)."""
    parts = np.asarray(background[:3])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return "white" if linear @ (0.2126, 0.7152, 0.0722) < 0.2 else INK
