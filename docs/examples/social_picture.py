"""Draw docs/_static/social.png, which stands beside a link to the site where people share it.

python docs/examples/social_picture.py
"""

from pathlib import Path

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from mha_numpy.look import PALETTE, TOKENS
from mha_numpy.show.walk import walk

PICTURE = Path(__file__).parents[1] / "_static" / "social.png"
WIDTH, HEIGHT = 1280, 640  # pixels: two to one, as these pages crop it
HEAD = 0
MUTED = TOKENS["soft"][0]
WORDS = """Attention in plain NumPy,
to learn from.

Forward and backward,
every shape, every gradient,
and models that learn."""


def draw() -> Figure:
    """Draw the name on the left, and what a head of a trained translator looks at beside it."""
    seen = walk("three hundred forty-two", model="numbers")
    picture = Figure(figsize=(WIDTH / 100, HEIGHT / 100), facecolor="white")
    picture.text(0.05, 0.8, "mha_numpy", size=56, weight="bold", va="center")
    picture.text(0.052, 0.65, WORDS, size=24, va="top", color=MUTED, linespacing=1.4)
    axes = picture.add_axes((0.63, 0.2, 0.33, 0.7))
    shades = LinearSegmentedColormap.from_list("head", [TOKENS["sunk"][0], PALETTE[HEAD]])
    weights = seen.weights[0, HEAD]  # (T_q, T_k)
    axes.pcolormesh(weights, edgecolors="white", linewidth=3, vmin=0, vmax=1, cmap=shades)
    axes.invert_yaxis()
    axes.set_xticks(np.arange(len(seen.source_tokens)) + 0.5, seen.source_tokens, size=17)
    axes.set_yticks(np.arange(len(seen.tokens)) + 0.5, seen.tokens, size=17)
    axes.tick_params(length=0)
    axes.set_frame_on(False)
    picture.text(
        0.795,
        0.06,
        "a trained head: where it reads while it writes",
        size=15,
        color=MUTED,
        ha="center",
    )
    return picture


if __name__ == "__main__":
    draw().savefig(PICTURE, dpi=100, metadata={"Software": None})
