"""How tables, pictures and pages look alike."""

PALETTE = (  # of heads
    "#0072B2",  # blue
    "#D55E00",  # vermillion
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#E69F00",  # orange
    "#56B4E9",  # sky blue
    "#6A1FC0",  # violet
    "#602010",  # brown
)

# tables and pictures are drawn on white paper; where a page is dark, it becomes dark paper
PAPER = "mha-paper"  # the class of what is drawn on white
_DARK = (
    "filter:invert(0.9) hue-rotate(180deg)"  # light becomes dark, and colours stay what they are
)
# an output that is not trusted loses the style, and stays white
ON_PAPER = (
    "<style>"
    f"@media (prefers-color-scheme:dark){{.{PAPER}{{{_DARK}}}}}"
    f"body[data-jp-theme-light=true] .{PAPER},body.vscode-light .{PAPER}{{filter:none}}"
    f"body[data-jp-theme-light=false] .{PAPER},body.vscode-dark .{PAPER}{{{_DARK}}}"
    "</style>"
)
