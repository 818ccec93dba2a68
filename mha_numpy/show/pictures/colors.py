"""One look for one thing: every head's colour."""

from mha_numpy.checks import check_count
from mha_numpy.look import PALETTE


def head_color(head: int) -> str:
    """Return the colour of a query head, the same in every picture.

    Parameters
    ----------
    head : int
        h, counted from 0.

    Returns
    -------
    str
        "#rrggbb". Head 8 has the colour of head 0 again, and so on.

    Notes
    -----
    Six colours of Okabe and Ito, *Color Universal Design* (2008). Their yellow is too pale on
    white and their black too near the text. A violet and a brown replace them, which people with a
    colour deficiency can distinguish from the six.

    Examples
    --------
    >>> head_color(0), head_color(8)
    ('#0072b2', '#0072b2')
    """
    return PALETTE[check_count("head", head, least=0) % len(PALETTE)]


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
