"""Results of checks, as objects, as text tables and as HTML tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mha_numpy.tables import Table


@dataclass(frozen=True)
class ArrayReport:
    """The check of one array by one method.

    ``error`` is the largest ``|analytic - numeric|`` divided by the largest numerical derivative of
    the whole set (or by a multiple of the error that rounding can cause, if that is larger), so
    that an array whose true gradient is zero is not divided by zero. The worst index is that of the
    element farthest beyond its tolerance: an index into the array, or "direction i" where a random
    direction showed it.
    """

    name: str
    shape: tuple[int, ...]
    method: str  # "central", "complex step", "jvp" or "double backward"
    checked: str  # "all 24", or "256 of 4096 + 8 directions"
    passed: bool
    worst: tuple[int, ...] | str
    analytic: float
    numeric: float
    error: float


class Report:
    """Rows that passed or failed; true if all passed, and shown as a table."""

    rows: Sequence[Any]

    @property
    def passed(self) -> bool:
        """Whether every row passed."""
        return all(row.passed for row in self.rows)

    def table(self) -> Table:
        """Return one table of all rows."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self.table().to_text()

    def _repr_html_(self) -> str:
        return self.table().to_html()


@dataclass(frozen=True, repr=False)
class GradcheckReport(Report):
    """The check of a whole set of gradients; true if all passed.

    Examples
    --------
    >>> row = ArrayReport("x", (2,), "central", "all 2", True, (1,), 0.5, 0.5, 0.0)
    >>> report = GradcheckReport([row], "")
    >>> bool(report), report.max_error
    (True, 0.0)
    """

    rows: Sequence[ArrayReport]
    note: str  # why there is no complex step, or nothing

    @property
    def max_error(self) -> float:
        """The largest error of all rows."""
        return max((row.error for row in self.rows), default=0.0)

    def errors(self, method: str) -> dict[str, float]:
        """Return each array's error by one method, such as "central" or "complex step"."""
        return {row.name: row.error for row in self.rows if row.method == method}

    def table(self) -> Table:
        """Return one row for each array and method."""
        names = {row.name for row in self.rows}
        failed = {row.name for row in self.rows if not row.passed}
        verdict = f"FAILED: {len(failed)} of {len(names)} arrays" if failed else "passed"
        rows = [
            [
                "ok" if row.passed else "FAIL",
                row.name,
                str(row.shape),
                row.method,
                row.checked,
                row.worst if isinstance(row.worst, str) else str(list(row.worst)),
                f"{row.analytic:.10g}",
                f"{row.numeric:.10g}",
                f"{row.error:.1e}",
            ]
            for row in self.rows
        ]
        columns = ["", "array", "shape", "method", "checked", "worst at", "analytic", "numeric"]
        note = f" ({self.note})" if self.note else ""
        bad = frozenset(i for i, row in enumerate(self.rows) if not row.passed)
        return Table(f"gradient check {verdict}{note}", [*columns, "largest error"], rows, bad)

    def _repr_html_(self) -> str:
        """Fold the table where there is nothing to look for."""
        table = super()._repr_html_()
        if not (self.rows and self.passed):
            return table
        count = len({row.name for row in self.rows})
        every = "the gradient agrees" if count == 1 else f"all {count} gradients agree"
        return f"<details><summary><b>Passed</b>: {every}</summary>{table}</details>"
