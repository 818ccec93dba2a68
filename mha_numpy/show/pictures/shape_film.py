"""The shape film: every recorded step as small squares, coloured by the head they belong to."""

from collections.abc import Sequence

from mha_numpy.checking.tracing import Trace
from mha_numpy.checks import check_flag
from mha_numpy.show.pictures.labels import check_text, of_batch, sentences
from mha_numpy.show.pictures.panels import Panel, paint, prepare, reading
from mha_numpy.show.pictures.recorded import axis_labels, check_sequence, check_steps
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, Drawing

SHARED = (
    "A key/value head that serves several query heads has the colour of the first and the numbers "
    "of all."
)


def shape_film(
    trace: Trace,
    *,
    backward: bool = False,
    sequence: int = 0,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    note: str = "",
) -> Picture:
    """Draw every step of a pass in order, one panel each.

    A small square is a number: its colour is that of the head it belongs to (grey: of none), its
    strength ``|value|`` relative to the panel's largest; a ring is a negative one. You see how each
    token's row is split into heads, how the heads part, attend, and come side by side again.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``; at most 300 steps of a pass.
    backward : bool
        Draw the steps of backward instead of those of forward.
    sequence : int
        Which sequence of the batch; nothing else of axis B is drawn.
    tokens : sequence of T_q strings, optional
        Beside the rows of queries.
    source_tokens : sequence of T_k strings, optional
        Beside the rows of keys and values; default `tokens`, where there are as many.
    note : str
        A sentence under the heading, such as "Random params: nothing here is trained.".

    Returns
    -------
    Picture
        One panel for each step.

    Notes
    -----
    Only a step's axes are read, never its name. An axis H or H_kv makes blocks; an axis such as
    H*d_k is coloured piece by piece. A key/value head that serves several query heads has the
    colour of the first of them, and its panel a ◆. Cells of -inf are hatched, NaN and +inf
    cross-hatched. Squares are of one size in the whole film where that fits; a panel that is drawn
    smaller says so.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import attention_forward
    >>> from mha_numpy.checking.tracing import trace
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out, cache = attention_forward(x, x, x)
    >>> film = shape_film(t)
    >>> [panel.title for panel in film.panels]
    ['1 q', '2 k', '3 v', '4 scores', '5 weights', '6 heads']
    """
    steps = check_steps(trace, "film", backward=check_flag("backward", backward))
    batch = check_sequence(steps, sequence)
    labels = axis_labels(steps, tokens, source_tokens)
    panels = prepare(steps, trace.steps, sequence, labels)
    title = f"Shape film of the {'backward' if backward else 'forward'} pass: "
    title += f"{len(panels)} step{'s' * (len(panels) > 1)}{of_batch(sequence, batch)}"
    notes = [check_text("note", note), *reading(panels, SHARED)]
    drawn = []
    for panel in panels:
        drawing = Drawing(panel.title, f"{panel.title} {' '.join(panel.facts)}.")
        paint(drawing, panel, MARGIN, MARGIN)
        drawn.append(drawing)
    return Picture(drawn, title=title, notes=notes, alt=_alt_text(title, notes[0], panels))


def _alt_text(title: str, note: str, panels: list[Panel]) -> str:
    told = "; ".join(f"{panel.title} {' '.join(panel.facts)}" for panel in panels)
    return f"{sentences(title, note)} One panel for each, its cells coloured by head: {told}."
