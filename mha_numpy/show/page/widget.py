"""A trace as a page to look at and to play with, and a page in which a head learns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.checks import check_flag
from mha_numpy.errors import ConfigError
from mha_numpy.show.page.data import describe_trace
from mha_numpy.show.page.document import Page, document
from mha_numpy.show.page.training import describe_training
from mha_numpy.show.pictures.panels import named_sizes
from mha_numpy.show.pictures.recorded import axis_labels, check_numbers, check_sequence, check_steps
from mha_numpy.show.scenes import story_of
from mha_numpy.show.template import read
from mha_numpy.tables import Table

if TYPE_CHECKING:
    from mha_numpy.show.walk.result import Meaning

SCRIPTS = (  # in this order: one scope holds them all
    "arrays.js", "equations.js", "trace.js", "view/element.js", "view/axes.js", "view/blocks.js",
    "view/layout.js", "view/paint.js", "view/motion.js", "view/stage.js", "view/map.js",
    "view/arithmetic.js", "view/slope.js", "view/panel.js", "view/controls.js", "view/listing.js",
    "view/keyboard.js", "view/page.js", "story/workings.js", "story/facts.js", "story/stage.js",
    "story/panel.js", "story/story.js",
)  # fmt: skip
STYLES = ("page.css", "story/story.css")
TRAINING_SCRIPTS = ("view/matrix.js", "view/curve.js", "learning.js", "train.js")
TRAINING_STYLES = ("train.css",)
START = """document.getElementById("page").hidden = Boolean(data.story);
const page = startPage(data);
if (data.training) startTraining(document.getElementById("train"), data.training);
if (data.story) startStory(data, page);
else askForHeight(960);"""

LEARNING_SCRIPTS = (
    "arrays.js", "equations.js", "trace.js", "view/element.js", *TRAINING_SCRIPTS,
)  # fmt: skip
LEARNING_START = """document.documentElement.classList.toggle("framed", parent !== window);
startTraining(document.getElementById("train"), data);
onTheme(() => {});
followHeight();"""
FALLBACK = "Trust this notebook to step through these arrays and to point at their cells."
LEARNING_FALLBACK = (
    "<p>Here a head learns to say digits backwards, where scripts are allowed to run.</p>"
)

MAX_TOKENS = 32  # T_q or T_k
MAX_NUMBERS = 2_000_000  # in all arrays: the page computes them anew after every edit
ADVICE = "or draw a shape film instead"


@dataclass(frozen=True)
class Stepper(Page):
    """A page that shows the arrays of a trace; a notebook shows it by itself."""

    shows: ClassVar[str] = "Stepper through the arrays of a trace"

    steps: int


def stepper(
    trace: Trace,
    *,
    sequence: int = 0,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    note: str = "",
    training: bool = False,
    meaning: "Meaning | None" = None,
) -> Stepper:
    """Make a page of every recorded array, forward and backward, that computes them itself.

    A trace of one attention layer is told as a story of six scenes; all arrays are one click away.
    The page shows where each number came from, with the arithmetic. A number can be changed: the
    page then computes everything after it again.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``; at most 300 steps, 32 tokens and 2,000,000 numbers.
    sequence : int
        Which sequence of the batch is shown.
    tokens : sequence of T_q strings, optional
        What the rows of queries stand for.
    source_tokens : sequence of T_k strings, optional
        What the keys stand for; default `tokens`, where there are as many.
    features : sequence of D strings, optional
        What the features of the inputs mean.
    note : str
        What the page says about the numbers: what is random, what is trained.
    training : bool
        Let a head learn below the arrays, as in `training_page`.
    meaning : Meaning, optional
        What the numbers of an example mean, for the sentences of the story.

    Returns
    -------
    Stepper
        A notebook shows it; ``to_html(path)`` writes it. It holds what the arrays are now.

    Notes
    -----
    The page computes the trace's own equations, in float64, from inputs and params of eleven
    digits. Where it cannot compute one, it holds
    the recorded numbers, and nothing can be changed. It needs no network.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import scaled_dot_product_attention
    >>> from mha_numpy.checking.tracing import trace
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out = scaled_dot_product_attention(x, x, x)
    >>> stepper(t, tokens=["the", "cat", "sat"])
    Stepper(steps=6)
    """
    steps = check_steps(trace, "stepper")
    _check_sizes(steps, trace.constants)
    check_sequence(steps, sequence)
    names = axis_labels(steps, tokens, source_tokens, features)
    axes = {"tokens": "T_q", "sourceTokens": "T_k", "features": "D"}
    labels = {name: names.get(axis) for name, axis in axes.items()}
    passes = dict.fromkeys("backward" if step.is_backward else "forward" for step in steps)
    title = f"{len(steps)} arrays, {' and '.join(passes)}"
    told: dict[str, Any] = {"title": title, "note": note, "sequence": sequence, **labels}
    story = story_of(
        trace, tokens=labels["tokens"], source_tokens=labels["sourceTokens"], meaning=meaning,
        note=note, sequence=sequence,
    )  # fmt: skip
    told["story"] = story.as_dict() if story else None
    if check_flag("training", training):
        told["training"] = describe_training()
    page = document(
        title, read("story/story.html") + read("page.html"), {**told, **describe_trace(trace)},
        styles=STYLES + TRAINING_STYLES * training, scripts=SCRIPTS + TRAINING_SCRIPTS * training,
        start=START,
    )  # fmt: skip
    rows = [
        [str(s.number), s.name, " ".join(named_sizes(s)), s.equation or s.memory] for s in steps
    ]
    table = Table(FALLBACK, ["#", "step", "axes", "equation"], rows).to_html()
    return Stepper(page, table, len(steps))


def training_page() -> Stepper:
    """Make a page in which a single head learns to say digits backwards.

    The page draws random params and batches, and computes forward, loss, backward and Adam
    itself, by the equations of one training step that was recorded here. After about 200 steps
    the weights show the antidiagonal; a click draws new params, and it is gone.

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
        "Watch a head learn", read("top.html") + '<main id="train"></main>\n', data,
        styles=("page.css", *TRAINING_STYLES), scripts=LEARNING_SCRIPTS, start=LEARNING_START,
    )  # fmt: skip
    return Stepper(page, LEARNING_FALLBACK, len(data["trace"]["arrays"]))


def _check_sizes(steps: Sequence[Step], constants: Sequence[Step]) -> None:
    check_numbers(steps, "biuf")
    for step in steps:
        for axis, size in zip(step.axes.split(), step.array.shape, strict=False):
            if axis in ("T_q", "T_k", "T") and size > MAX_TOKENS:
                raise ConfigError(
                    f"trace: expected {axis} <= {MAX_TOKENS}; got {axis}={size} ({step.name}): "
                    f"take fewer tokens, {ADVICE}"
                )
    numbers = sum(step.array.size for step in (*steps, *constants))
    if numbers > MAX_NUMBERS:
        raise ConfigError(
            f"trace: expected at most {MAX_NUMBERS:,} numbers in a page; got {numbers:,}: "
            f"take a smaller layer or fewer tokens, {ADVICE}"
        )
