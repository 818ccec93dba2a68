"""training_page(): a head that learns before the reader's eyes."""

import json

from mha_numpy.draw.stepper.training import describe_training
from mha_numpy.draw.stepper.widget import Stepper, fill, read, without_comments

SCRIPTS = ("arrays.js", "equations.js", "trace.js", "learning.js", "train.js")
STYLES = ("page.css", "train.css")
FALLBACK = "<p>Here a head learns to say digits backwards, where scripts are allowed to run.</p>"


def training_page() -> Stepper:
    """Make a page in which a single head learns to say digits backwards.

    The page draws random params and batches, and computes forward, loss, backward and Adam
    itself, by the equations of one training step that was recorded here. In some 500 steps the
    weights show the antidiagonal; a click draws the params anew, and it is gone.

    Returns
    -------
    Stepper
        A notebook shows it; ``to_html(path)`` writes it. It needs no network.

    Notes
    -----
    The model is one head and a row of numbers for each place; the output of `w_o` is the answer.
    Source of the task: Lippe, *UvA deep learning tutorials*, number 6.

    Examples
    --------
    >>> page = training_page()
    >>> "Watch a head learn" in page.to_html()
    True
    """
    data = describe_training()
    parts = {
        "style": "\n".join(without_comments(read(name)) for name in STYLES),
        "data": json.dumps(data, separators=(",", ":")),
        "script": "\n".join(without_comments(read(name)) for name in SCRIPTS),
    }
    return Stepper(fill(read("training.html"), parts), FALLBACK, len(data["trace"]["arrays"]))
