"""The colours of heads, the same in every picture, page and terminal."""

PALETTE = (
    "#0072B2",  # blue
    "#D55E00",  # vermillion
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#E69F00",  # orange
    "#56B4E9",  # sky blue
    "#6A1FC0",  # violet
    "#602010",  # brown
)
