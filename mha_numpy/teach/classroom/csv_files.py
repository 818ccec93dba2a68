"""CSV files: read as spreadsheets write them, written so that no cell is a formula."""

import csv
import io
import re
from pathlib import Path

from mha_numpy.errors import ConfigError

FORMULA = re.compile(r"(^|[;,])(?=\s*[=+@-])")  # a spreadsheet computes it, and may cut at either


def read_rows(path: Path, what: str) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file that are not empty, each with the number of its first line.

    It is text in UTF-8 with commas or, if the first line has none, semicolons. A cell in quotes may
    have several lines. `what` is the argument that a ConfigError names.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{what}: cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{what}: expected text in UTF-8 in {path}; save it as CSV UTF-8"
        ) from error
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


def safe(text: str) -> str:
    """Return a text that no spreadsheet mistakes for a formula.

    Examples
    --------
    >>> safe("=1+1"), safe("x;-2+3")
    ("'=1+1", "x;'-2+3")
    """
    return FORMULA.sub(r"\1'", " ".join(text.split()))
