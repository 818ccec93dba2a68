"""What the walk prints: what each word looks at; in full, every step and gradient."""

from collections.abc import Iterator
from textwrap import fill

import numpy as np

from mha_numpy.checking.tracing import Step
from mha_numpy.dtypes import Array
from mha_numpy.show.scenes.story import named
from mha_numpy.show.walk.result import Walk
from mha_numpy.tables import Table

WIDTH = 80  # characters of a line, where no terminal says another
SMALL, NARROW = 24, 5  # an array of so few numbers, and of so few in a row, is shown itself
SHADES = "··", "░░", "▒▒", "▓▓", "██"  # of a weight, from 0 to 1
FEW = 2  # heads whose second weight is named, too
NEXT = """\
next: mha-numpy lab                       the notebooks, from 00 on
      mha-numpy walk "your sentence"      your own sentence, with random numbers
      mha-numpy walk --verbose            every step and every gradient"""


def brief(seen: Walk, *, is_shaded: bool = False) -> Iterator[Table | str]:
    """Yield what a newcomer reads: who looks at whom, the shapes, and whether gradients are right.

    On a terminal that can show them, each row of weights is drawn in shaded cells.
    """
    yield fill(seen.about, WIDTH)
    yield from (part for part in seen.said if isinstance(part, str))
    yield _looks(seen, is_shaded)
    worst = max(seen.report.errors("central").values())
    verdict = f"gradients: every number checked, all correct (largest error {worst:.0e})"
    yield "\n".join((*_answer(seen), _shapes(seen), verdict if seen.report else _verdict(seen)))


def _looks(seen: Walk, is_shaded: bool = False) -> Table:
    """Return what each token of the first sequence looks at most, head by head."""
    B, H = seen.weights.shape[:2]
    names = [f": {name}" for name in seen.meaning.heads] if seen.meaning else [""] * H
    rows = []
    for i, token in enumerate(seen.tokens):
        cells = []
        for weights in seen.weights[0, :, i]:
            shades = "".join(SHADES[round(4 * float(weight))] for weight in weights)
            looks = _named(weights, seen.source_tokens, most=2 if H <= FEW else 1)
            cells.append(f"{shades} {looks}" if is_shaded else looks)
        rows.append([token, *cells])
    title = "In each head, every word has 100% of its attention to share out. Most goes to:"
    title = title.replace("word", f"word of sequence 0 of {B}") if B > 1 else title
    columns = ["", *(f"head {h}{name}" for h, name in enumerate(names))]
    return Table(title, columns, rows, first_head=1)


def _named(weights: Array, tokens: list[str], most: int) -> str:
    """Return the largest weights with their tokens, as the page does: "cat 78%, fish 17%"."""
    seen = np.flatnonzero(weights)
    pieces = named(weights[seen], [tokens[j] for j in seen], is_share=True, most=most)
    return "".join(text for _, text in pieces) or "nothing"


def _answer(seen: Walk) -> Iterator[str]:
    """Yield how to read the row that an example is about."""
    if seen.meaning:
        i = seen.meaning.asker
        weights = seen.weights[0, 0, i]
        most = f"{weights.max():.0%} of what {seen.tokens[i]} receives"
        yield f"So in head 0, {seen.source_tokens[weights.argmax()]} supplies {most}."


def _shapes(seen: Walk) -> str:
    shapes = {step.name: step.array.shape for step in seen.trace if not step.is_backward}
    names = {"x_q": "x", "q": "q", "weights": "weights", "out": "out"}
    return fill(f"shapes: {' -> '.join(f'{names[name]} {shapes[name]}' for name in names)}", WIDTH)


def sections(seen: Walk, *, memory: bool = False) -> Iterator[Table | str]:
    """Yield the parts of the whole report in order: lines of text, and tables.

    With `memory`, each step is described by how its array lies in memory.
    """
    yield _summary(seen)
    is_named = seen.is_trained and seen.source_tokens is not seen.tokens
    yield _tokens(seen.query_name if is_named else "tokens", seen.tokens)
    if seen.source_tokens is not seen.tokens:
        yield _tokens(seen.key_name if is_named else "source", seen.source_tokens)
    yield from seen.said
    yield _steps(seen, "FORWARD: from [B, T, D] to [B, H, T, d_h] and back", memory)
    yield _looks(seen)
    yield _steps(seen, "BACKWARD: the same steps, last to first", memory, backward=True)
    yield _gradients(seen) if seen.report else seen.report.table()
    yield _verdict(seen)


def _summary(seen: Walk) -> str:
    sizes = seen.trace.sizes
    kind = "cross-attention" if seen.is_cross else "self-attention"
    if seen.is_causal:
        kind = f"causal {kind}"
    if seen.window is not None:
        kind += f" with window={seen.window}"
    dims = ", ".join(
        f"{axis}={sizes[axis]}" for axis in ("B", "T_q", "T_k", "D", "H", "H_kv", "d_k", "d_v")
    )
    dtype = seen.trace.steps[0].array.dtype
    lines = (f"{kind}, {dtype}: {dims}", repr(seen.layer), seen.about)
    return "\n".join(fill(line, WIDTH) for line in lines)


def _tokens(title: str, tokens: list[str]) -> str:
    """Return the tokens with their numbers; a token and its number stay on one line."""
    numbered = "  ".join(f"{i}\N{NO-BREAK SPACE}{token}" for i, token in enumerate(tokens))
    return fill(f"{title}: {numbered}", WIDTH, break_long_words=False).replace("\xa0", " ")


def _steps(seen: Walk, title: str, memory: bool, *, backward: bool = False) -> Table:
    """Return the steps of one pass: what each computes, or where its array lies in memory."""
    steps = [step for step in seen.trace if step.is_backward == backward]
    if memory:
        columns = ["step", "shape", "strides", "bytes", "memory"]
        rows = [
            [
                s.name, str(s.array.shape), " ".join(map(str, s.array.strides)),
                str(s.array.nbytes), s.memory,
            ]
            for s in steps
        ]  # fmt: skip
        return Table(f"{title} (strides in bytes)", columns, rows)
    rows = []
    for step in steps:
        sizes = zip(step.axes.split(), step.array.shape, strict=True)
        shape = " ".join(f"{axis}={n}" for axis, n in sizes)
        rows.append([step.name, shape, step.equation or step.memory])
        rows += [["", "", line] for line in _numbers(step)]
    return Table(title, ["step", "shape", "equation"], rows)


def _numbers(step: Step) -> list[str]:
    """Return the lines of a small array, of its first sequence; none for others."""
    has_batch = step.axes.startswith("B ") and len(step.array) > 0
    array: Array = step.array[0] if has_batch else step.array
    if step.memory.startswith("is ") or array.size > SMALL or array.shape[-1:] > (NARROW,):
        return []
    return np.array2string(array, precision=2, suppress_small=True, floatmode="fixed").splitlines()


def _gradients(seen: Walk) -> Table:
    central, complex_step = (seen.report.errors(method) for method in ("central", "complex step"))
    first = {row.name: row for row in reversed(seen.report.rows)}
    rows = [
        [
            name.removeprefix("params."), str(first[name].shape), first[name].checked,
            f"{error:.0e}", f"{complex_step[name]:.0e}" if name in complex_step else "",
        ]
        for name, error in central.items()
    ]  # fmt: skip
    columns = ["gradient of", "shape", "numbers checked", "central", "complex step"]
    title = "GRADIENT CHECK: the largest error of each array, by central and complex step"
    return Table(title, columns, rows)


def _verdict(seen: Walk) -> str:
    report = seen.report
    if not report:
        return "gradients: WRONG, see the rows marked FAIL in --verbose"
    worst = {method: report.errors(method).values() for method in ("central", "complex step")}
    errors = [f"{max(found):.0e} by {method}" for method, found in worst.items() if found]
    return f"gradients: all {len(worst['central'])} right; largest error {', '.join(errors)}"
