"""The backward film: every gradient beside its array, and where it first leaves a reference."""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from mha_numpy.checking.tracing import Step, Trace
from mha_numpy.show.pictures.blocks import cut_step
from mha_numpy.show.pictures.colors import GREY, INK
from mha_numpy.show.pictures.difference import (
    Comparison,
    Reference,
    compare_gradients,
    is_drawn,
)
from mha_numpy.show.pictures.labels import check_text, of_batch, sentences
from mha_numpy.show.pictures.layout import GUTTER, Box, start_page
from mha_numpy.show.pictures.panels import (
    Panel,
    arrange,
    block_places,
    legend_entries,
    paint,
    prepare,
    reading,
    write_header,
)
from mha_numpy.show.pictures.recorded import check_sequence, check_steps
from mha_numpy.show.pictures.save import Picture

FAR = 1_000_000  # from this trace's steps to the reference's, when sizes are looked up
INPUT_OF = {"x": "x_q", "x_kv": "x_k"}  # the sum of several gradients has no array of its name
FRAME = 0.11  # inches, around a pair
ARROW = 0.42  # inches


def backward_film(
    trace: Trace, *, reference: Reference | None = None, sequence: int = 0, note: str = ""
) -> Picture:
    """Draw every gradient beside the array that it belongs to, in the order of backward.

    A small square is a number, as in `shape_film`: its colour is that of the head it belongs to
    (grey: of none), its shade ``|value|`` relative to the panel's largest; a minus marks a negative
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
        A matplotlib Figure; ``get_label()`` is its alt text, ``.axes`` are the panels, two for
        each gradient: the array, or an empty place where it was not recorded, and the gradient.

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
    >>> print(backward_film(mine, reference=right).get_label().split(". ")[1])
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
    rows, headers = arrange(panels, None, choices=(6, 4, 2))
    boxes = [box for row in rows for box in row]
    title = f"Backward film: {len(gradients)} gradient{'s' * (len(gradients) > 1)}"
    title += of_batch(sequence, batch)
    notes = [check_text("note", note), _reading(panels, found)]
    alt, legend = _alt_text(title, found.verdict, notes[0], panels), legend_entries(panels)
    film, axes = start_page(rows, title, notes, alt=alt, verdict=found.verdict, legend=legend)
    for i, (ax, panel, header) in enumerate(zip(axes, panels, headers, strict=True)):
        ax.set_label(f"{'gradient' if i % 2 else 'array'} {panel.step.name}")
        is_first = gradients[i // 2] is found.first
        if i % 2 == 0:
            ax.add_patch(_frame(boxes[i], boxes[i + 1], is_first=is_first))
        if i % 2 or arrays[i // 2] is not None:
            paint(ax, panel, header)
        else:
            _paint_missing(ax, panel, header)
        if is_first and i % 2:
            _light_up(ax, panel, header, found.cell, recorded, sequence)
    return film


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


def _reading(panels: list[Panel], found: Comparison) -> str:
    text = "Left the array, right its gradient; from pair to pair as backward goes. "
    text += reading(
        panels, "A key/value head has the colour of its first query head, the numbers of all."
    )
    if any(panel.mark for panel in panels):
        text += " = agrees with the reference, ≠ differs."
    if found.first is not None:
        text += " Start at the strong frame: what comes after it is computed from it."
    return text


def _frame(array: Box, gradient: Box, *, is_first: bool) -> FancyBboxPatch:
    """Return the frame around a pair, from the array's corner; a strong one where to start."""
    return FancyBboxPatch(
        (-FRAME / 2, -array.top), array.width + GUTTER + gradient.width + FRAME,
        array.full_height + FRAME / 2, boxstyle=f"round,pad={FRAME / 2},rounding_size={FRAME}",
        facecolor="#F7F7F7", edgecolor=INK if is_first else "#D9D9D9", clip_on=False,
        linewidth=2 if is_first else 0.8, zorder=-1, label="start here" if is_first else "pair",
    )  # fmt: skip


def _paint_missing(ax: Axes, panel: Panel, header: list[str]) -> None:
    """Draw the places of an array that was not recorded, empty."""
    write_header(ax, panel.step.name, header)
    for place in block_places(panel, header):
        outline = Rectangle(
            place, *panel.block_size, fill=False, edgecolor=GREY, linewidth=0.6,
            linestyle=(0, (3, 3)), clip_on=False, label="missing",
        )  # fmt: skip
        ax.add_patch(outline)


def _light_up(
    ax: Axes,
    panel: Panel,
    header: list[str],
    cell: tuple[int, ...] | None,
    recorded: list[Step],
    sequence: int,
) -> None:
    """Frame one cell and point at it; the whole picture where the shapes differ."""
    places, layout = block_places(panel, header), panel.layout
    corners = np.array([*places, *(np.array(places) + panel.block_size)])
    low, high = corners.min(axis=0), corners.max(axis=0)
    halo = [patheffects.withStroke(linewidth=4.2, foreground="white")]
    style: dict[str, Any] = {
        "fill": False, "edgecolor": INK, "linewidth": 2, "joinstyle": "miter", "zorder": 5,
        "path_effects": halo, "clip_on": False, "label": "first difference",
    }  # fmt: skip
    if cell is None:
        ax.add_patch(Rectangle(low - 0.02, *(high - low + 0.04), **style))
        return
    if not is_drawn(panel.step, cell, sequence):
        return
    numbers = np.arange(panel.step.array.size).reshape(panel.step.array.shape)
    cut = cut_step(replace(panel.step, array=numbers), sequence, recorded)
    block, row, column = np.argwhere(cut.values == numbers[cell])[0]
    corner = places[block] + layout.cell * np.array([column, row * layout.pitch])
    side = layout.cell
    ax.add_patch(Rectangle(corner, side, side, **style))
    towards = np.where(corner + side / 2 <= (low + high) / 2, 1.0, -1.0)
    tip = corner + side / 2 + towards * side / 2
    ax.annotate(
        "", tip, tip + towards * ARROW / np.sqrt(2), zorder=6, annotation_clip=False,
        arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.6, "mutation_scale": 11,
                    "shrinkA": 0, "shrinkB": 0, "path_effects": halo},
    )  # fmt: skip


def _alt_text(title: str, verdict: str, note: str, panels: list[Panel]) -> str:
    words = {"": "", "=": ", agrees", "≠": ", differs"}
    told = [
        f"{gradient.step.name} {gradient.facts[0]}{words[gradient.mark]}"
        + ("" if array.facts[1:2] != ["param, not recorded"] else " (of a param)")
        for array, gradient in zip(panels[::2], panels[1::2], strict=True)
    ]
    about = f"Each beside its array, in backward's order: {'; '.join(told)}."
    return f"{sentences(title, verdict, note)} {about}"
