"""What the walk prints: tokens, steps, who attends to whom, gradients."""

from collections.abc import Iterator
from textwrap import fill

import numpy as np

from mha_numpy.checking.tracing import Step
from mha_numpy.dtypes import Array
from mha_numpy.show.walk.result import Walk
from mha_numpy.tables import Table

WIDTH = 80  # characters of a line, where no terminal says another
SMALL, NARROW = 24, 5  # an array of so few numbers, and of so few in a row, is shown itself
NEXT = """Next:
  mha-numpy lab                         the notebooks: begin with 00
  mha-numpy walk ... --open             all this as a page to play with
  mha-numpy walk ... --save DIR         pictures of all this
  mha-numpy exercises start mine        write it yourself, and have it checked"""


def sections(seen: Walk, *, memory: bool = False) -> Iterator[Table | str]:
    """Yield the parts of the report in order: lines of text, and tables.

    With `memory`, the steps are told by how their arrays lie in memory.
    """
    yield _summary(seen)
    is_named = seen.is_trained and seen.source_tokens is not seen.tokens
    yield _tokens(seen.query_name if is_named else "tokens", seen.tokens)
    if seen.source_tokens is not seen.tokens:
        yield _tokens(seen.key_name if is_named else "source", seen.source_tokens)
    yield from seen.said
    yield _steps(seen, "FORWARD: from [B, T, D] to [B, H, T, d_h] and back", memory)
    yield attention_table(seen)
    yield _steps(seen, "BACKWARD: the same way, last step to first", memory, backward=True)
    yield _gradients(seen) if seen.report else seen.report.table()
    yield _verdict(seen)
    yield NEXT


def attention_table(seen: Walk) -> Table:
    """Return, for each query and head, the key that it attends to most; of the first sequence."""
    H = seen.weights.shape[1]
    rows = [[str(i), token] for i, token in enumerate(seen.tokens)]
    for i, row in enumerate(rows):
        for weights in seen.weights[0, :, i]:
            key, most = seen.source_tokens[weights.argmax()], weights.max()
            row.append(f"{key} {most:.2f}" if most > 0 else "nothing")
    B, K = seen.weights.shape[0], len(seen.source_tokens)
    title = f"WHO ATTENDS TO WHOM MOST, of {K} keys (weight 0 to 1)"
    if B > 1:
        title += f", sequence 0 of {B}"
    return Table(title, ["#", "query", *(f"head {h}" for h in range(H))], rows, first_head=2)


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
    """Return the tokens, numbered; those that stand in one line stand together."""
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
        return "gradients: WRONG, see the rows marked FAIL"
    worst = {method: report.errors(method).values() for method in ("central", "complex step")}
    found = [f"{max(errors):.0e} by {method}" for method, errors in worst.items() if errors]
    return f"gradients: all {len(worst['central'])} right; largest error {', '.join(found)}"
