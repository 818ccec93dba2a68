"""read_roster: the students of a class, from a spreadsheet's CSV file."""

import csv
import re
from pathlib import Path

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.csv_files import read_rows

# an id is a folder's name, on any system, and a part of what variants are made of
NO_ID = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]|^\.|\.$|^-')
PORTS = {f"{port}{n}" for port in ("com", "lpt") for n in range(10)}
RESERVED = {"con", "prn", "aux", "nul", *PORTS}
EVERYBODY = "all"  # the folder of a handout that everybody gets
LONGEST = 100  # characters of an id


def read_roster(path: Path | str) -> dict[str, str]:
    r"""Read the ids and names of the students from a CSV file.

    Parameters
    ----------
    path : path
        Text in UTF-8. The columns are id and name, in this order if there is no header. A name
        may be missing, and further columns are ignored.

    Returns
    -------
    dict
        The name of each id, "" if it has none.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "ids.csv"
    ...     _ = path.write_text("id,name\ns1,Ada\ns2,Emmy\n")
    ...     read_roster(path)
    {'s1': 'Ada', 's2': 'Emmy'}
    """
    path = Path(path)
    rows = read_rows(path, "roster")
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    of_id, of_name = 0, 1
    if "id" in header:
        of_id, rows = header.index("id"), rows[1:]
        of_name = header.index("name") if "name" in header else len(header)
    roster: dict[str, str] = {}
    for line, row in rows:
        student = row[of_id] if of_id < len(row) else ""
        _check_id(student, f"{path}, line {line}", roster)
        roster[student] = row[of_name] if of_name < len(row) else ""
    if not roster:
        raise ConfigError(f"roster: expected an id and a name in each line; {path} has none")
    return roster


def _check_id(student: str, where: str, known: dict[str, str]) -> None:
    """Raise a ConfigError if an id cannot name both one student and a folder."""
    if not student:
        raise ConfigError(f"roster: expected an id; {where} has none")
    is_reserved = student.lower().partition(".")[0] in RESERVED or student.lower() == EVERYBODY
    if NO_ID.search(student) or is_reserved or len(student) > LONGEST:
        raise ConfigError(
            f"roster: expected an id that can be the name of a folder; {where} has "
            f"{student[:LONGEST]!r}; write letters, digits, - _ @ or a dot inside"
        )
    same = next((other for other in known if other.casefold() == student.casefold()), None)
    if same is not None:
        raise ConfigError(f"roster: expected each id once; {where} has {student!r} after {same!r}")


def write_roster(path: Path, roster: dict[str, str]) -> None:
    """Write ids and names as `read_roster` reads them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "name"), *roster.items()])
