"""training_page(): a head that learns before the reader's eyes."""

from mha_numpy.show.page.document import document
from mha_numpy.show.page.training import describe_training
from mha_numpy.show.page.widget import TRAINING_SCRIPTS, TRAINING_STYLES, Stepper

SCRIPTS = ("arrays.js", "equations.js", "trace.js", "view/element.js", *TRAINING_SCRIPTS)
START = """startTraining(document.getElementById("train"), data);
onTheme(() => {});
followHeight();"""
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
    page = document(
        "Watch a head learn", '<section id="train"></section>\n', data,
        styles=("page.css", *TRAINING_STYLES), scripts=SCRIPTS, start=START,
    )  # fmt: skip
    return Stepper(page, FALLBACK, len(data["trace"]["arrays"]))
