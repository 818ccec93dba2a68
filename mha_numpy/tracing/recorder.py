"""The recorder behind `with trace() as t:`."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from mha_numpy.checks import check_shape
from mha_numpy.core.steps import watching
from mha_numpy.dtypes import Array
from mha_numpy.tables import Table
from mha_numpy.tracing.step import Step
from mha_numpy.tracing.words import explain

MOVE = re.compile(r"\.(reshape|transpose)\(")  # an equation that moves elements


class Trace:
    """The steps recorded so far; prints as a table, in a notebook as an HTML table.

    ``t["scores"]`` is the array of that name (the last one recorded); ``t.steps`` are all.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._aliases: dict[str, str] = {}  # a name in an equation -> the row that holds it

    def __getitem__(self, name: str) -> Array:
        return self._last(name).array

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of every named axis.

        Raises
        ------
        ShapeError
            Two steps disagree about an axis, or a step's axes do not fit its array.
        """
        sizes: dict[str, int] = {}
        for step in self.steps:
            check_shape(step.name, step.array, step.axes, sizes, to_match="the steps before")
        return sizes

    def record(self, name: str, array: Array, axes: str, equation: str) -> None:
        """Note one step.

        An array that is an earlier one untouched gets no row of its own, as where an option was
        not given: forward keeps its first name, backward takes its last, so that both speak of
        `scores` when there is no softcap; and so do equations. Only an input under a new name,
        and a gradient that is an array of forward, are told again.
        """
        names = [seen.name for seen in self.steps]
        twin = next((i for i, seen in enumerate(self.steps) if seen.array is array), None)
        if twin is None:
            self._append(name, array, axes, equation, self._memory_of(array, equation))
        elif name.startswith("d_") and self.steps[twin].is_backward:
            self._rename(twin, name)
        elif name.startswith("d_") or (not equation and name not in names):
            self._append(name, array, axes, equation, f"is {names[twin]}")
        else:
            self._aliases[name] = names[twin]

    def explain(self, name: str, index: Sequence[int]) -> str:
        """Say which cells of earlier arrays one cell was computed from.

        Parameters
        ----------
        name : str
            Of a step; of several with that name the last.
        index : sequence of int
            One for each axis, from 0.

        Returns
        -------
        str

        Raises
        ------
        KeyError
            No step has that name.
        ConfigError
            `index` is not one of the array's cells.

        Notes
        -----
        Derived from the names of axes and the form of equations; where these do not tell, the
        words say so. A cell that only moved is told by what it was computed from.

        Examples
        --------
        >>> from mha_numpy.core import scaled_dot_product_attention
        >>> x = np.eye(3)
        >>> with trace() as t:
        ...     out = scaled_dot_product_attention(x, x.copy(), x.copy())
        >>> t.explain("scores", (0, 2))
        'scores[0,2] came from q[0,:] and k[2,:]'
        >>> t.explain("weights", (0, 2))
        'weights[0,2] came from scores[0,:], the whole row'
        """
        return explain(self.steps, self._last(name), index)

    def table(self, *, backward: bool | None = None) -> Table:
        """Return the steps as a table: all, or only those of forward or of backward."""
        chosen = [s for s in self.steps if backward is None or s.is_backward == backward]
        rows = [
            [
                str(s.number),
                s.name,
                s.equation or s.memory,
                f"[{', '.join(s.axes.split())}]",
                str(s.array.shape),
                s.memory,
                str(s.array.strides),
                str(s.array.nbytes),
            ]
            for s in chosen
        ]
        dtypes = sorted({str(s.array.dtype) for s in chosen})
        title = f"{len(chosen)} steps, {', '.join(dtypes)}; strides and sizes in bytes"
        columns = ["#", "step", "equation", "axes", "shape", "memory", "strides", "bytes"]
        return Table(title, columns, rows)

    def to_json(self, *, values: bool = False) -> str:
        """Return all steps as JSON; with the numbers themselves on request.

        JSON has no NaN and no infinities: these are written as the strings "nan", "inf", "-inf".
        """
        return json.dumps([step.as_dict(values=values) for step in self.steps], indent=1)

    def __str__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        return self.table().to_html()

    def _last(self, name: str) -> Step:
        """Return the last step of a name."""
        for step in reversed(self.steps):
            if step.name == name:
                return step
        raise KeyError(f"no step is named {name!r}; there are {[s.name for s in self.steps]}")

    def _append(self, name: str, array: Array, axes: str, equation: str, memory: str) -> None:
        """Add a row, its equation in the names of the rows before."""
        self._aliases.pop(name, None)
        equation = re.sub(r"\w+", lambda word: self._aliases.get(word[0], word[0]), equation)
        self.steps.append(Step(len(self.steps) + 1, name, axes, equation, array, memory))

    def _rename(self, index: int, name: str) -> None:
        """Give a row another name, in equations too; those to come may still use the old ones."""
        old = self.steps[index].name
        self.steps[index] = replace(self.steps[index], name=name)
        for later in range(index + 1, len(self.steps)):
            equation = re.sub(
                r"\w+", lambda word: name if word[0] == old else word[0], self.steps[later].equation
            )
            self.steps[later] = replace(self.steps[later], equation=equation)
        self._aliases = {word: name if row == old else row for word, row in self._aliases.items()}
        self._aliases[old] = name
        self._aliases.pop(name, None)

    def _memory_of(self, array: Array, equation: str) -> str:
        """Measure whether the array shares memory with an earlier step.

        One that is new, was made by moving elements alone, and has those of the step before, is a
        copy of it.
        """
        for step in reversed(self.steps):
            if _share_memory(step.array, array):
                return f"view of {step.name}"
        moves_only = MOVE.search(equation) is not None
        if moves_only and self.steps and _same_elements(self.steps[-1].array, array):
            return f"copy of {self.steps[-1].name}"
        return "new" if equation else "input"


def _share_memory(a: Array, b: Array) -> bool:
    """Return whether two arrays have an element in common, not only a buffer."""
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _same_elements(a: Array, b: Array) -> bool:
    """Return whether two arrays hold the same numbers in the same order, whatever their shapes."""
    return a.size == b.size and np.array_equal(a.ravel(), b.ravel(), equal_nan=True)


@contextmanager
def trace() -> Iterator[Trace]:
    """Record every step inside the block, forward and backward.

    Yields
    ------
    Trace
        Filled as the computation goes. It keeps the arrays themselves.

    Notes
    -----
    An innermost block records alone. What other threads compute is not recorded.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.core import scaled_dot_product_attention
    >>> x = np.eye(3)
    >>> with trace() as t:
    ...     out = scaled_dot_product_attention(x, x, x)
    >>> [step.name for step in t]
    ['q', 'k', 'v', 'scores', 'weights', 'heads']
    >>> t["scores"].shape, t.sizes["T_k"]
    ((3, 3), 3)
    """
    recorded = Trace()
    with watching(recorded.record):
        yield recorded
