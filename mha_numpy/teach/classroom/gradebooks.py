"""The grades of a class as Canvas, Moodle and Blackboard import them.

- Canvas reads commas and UTF-8. It finds a student by SIS user ID, then by login, then by name; its
  own `ID` is only known where its file names are all that says whose a file is. The row of possible
  points comes first.
- Moodle reads commas and UTF-8; the teacher says which column is what. One student that it does not
  know stops the whole import, and as installed it takes no grade above 100, hence the percent.
- Blackboard reads tabs and UTF-16 in a file that ends in .xls, as it writes them. It finds students
  by `Username`, and a column by the number behind the bar in its title; without one it makes a new
  column of text.
"""

from pathlib import Path

from mha_numpy.teach.classroom.csv_files import as_csv
from mha_numpy.teach.classroom.results import Grades, Result, write_atomically

FILES = {"canvas": "canvas.csv", "moodle": "moodle.csv", "blackboard": "blackboard.xls"}
FOLDER = "gradebook"


def write_gradebooks(grades: Grades, out: Path) -> list[Path]:
    """Write a file for each platform into the folder ``gradebook``."""
    texts = {"canvas": canvas(grades), "moodle": moodle(grades), "blackboard": blackboard(grades)}
    paths = [out / FOLDER / FILES[name] for name in texts]
    for path, (name, text) in zip(paths, texts.items(), strict=True):
        write_atomically(path, text, "utf-16" if name == "blackboard" else "utf-8")
    return paths


def canvas(grades: Grades) -> str:
    """Return the file for Canvas."""
    is_own_id = grades.assignment.roster is None  # then ids are those in Canvas's file names
    rows = []
    for one in grades.results:
        own = one.student if is_own_id and one.student.isdecimal() else ""
        rows.append([one.name, own, one.student, one.student, "", _grade(one)])
    title = _column(grades, "canvas")
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", title]
    most = ["    Points Possible", "", "", "", "", _number(grades.assignment.total)]
    return as_csv([head]) + as_csv([most], is_safe=True) + as_csv(rows)


def moodle(grades: Grades) -> str:
    """Return the file for Moodle."""
    title, total = _column(grades, "moodle"), grades.assignment.total or 1
    rows = [
        [
            one.student, one.name, _grade(one), _grade(one, 100 / total), feedback_text(one),
        ]
        for one in grades.results
    ]  # fmt: skip
    head = ["ID number", "Name", title, f"{title} (percent)", f"{title} (feedback)"]
    return as_csv([head, *rows])


def blackboard(grades: Grades) -> str:
    """Return the file for Blackboard."""
    rows = [[*_names(one.name), one.student, _grade(one)] for one in grades.results]
    head = ["Last Name", "First Name", "Username", _column(grades, "blackboard")]
    return as_csv([head, *rows], "\t")


def feedback_text(result: Result) -> str:
    """Return what the points do not say, for a cell of a gradebook.

    Examples
    --------
    >>> feedback_text(Result("ada", "Ada", True, True, "", [], [], comments=["well done"]))
    'late; well done'
    """
    off = f", {result.percent_off:g}% taken off" if result.percent_off else ""
    return "; ".join([f"late{off}"] * result.is_late + result.told)


def _column(grades: Grades, platform: str) -> str:
    return grades.assignment.columns.get(platform) or grades.assignment.title


def _grade(result: Result, factor: float = 1.0) -> str:
    """Return a student's points, or nothing while the work may still come."""
    return "" if result.is_awaited else _number(factor * result.points)


def _number(points: float) -> str:
    """Return a number as every platform reads it: with a point, and two decimals at most."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def _names(name: str) -> tuple[str, str]:
    """Return the last name and the first one; Blackboard shows them, and does not read them."""
    last, comma, first = name.partition(",")
    if not comma:
        first, _, last = name.rpartition(" ")
    return last.strip(), first.strip()
