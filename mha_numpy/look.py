"""How tables, pictures, pages and the site look alike: colours by name, in light and in dark.

The interface is black and white; every colour belongs to a head.
"""

from collections.abc import Mapping

Colors = tuple[str, str]  # in light, in dark

TOKENS: Mapping[str, Colors] = {
    "paper": ("#fbfaf7", "#131418"),  # the page
    "card": ("#ffffff", "#1c1e24"),  # the stage, and the ground of pictures
    "sunk": ("#f3f1eb", "#0d0e11"),  # zeros and code
    "ink": ("#1d1c1a", "#eeece7"),
    "soft": ("#5c5952", "#aeaaa1"),  # the second text
    "dim": ("#6f6b62", "#918d84"),  # zeros
    "edge": ("#8a867c", "#7d8089"),  # borders of what can be pressed; hidden cells
    "line": ("#e4e0d7", "#32353d"),
    "plain": ("#5f5b53", "#b9b4a9"),  # marks of arrays that belong to no head
    "fill-x": ("#bdb7ab", "#56534c"),  # their strongest cell
}
# of each head: a mark, its text, its strongest cell. Six colours are those of Okabe and Ito; a
# violet and a brown replace their yellow and black, for eyes of every kind.
HEADS: tuple[tuple[Colors, Colors, Colors], ...] = (
    (("#0072b2", "#4fb0ea"), ("#005f96", "#7cc6f4"), ("#5aa5d3", "#2d6489")),
    (("#d55e00", "#ff8b3d"), ("#ab4600", "#ffa869"), ("#f29b62", "#98531f")),
    (("#009e73", "#2fc79a"), ("#00704f", "#66dcb9"), ("#79c0a2", "#26735f")),
    (("#cc79a7", "#e39cc5"), ("#99446f", "#efbcd9"), ("#e0a8c5", "#805d75")),
    (("#c98500", "#f0b23e"), ("#7d5a00", "#f6cb7c"), ("#ddb075", "#7f622d")),
    (("#3b9bd6", "#8accf5"), ("#1f6a9c", "#b3def9"), ("#87bee6", "#4a697f")),
    (("#6a1fc0", "#b07df0"), ("#5a17a6", "#caa8f6"), ("#9979db", "#664e8a")),
    (("#602010", "#c98a72"), ("#602010", "#dfb3a2"), ("#b18b81", "#73544b")),
)
PALETTE = tuple(mark[0] for mark, _, _ in HEADS)


def tokens() -> dict[str, Colors]:
    """Return every colour by its name, those of heads as head-0, head-0-ink, fill-0.

    Examples
    --------
    >>> tokens()["head-1"]
    ('#d55e00', '#ff8b3d')
    """
    named = dict(TOKENS)
    for head, colors in enumerate(HEADS):
        names = (f"head-{head}", f"head-{head}-ink", f"fill-{head}")
        named |= zip(names, colors, strict=True)
    return named


def css_tokens() -> str:
    """Return the colours and families of type as CSS variables, which follow the page's theme.

    Examples
    --------
    >>> "--ink: light-dark(#1d1c1a, #eeece7);" in css_tokens()
    True
    """
    colors = " ".join(
        f"--{name}: light-dark({light}, {dark});" for name, (light, dark) in tokens().items()
    )
    families = " ".join(f"--{name}: {family};" for name, family in FAMILIES.items())
    return (
        f":root {{ color-scheme: light dark; {colors} {families} }}\n"
        ':root[data-theme="light"] { color-scheme: light; }\n'
        ':root[data-theme="dark"] { color-scheme: dark; }\n'
    )


# words of the example and headings are set in serif, arrays and code in mono, all else in sans
FAMILIES: Mapping[str, str] = {
    "serif": '"Source Serif 4 Variable", "Source Serif 4", ui-serif, "Iowan Old Style", Charter, '
    "Cambria, Georgia, serif",
    "sans": '"Inter Variable", Inter, system-ui, -apple-system, "Segoe UI", Roboto, '
    '"Liberation Sans", sans-serif',
    "mono": '"JetBrains Mono Variable", ui-monospace, "SF Mono", "Cascadia Mono", '
    '"DejaVu Sans Mono", monospace',
}
