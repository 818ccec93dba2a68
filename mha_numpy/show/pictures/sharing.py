"""Which query heads read which key/value head."""

from mha_numpy.checks import check_count
from mha_numpy.errors import ConfigError
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, PHONE, Drawing

CELL, DROP, LEGIBLE = 40.0, 60, 18  # units: a head's square, the way down, room for a number


def sharing_map(num_heads: int, num_kv_heads: int) -> Picture:
    """Draw query heads above, key/value heads below, and who reads whom.

    Parameters
    ----------
    num_heads, num_kv_heads : int
        H, and H_kv, a divisor of H.

    Returns
    -------
    Picture
        One panel.

    Notes
    -----
    Query head h reads key/value head ``h // G`` with G = H / H_kv, which has the colour of the
    first query head of its group. Source: Ainslie et al. 2023, *GQA*, figure 2.

    Examples
    --------
    >>> print(sharing_map(4, 2).alt)
    grouped-query: H = 4, H_kv = 2. G = H / H_kv = 2: query head h reads key/value head h // 2.
    """
    H, H_kv = check_count("num_heads", num_heads), check_count("num_kv_heads", num_kv_heads)
    if H % H_kv:
        raise ConfigError(f"num_kv_heads: expected a divisor of num_heads={H}; got {H_kv}")
    G = H // H_kv
    name = "multi-head" if G == 1 else "multi-query" if H_kv == 1 else "grouped-query"
    title = f"{name}: H = {H}, H_kv = {H_kv}"
    note = f"G = H / H_kv = {G}: query head h reads key/value head h // {G}."
    drawn = Drawing(title, f"{title}. {note}")
    pitch = min(CELL, (PHONE - 2 * MARGIN) / H)
    below = min(CELL, pitch * G * 0.9)  # the side of a key/value head's square
    top, left = MARGIN + 24, float(MARGIN)
    bottom = top + pitch + DROP
    drawn.text(left, MARGIN + 13, "query heads", "s")
    for g in range(H_kv):
        first, past = left + g * G * pitch, left + (g + 1) * G * pitch
        x, color = (first + past - below) / 2, drawn.color(f"head-{g * G % 8}")
        corners = (first, top + pitch, past - 2, top + pitch, x + below - 2, bottom, x, bottom)
        points = " ".join(f"{number:.1f}" for number in corners)
        drawn.add(f'<polygon class="way" style="fill:{color}" opacity=".25" points="{points}"/>')
        _square(drawn, x, bottom, below, g * G, g)
        for h in range(g * G, (g + 1) * G):
            _square(drawn, left + h * pitch, top, pitch, h, h)
    drawn.text(left, bottom + below + 18, "key/value heads", "s")
    return Picture([drawn], title=title, notes=[note], alt=drawn.desc)


def _square(drawn: Drawing, x: float, y: float, side: float, color: int, number: int) -> None:
    """Draw a head, with its number if there is room."""
    is_legible, wide = side >= LEGIBLE, max(1.0, side - 2)
    fill = f"{'fill' if is_legible else 'head'}-{color % 8}"
    drawn.box(x, y, wide, wide, fill=fill, rx=side * 0.15, kind="head")
    drawn.reach(x + side, y + side)
    if is_legible:
        drawn.text(x + side / 2 - 1, y + side / 2 + 4, str(number), "n")
