"""The backward film: every gradient beside its array, and where it first leaves a reference."""

from dataclasses import replace

import numpy as np

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.show.pictures.blocks import cut_step
from mha_numpy.show.pictures.difference import (
    Comparison,
    Reference,
    compare_gradients,
    is_drawn,
)
from mha_numpy.show.pictures.labels import check_text, of_batch, sentences
from mha_numpy.show.pictures.panels import FULL, HALF, Panel, paint, prepare, reading
from mha_numpy.show.pictures.recorded import check_sequence, check_steps
from mha_numpy.show.pictures.save import Picture
from mha_numpy.show.pictures.svg import MARGIN, Drawing

FAR = 1_000_000  # from this trace's steps to the reference's, when sizes are looked up
INPUT_OF = {"x": "x_q", "x_kv": "x_k"}  # the sum of several gradients has no array of its name
BETWEEN = FULL - 2 * HALF  # units, from an array to its gradient


def backward_film(
    trace: Trace, *, reference: Reference | None = None, sequence: int = 0, note: str = ""
) -> Picture:
    """Draw every gradient beside the array that it belongs to, in the order of backward.

    A small square is a number, as in `shape_film`: its colour is that of the head it belongs to
    (grey: of none), its strength ``|value|`` relative to the panel's largest; a ring is a negative
    one. With a reference, the heading names the first gradient that
    leaves it, and its first such cell is framed.

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
        One panel for each gradient: its array, or an empty place where that was not recorded, and
        the gradient.

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
    First difference: d_v[0, 0] = 1, expected 0.04539; 6 of 6 cells differ
    """
    wanted = "gradient, a step named d_..."
    gradients = check_steps(trace, "film", backward=True, wanted=wanted)
    borrowed = reference.steps if isinstance(reference, Trace) else []
    recorded = [*trace.steps, *(replace(s, number=s.number + FAR) for s in borrowed)]
    arrays = [_array_of(gradient, recorded) for gradient in gradients]
    batch = check_sequence([*gradients, *(a for a in arrays if a is not None)], sequence)
    found = Comparison()
    if reference is not None:
        found = compare_gradients(gradients, reference, sequence)

    panels = _pairs(gradients, arrays, recorded, sequence, found)
    title = f"Backward film: {len(gradients)} gradient{'s' * (len(gradients) > 1)}"
    title += of_batch(sequence, batch)
    notes = [
        check_text("note", note),
        found.verdict and f"{found.verdict}.",
        *_reading(panels, found),
    ]
    drawn = []
    pairs = zip(arrays, panels[::2], panels[1::2], strict=True)
    for (array, own, gradient), step in zip(pairs, gradients, strict=True):
        drawing = Drawing(gradient.title, f"{_in_words(own, gradient)}.")
        paint(drawing, own, MARGIN, MARGIN, is_missing=array is None)
        is_beside = own.width == gradient.width == HALF
        at = (MARGIN + HALF + BETWEEN, MARGIN) if is_beside else (MARGIN, drawing.height + 14)
        places = paint(drawing, gradient, *at)
        if step is found.first:
            _light_up(drawing, gradient, places, found.cell, recorded, sequence)
        drawn.append(drawing)
    alt = _alt_text(title, found.verdict, notes[0], panels)
    return Picture(drawn, title=title, notes=notes, alt=alt)


def _array_of(gradient: Step, recorded: list[Step]) -> Step | None:
    """Return the step whose gradient this is; where a name came often, the last came back first."""
    earlier = [s for s in recorded if s.name == gradient.name and s.number < gradient.number]
    name = gradient.name.removeprefix("d_")
    for wanted in (name, INPUT_OF.get(name)):
        for is_own in (True, False):
            found = [s for s in recorded if s.name == wanted and (s.number < FAR) == is_own]
            if len(found) > len(earlier):
                return found[-1 - len(earlier)]
    return None


def _pairs(
    gradients: list[Step],
    arrays: list[Step | None],
    recorded: list[Step],
    sequence: int,
    found: Comparison,
) -> list[Panel]:
    """Lay out array, gradient, array, gradient, ...; a missing array has its gradient's places."""
    both = zip(arrays, gradients, strict=True)
    steps = [step for array, gradient in both for step in (array or gradient, gradient)]
    panels = []
    for i, panel in enumerate(prepare(steps, recorded, sequence)):
        step, facts = panel.step, panel.facts
        if i % 2:
            panel = panel._replace(mark=found.marks.get(id(step), ""))
        elif arrays[i // 2] is None:
            name = step.name.removeprefix("d_")
            is_param = name.startswith(("w_", "b_"))
            facts = [facts[0], "param, not recorded" if is_param else "not recorded"]
            step = replace(step, name=name, equation="")
        elif step.number > FAR:
            facts = [facts[0], "the reference's", *facts[2:]]
            step = replace(step, number=step.number - FAR)
        panels.append(panel._replace(step=step, facts=facts))
    return panels


def _reading(panels: list[Panel], found: Comparison) -> list[str]:
    notes = ["Each array with its gradient, in the order of backward."]
    notes += reading(
        panels, "A key/value head has the colour of its first query head, the numbers of all."
    )
    if any(panel.mark for panel in panels):
        notes.append("= agrees with the reference, ≠ differs.")
    if found.first is not None:
        notes.append("Start at the framed one: what comes after it is computed from it.")
    return notes


def _light_up(
    drawn: Drawing, panel: Panel, places: list[tuple[float, float]], cell: tuple[int, ...] | None,
    recorded: list[Step], sequence: int,
) -> None:  # fmt: skip
    """Frame the drawing and one cell in it; all of the gradient's cells where shapes differ."""
    layout, (_, rows, columns) = panel.layout, panel.blocks.values.shape
    pitch, side = layout.pitch, layout.cell
    frame = None
    if cell is None and places:
        (left, top), (right, bottom) = places[0], places[-1]
        frame = left, top, right - left + (columns - 1) * pitch, bottom - top + (rows - 1) * pitch
    elif cell is not None and is_drawn(panel.step, cell, sequence):
        numbers = np.arange(panel.step.array.size).reshape(panel.step.array.shape)
        cut = cut_step(replace(panel.step, array=numbers), sequence, recorded)
        block, row, column = np.argwhere(cut.values == numbers[cell])[0].tolist()
        x, y = places[block]
        frame = x + pitch * column, y + pitch * row, 0, 0
    if frame:
        x, y, wide, high = frame
        for color, thick in (("card", 6), ("ink", 3)):
            drawn.box(
                x - 1.5, y - 1.5, wide + side + 3, high + side + 3,
                stroke=color, thick=thick, kind="first",
            )  # fmt: skip
    drawn.text(MARGIN, drawn.height + 20, "The first that differs: start here.", "t")
    width, height = drawn.width, drawn.height
    drawn.box(
        1.5, 1.5, drawn.size[0] - 3, drawn.size[1] - 3, stroke="ink", thick=3, rx=11, kind="start"
    )
    drawn.width, drawn.height = width, height  # the frame is in the margin


def _in_words(array: Panel, gradient: Panel) -> str:
    words = {"": "", "=": ", agrees", "≠": ", differs"}
    of = " (of a param)" * (array.facts[1:2] == ["param, not recorded"])
    return f"{gradient.step.name} {gradient.facts[0]}{words[gradient.mark]}{of}"


def _alt_text(title: str, verdict: str, note: str, panels: list[Panel]) -> str:
    told = map(_in_words, panels[::2], panels[1::2])
    about = f"Each beside its array, in backward's order: {'; '.join(told)}."
    return f"{sentences(title, verdict, note)} {about}"
