"""Which query heads read which key/value head."""

from matplotlib.axes import Axes
from matplotlib.patches import Polygon, Rectangle

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures.colors import fade, group_color, head_color, text_on
from mha_numpy.show.pictures.labels import write
from mha_numpy.show.pictures.layout import MAX_WIDTH, Box, start_page
from mha_numpy.show.pictures.save import Picture

# lengths in inches
SIDE, CELL, DROP = 1.35, 0.42, 0.75
LEGIBLE = 0.19  # of a square that has room for its number


def sharing_map(num_heads: int, num_kv_heads: int) -> Picture:
    """Draw query heads above, key/value heads below, and who reads whom.

    Parameters
    ----------
    num_heads, num_kv_heads : int
        H, and H_kv, a divisor of H.

    Returns
    -------
    Picture
        A matplotlib Figure; ``get_label()`` is its alt text.

    Notes
    -----
    Query head h reads key/value head ``h // G`` with G = H / H_kv, which has the colour of the
    first query head of its group. Source: Ainslie et al. 2023, *GQA*, figure 2.

    Examples
    --------
    >>> print(sharing_map(4, 2).get_label())
    4 query heads read 2 key/value heads: query heads 0 to 1 read key/value head 0, and so on.
    """
    H, H_kv = check_count("num_heads", num_heads), check_count("num_kv_heads", num_kv_heads)
    if H % H_kv:
        raise ConfigError(f"num_kv_heads: expected a divisor of num_heads={H}; got {H_kv}")
    G = H // H_kv
    cell = min(CELL, (MAX_WIDTH - SIDE) / H)
    below = min(CELL, cell * G * 0.9)  # side of a key/value head's square
    bottom = cell + DROP
    name = "multi-head" if G == 1 else "multi-query" if H_kv == 1 else "grouped-query"
    picture, (ax,) = start_page(
        [[Box(H * cell, bottom + below, left=SIDE)]],
        f"{name}: H = {H}, H_kv = {H_kv}",
        [f"G = H / H_kv = {G}: query head h reads key/value head h // {G}"],
        alt=_alt_text(H, H_kv),
    )
    ax.set_axis_off()
    for text, y in (("query heads", cell / 2), ("key/value heads", bottom + below / 2)):
        write(ax, -0.12, y, text, 10, "right center")
    for g in range(H_kv):
        color = group_color(g, G)
        first, past = g * G * cell, (g + 1) * G * cell
        x = (first + past - below) / 2
        corners = [(first, cell), (past, cell), (x + below, bottom), (x, bottom)]
        ax.add_patch(Polygon(corners, facecolor=fade(color)(0.3), edgecolor="white", linewidth=1))
        _square(ax, x, bottom, below, color, g)
        for h in range(g * G, (g + 1) * G):
            _square(ax, h * cell, 0.0, cell, head_color(h), h)
    return picture


def _square(ax: Axes, x: float, y: float, side: float, color: str, head: int) -> None:
    """Draw a head, with its number if there is room."""
    ax.add_patch(Rectangle((x, y), side, side, facecolor=color, edgecolor="white", linewidth=0.8))
    if side >= LEGIBLE:
        size, ink = min(9, 36 * side), text_on(fade(color)(1.0))
        write(ax, x + side / 2, y + side / 2, str(head), size, "center center", color=ink)


def _alt_text(H: int, H_kv: int) -> str:
    G = H // H_kv
    if H_kv == 1:
        return f"Query heads: {H}. All read one key/value head."
    if G == 1:
        return f"{H} query heads read {H} key/value heads, each its own."
    return (
        f"{H} query heads read {H_kv} key/value heads: query heads 0 to {G - 1} read key/value "
        "head 0, and so on."
    )
