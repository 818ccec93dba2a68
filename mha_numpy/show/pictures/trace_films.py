"""Every recorded step as small squares, coloured by the head they belong to; forward, and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mha_numpy.checking import compare
from mha_numpy.checking.differences import differing, distances, largest_of
from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.pictures.blocks import cut_step
from mha_numpy.show.pictures.labels import check_text, of_batch, sentences
from mha_numpy.show.pictures.panels import FULL, HALF, Panel, paint, prepare, reading
from mha_numpy.show.pictures.recorded import axis_labels, check_sequence, check_steps
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, Drawing

Reference = Trace | Mapping[str, Array]

INPUT_OF = {"x": "x_q", "x_kv": "x_k"}  # the sum of several gradients has no array of its name
BETWEEN = FULL - 2 * HALF  # units, from an array to its gradient


def shape_film(
    trace: Trace,
    *,
    sequence: int = 0,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
    note: str = "",
) -> Picture:
    """Draw every step of forward in order, one panel each.

    A small square is a number: its colour is that of the head it belongs to (grey: of none), its
    strength ``|value|`` relative to the panel's largest; a ring is a negative one. You see how each
    token's row is split into heads, how the heads part, attend, and come side by side again.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``; at most 300 steps of forward.
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
    steps = check_steps(trace, "film", backward=False)
    batch = check_sequence(steps, sequence)
    panels = prepare(steps, trace.steps, sequence, axis_labels(steps, tokens, source_tokens))
    title = f"Shape film of the forward pass: {len(panels)} step{'s' * (len(panels) > 1)}"
    title += of_batch(sequence, batch)
    notes = [check_text("note", note), *reading(panels)]
    drawn = []
    for panel in panels:
        drawing = Drawing(panel.title, f"{panel.title} {' '.join(panel.facts)}.")
        paint(drawing, panel, MARGIN, MARGIN)
        drawn.append(drawing)
    told = "; ".join(drawing.desc.removesuffix(".") for drawing in drawn)
    about = f"One panel for each, its cells coloured by head: {told}."
    return Picture(drawn, title=title, notes=notes, alt=f"{sentences(title, notes[0])} {about}")


def backward_film(
    trace: Trace, *, reference: Reference | None = None, sequence: int = 0, note: str = ""
) -> Picture:
    """Draw every gradient beside the array that it belongs to, in the order of backward.

    Squares mean what they mean in `shape_film`. With a reference, the heading names the first
    gradient that leaves it, and the cell that is furthest from it is framed.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``, by the library or by steps of one's own; at most 300
        gradients.
    reference : Trace or mapping of names to arrays, optional
        What the gradients should be, by the names ``d_...``; a Trace also lends the arrays of
        forward that `trace` does not have.
    sequence : int
        Which sequence of the batch; nothing else of axis B is drawn. All are compared.
    note : str
        A sentence under the heading, such as "Random params: nothing here is trained.".

    Returns
    -------
    Picture
        One panel for each gradient: its array, if that was recorded, and the gradient.

    Notes
    -----
    Two numbers differ by the rule of `check.compare`: if they are further apart than a thousand
    roundings of the largest gradient of the reference. What follows the first difference is
    computed from it, and may be right in itself.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import attention_backward, attention_forward
    >>> from mha_numpy.steps import step
    >>> from mha_numpy.checking.tracing import trace
    >>> x = np.arange(6.0).reshape(3, 2)
    >>> with trace() as right:
    ...     out, cache = attention_forward(x, x, x)
    ...     grads = attention_backward(np.ones((3, 2)), cache)
    >>> with trace() as mine:
    ...     d_v = step("d_v", right["weights"] @ right["d_heads"], "T_k d_v")  # not transposed
    >>> print(backward_film(mine, reference=right).alt.split(". ")[1])
    First difference: d_v: 6 of 6 numbers differ, most at [2, 0]: 1, expected 2.767
    """
    gradients = check_steps(trace, "film", backward=True)
    own, lent = [*trace.constants, *trace.steps], []
    if isinstance(reference, Trace):
        lent = [*reference.constants, *reference.steps]
        lent = [replace(step, memory="the reference's") for step in lent]
    arrays = [_array_of(gradient, own, lent) for gradient in gradients]
    both = list(zip(arrays, gradients, strict=True))
    steps = [step for pair in both for step in pair if step is not None]
    batch = check_sequence(steps, sequence)
    found = _Comparison() if reference is None else _compare(gradients, reference)
    panels = {id(panel.step): panel for panel in prepare(steps, [*own, *lent], sequence)}
    drawn = []
    for array, gradient in both:
        panel = panels[id(gradient)]._replace(mark=found.marks.get(id(gradient), ""))
        drawing = Drawing(panel.title, f"{_in_words(panel)}.")
        at: tuple[float, float] = MARGIN, MARGIN
        if array is not None:
            beside = panels[id(array)]
            paint(drawing, beside, *at)
            is_beside = beside.width == panel.width == HALF
            at = (MARGIN + HALF + BETWEEN, MARGIN) if is_beside else (MARGIN, drawing.height + 14)
        places = paint(drawing, panel, *at)
        if gradient is found.first:
            error = None
            if found.error is not None:
                error = cut_step(replace(gradient, array=found.error), sequence, own + lent).values
            _light_up(drawing, panel, places, error)
        drawn.append(drawing)

    title = f"Backward film: {len(gradients)} gradient{'s' * (len(gradients) > 1)}"
    title += of_batch(sequence, batch)
    notes = [check_text("note", note), f"{found.verdict}." * bool(found.verdict)]
    notes += ["Each array with its gradient, in the order of backward."]
    notes += reading(list(panels.values()))
    notes += ["= agrees with the reference, ≠ differs."] * bool(found.marks)
    if found.first is not None:
        notes.append("Start at the framed one: what comes after it is computed from it.")
    told = "; ".join(drawing.desc.removesuffix(".") for drawing in drawn)
    alt = f"{sentences(title, found.verdict, notes[0])} Each beside its array, in backward's order"
    return Picture(drawn, title=title, notes=notes, alt=f"{alt}: {told}.")


def _array_of(gradient: Step, own: list[Step], lent: list[Step]) -> Step | None:
    """Return the step whose gradient this is; where a name came often, the last came back first."""
    earlier = sum(s.name == gradient.name and s.number < gradient.number for s in own)
    name = gradient.name.removeprefix("d_")
    for wanted in (name, INPUT_OF.get(name)):
        for steps in (own, lent):
            found = [step for step in steps if step.name == wanted]
            if len(found) > earlier:
                return found[-1 - earlier]
    return None


class _Comparison(NamedTuple):
    """What was found out about the gradients; nothing without a reference."""

    marks: Mapping[int, str] = {}  # by the id of a step: = or ≠
    first: Step | None = None  # that leaves the reference
    error: Array | None = None  # of each of its cells; None where the shapes differ
    verdict: str = ""


def _compare(gradients: list[Step], reference: Reference) -> _Comparison:
    """Compare every gradient that both have, in backward's order; of one name first with first."""
    if isinstance(reference, Trace):
        names, arrays = [step.name for step in reference], [step.array for step in reference]
    elif isinstance(reference, Mapping):
        names, arrays = list(reference), list(reference.values())
    else:
        raise ConfigError(
            "reference: expected a Trace or a mapping of names to arrays; "
            f"got {describe(reference)}"
        )
    given = dict(zip(_numbered(names), arrays, strict=True))
    mine = dict(zip(_numbered(step.name for step in gradients), gradients, strict=True))
    expected = {name: np.asarray(given[name]) for name in mine if name in given}
    if not expected:
        raise ConfigError(
            "reference: expected a gradient of the same name as one of the trace's "
            f"({', '.join([*mine][:5])}, ...); got {[*given][:5]}"
        )
    rows = compare({name: mine[name].array for name in expected}, expected).rows
    marks = {
        id(mine[name]): "=" if row.passed else "≠" for name, row in zip(expected, rows, strict=True)
    }
    wrong = [(name, row) for name, row in zip(expected, rows, strict=True) if not row.passed]
    n = len(rows)
    if not wrong:
        of = f"all {n}" if n == len(gradients) else f"the {n} of {len(gradients)}"
        both = "" if n == len(gradients) else " that both have"
        return _Comparison(marks, verdict=f"Agrees with the reference in {of} gradients{both}")
    name, row = wrong[0]
    step, wanted, error = mine[name], expected[name], None
    if step.array.shape == wanted.shape:
        differs = differing(step.array, wanted, largest_of(wanted))
        error = np.where(differs, np.nan_to_num(distances(step.array, wanted), nan=np.inf), 0)
    verdict = f"First difference: {row.name}: {row.finding}. "
    return _Comparison(marks, step, error, f"{verdict}In all, {len(wrong)} of {n} gradients differ")


def _numbered(names: Iterable[str]) -> Iterator[str]:
    """Tell names apart that come again: d_x, d_x 2."""
    seen: list[str] = []
    for name in names:
        seen.append(name)
        yield f"{name} {seen.count(name)}" if seen.count(name) > 1 else name


def _light_up(
    drawn: Drawing, panel: Panel, places: list[tuple[float, float]], error: Array | None
) -> None:
    """Frame the drawing, and in it the cell that is furthest from the reference, if it is there."""
    if error is not None and error.any():
        block, row, column = np.unravel_index(error.argmax(), error.shape)
        (x, y), pitch, side = places[block], panel.layout.pitch, panel.layout.cell + 3
        corner = x + pitch * column - 1.5, y + pitch * row - 1.5
        for color, thick in (("card", 6), ("ink", 3)):
            drawn.box(*corner, side, side, stroke=color, thick=thick, kind="first")
    drawn.text(MARGIN, drawn.height + 20, "The first that differs: start here.", "t")
    width, height = drawn.width, drawn.height
    drawn.box(
        1.5, 1.5, drawn.size[0] - 3, drawn.size[1] - 3, stroke="ink", thick=3, rx=11, kind="start"
    )
    drawn.width, drawn.height = width, height  # the frame is in the margin


def _in_words(gradient: Panel) -> str:
    words = {"": "", "=": ", agrees", "≠": ", differs"}
    return f"{gradient.step.name} {gradient.facts[0]}{words[gradient.mark]}"
