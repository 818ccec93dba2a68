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
