"""CSV files: read as spreadsheets write them, written so that no cell is a formula."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mha_numpy.checks import read_text
from mha_numpy.errors import ConfigError

FORMULA = re.compile(r"(^|[;,])(?=\s*[=+@-])")  # a spreadsheet computes it, and may cut at either


def read_rows(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file that are not empty, each with the number of its first line.

    It is text in UTF-8 with commas or, if the first line has none, semicolons. A cell in quotes may
    have several lines. `what` is the argument that a ConfigError names.
    """
    text = read_text(what, path, "; save it as CSV UTF-8")
    first = text.partition("\n")[0]
    delimiter = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    rows, line = [], 1
    try:
        for row in reader:
            rows.append((line, [cell.strip().replace("\n", " ") for cell in row]))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"{what}: expected a CSV file; {path}, line {line}: {error}; is there a quote that is "
            "not closed, or not doubled?"
        ) from error
    return [(line, row) for line, row in rows if any(row)]


def as_csv(rows: Iterable[Sequence[str]], delimiter: str = ",", *, is_safe: bool = False) -> str:
    """Return rows as text, each cell made `safe` unless all of them are."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerows(rows if is_safe else [[safe(cell) for cell in row] for row in rows])
    return stream.getvalue()


def safe(text: str) -> str:
    """Return a text that no spreadsheet mistakes for a formula.

    Examples
    --------
    >>> safe("=1+1"), safe("x;-2+3")
    ("'=1+1", "x;'-2+3")
    """
    return FORMULA.sub(r"\1'", " ".join(text.split()))
