"""stepper(): a trace as a page to step through."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

from mha_numpy.draw.recorded import (
    check_number_of_steps,
    check_numbers,
    check_sequence,
    check_trace,
)
from mha_numpy.draw.stepper.data import describe_steps
from mha_numpy.draw.stepper.fallback import table_of
from mha_numpy.errors import ConfigError
from mha_numpy.tracing import Step, Trace

MAX_TOKENS = 32  # T_q or T_k
MAX_NUMBERS = 250_000  # three characters each: a page of less than 1 MB
ADVICE = "or draw it with draw.shape_film"


@dataclass(frozen=True)
class Stepper:
    """A page that steps through the arrays of a trace; a notebook shows it by itself."""

    page: str = field(repr=False)
    fallback: str = field(repr=False)  # what remains where scripts are taken out
    steps: int

    def to_html(self, path: Path | str | None = None) -> str:
        """Return the page, whole and for itself; also write it to a file if a path is given.

        Parameters
        ----------
        path : path, optional

        Returns
        -------
        str
        """
        if path is not None:
            Path(path).write_text(self.page, encoding="utf-8")
        return self.page

    def _repr_html_(self) -> str:
        """Return the page in a frame of its own, and a table in case that this is taken out."""
        frame = _read("frame.html")
        return _fill(frame, {"page": escape(self.page), "fallback": self.fallback,
                             "script": _read("frame.js")})  # fmt: skip


def stepper(trace: Trace, *, sequence: int = 0) -> Stepper:
    """Make a page that steps through every recorded array, forward and then backward.

    Left and right arrow keys, Home, End and a slider lead from array to array. Pointing at a cell
    shows its index and value, lights the cells that it was computed from, and says so in words.

    Parameters
    ----------
    trace : Trace
        Filled inside ``with trace() as t:``.
    sequence : int
        Which sequence of the batch is drawn.

    Returns
    -------
    Stepper
        A notebook shows it; ``to_html(path)`` writes it. It holds what the arrays are now.

    Raises
    ------
    ConfigError
        `trace` is empty or has more than 300 steps, more than 32 tokens, more than 250,000 numbers,
        or arrays that are not real; or `sequence` is not in the batch.
    ShapeError
        The axes that a step names do not fit its array.

    Notes
    -----
    Numbers are rounded to about four significant digits, and each buffer is in the page once: a
    view is an offset and strides into it. The page needs no network.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import scaled_dot_product_attention
    >>> from mha_numpy.tracing import trace
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out = scaled_dot_product_attention(x, x, x)
    >>> stepper(t)
    Stepper(steps=6)
    """
    steps = check_trace(trace).steps
    _check_steps(steps)
    check_sequence(steps, sequence)
    data = describe_steps(trace, sequence)
    numbers = sum(len(buffer["codes"]) // 3 for buffer in data["buffers"])
    if numbers > MAX_NUMBERS:
        raise ConfigError(
            f"trace: expected at most {MAX_NUMBERS:,} numbers for one page; got {numbers:,}: "
            f"record a smaller layer or a shorter sequence, {ADVICE}"
        )
    passes = dict.fromkeys("backward" if step.is_backward else "forward" for step in steps)
    title = f"Stepper: {len(steps)} steps, {' and '.join(passes)}"
    # inside of a script element only "<" could end it
    page = _fill(
        _read("page.html"),
        {
            "title": escape(title),
            "style": _without_comments(_read("stepper.css")),
            "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
            "script": _without_comments(_read("stepper.js")),
        },
    )
    return Stepper(page, table_of(steps, sequence), len(steps))


def _check_steps(steps: Sequence[Step]) -> None:
    """Raise a ConfigError for what a page cannot show."""
    if not steps:
        raise ConfigError(
            "trace: expected at least one step; got none: call forward inside `with trace() as t:`"
        )
    check_number_of_steps(steps, "stepper")
    check_numbers(steps, "biuf")
    for step in steps:
        for axis, size in zip(step.axes.split(), step.array.shape, strict=False):
            if axis in ("T_q", "T_k", "T") and size > MAX_TOKENS:
                raise ConfigError(
                    f"trace: expected {axis} <= {MAX_TOKENS}; got {axis}={size} ({step.name}): "
                    f"record a shorter sequence, {ADVICE}"
                )


def _read(name: str) -> str:
    """Return the text of a file that lies beside this one."""
    return files("mha_numpy.draw.stepper").joinpath(name).read_text(encoding="utf-8")


def _without_comments(code: str) -> str:
    """Leave out the lines that are comments, and what indents the others: a page is short."""
    lines = (line.strip() for line in code.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


def _fill(template: str, parts: dict[str, str]) -> str:
    """Put each part in the place of its {{name}}; what a part holds is not looked at again."""
    pieces = template.split("{{")
    return pieces[0] + "".join(
        parts[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:])
    )
