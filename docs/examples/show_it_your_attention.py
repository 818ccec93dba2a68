# %% [markdown]
# # Show it your attention
#
# Paste a function that computes attention with NumPy in place of the one below, and run all cells
# (Run > Run All Cells). `identify` calls it many times and says what each argument is, which
# conventions the function follows, and what looks like a mistake. In a browser your code stays on
# your machine.

# %%
from pathlib import Path

import numpy as np

from mha_numpy import identify


# %%
def attention(q, k, v, mask=None):
    """mask is True where a query may see a key."""
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
    if mask is not None:
        scores = np.where(mask, -1e9, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


# %%
sheet = identify(attention)
display(sheet)

# %% [markdown]
# So you learn three things about this function that the shape of its result does not show. The
# scores are divided by d instead of its square root, which the datasheet lists as a convention,
# because some models do so. The mask hides what the docstring says it shows. And a query that sees
# nothing gets the mean of all values.
#
# - If the names of your arguments say nothing, tell it: `identify(attention, given={"mask": "m"})`.
# - If you have a backward function, show both: `identify(forward, backward=backward)`.
# - A class works too, or a layer that you have made: `identify(Attention(32, 4))`.
# - Here it knows only NumPy. On your own machine, PyTorch, JAX and Keras work as well, and
#   `mha-numpy identify FILE.py:NAME` runs the code with limits on time and memory.
#
# The next cell writes the datasheet as a page that you can download and send to a colleague.

# %%
page = Path("datasheet.html")
page.write_text(sheet.to_html(), encoding="utf-8")
print("wrote", page)
