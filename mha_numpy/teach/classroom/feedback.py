"""What a class gets back: grades.csv, a page for each student, one for the class, Gradescope's."""

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path

from mha_numpy.teach.classroom.alike import MOST_SHOWN
from mha_numpy.teach.classroom.class_page import class_page
from mha_numpy.teach.classroom.csv_files import as_csv
from mha_numpy.teach.classroom.gradebooks import write_gradebooks
from mha_numpy.teach.classroom.handout import lines_given
from mha_numpy.teach.classroom.marks import MARKS, rules
from mha_numpy.teach.classroom.pages import as_list, as_page, quoted, version_text
from mha_numpy.teach.classroom.results import (
    STATES,
    UNSAFE,
    Function,
    Grades,
    Result,
    file_name,
    write_atomically,
)
from mha_numpy.teach.classroom.side_by_side import address, side_by_side
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.exercise import Exercise


def write_results(grades: Grades, out: Path) -> list[Path]:
    """Write everything that a teacher gives back or keeps.

    These are grades.csv, class.html, then a page and a file for Gradescope for each student, and
    files for gradebooks, and a page for each pair of similar submissions.
    """
    title, marks = grades.assignment.title, grades.assignment.marks
    texts = {"grades.csv": to_csv(grades), "class.html": class_page(grades)}
    for result in grades.results:
        name = file_name(result.student)
        page = student_page(result, title, marks, grades.assignment.find)
        texts[f"feedback/{name}.html"] = page
        texts[f"gradescope/{name}/results.json"] = json.dumps(to_gradescope(result), indent=1)
    of = {result.student: result for result in grades.results}
    for pair in grades.alike[:MOST_SHOWN]:
        one, other = pair[:2]
        given = lines_given(grades.assignment, one) | lines_given(grades.assignment, other)
        texts[address(pair)] = side_by_side(title, pair, of[one], of[other], given)
    for path in (out / "alike").glob("*.html"):  # of pairs that are no more
        if f"alike/{path.name}" not in texts:
            path.unlink()
    for name, text in texts.items():
        write_atomically(out / name, text)
    return [*(out / name for name in texts), *write_gradebooks(grades, out)]


def to_csv(grades: Grades) -> str:
    """Return the grades as a table for any spreadsheet, a line for each student.

    Columns that would be empty for everybody are left out, except that of late work.
    """
    rows = [_cells(result) for result in grades.results]
    always = ["id", "name", "late", *grades.assignment.exercises]
    more = ["taken off", "total", "decided by the teacher", "comment", "isolation"]
    more = [name for name in more if name == "total" or any(row[name] for row in rows)]
    header = [*always, *more]
    return as_csv([header, *([row.get(name, "") for name in header] for row in rows)])


def _cells(result: Result) -> dict[str, str]:
    """Return a student's line, by the names of its columns."""
    return {
        "id": result.student,
        "name": result.name,
        "late": "late" * result.is_late,
        **{function.exercise: f"{function.points:g}" for function in result.functions},
        "taken off": f"{result.taken_off:g}" if result.percent_off else "",
        "total": f"{result.points:g}",
        "decided by the teacher": "; ".join(result.decided),
        "comment": "; ".join(result.told),
        "isolation": "" if result.is_isolated else "unsafe-local",
    }


def to_gradescope(result: Result) -> dict[str, object]:
    """Return what Gradescope shows a student, as its results.json has it."""
    tests = [
        {
            "name": function.exercise, "score": function.points, "max_score": function.out_of,
            "status": "passed" if function.points == function.out_of else "failed",
            "output": "\n".join(_lines(function)),
        }
        for function in result.functions
    ]  # fmt: skip
    return {
        "score": result.points,
        "output": "\n".join(_notes(result)),
        "extra_data": {"version": result.version},
        "tests": tests,
    }


def _notes(result: Result) -> list[str]:
    """Return everything about the whole work, in plain text."""
    own = [f"the teacher's comment: {comment}" for comment in result.comments]
    return [*_time(result), *own, *_remarks(result)]


def _remarks(result: Result) -> list[str]:
    return [*result.trouble, *[UNSAFE] * (not result.is_isolated)]


def _lines(function: Function) -> Iterator[str]:
    """Yield the sentences about a function, in plain text."""
    if function.graded is not None:
        yield f"the teacher's points, instead of {function.graded:g} from the grader"
    if function.comment:
        yield f"the teacher's comment: {function.comment}"
    yield STATES[function.state]
    yield from function.findings
    if function.cause:
        yield function.cause
    if function.hint:
        yield f"hint: {function.hint}"


def student_page(
    result: Result,
    title: str,
    marks: Mapping[str, float] = MARKS,
    find: Callable[[str], Exercise] = find_exercise,
) -> str:
    """Return the page of one student: what is right, why the rest is not, and a hint."""
    who = result.student
    if result.name not in ("", who):
        who = f"{result.name} ({who})"
    late = ', <span class="bad">late</span>' * result.is_late
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(who)}{late}</p>",
        f'<p><span class="total">{result.points:g}</span> '
        f'<span class="soft">of {result.out_of:g} points</span></p>',
        _total(result),
        as_list(map(escape, _remarks(result))),
        *(_card(function, find(function.exercise)) for function in result.functions),
        f'<p class="soft">{escape(rules(marks))} The hidden inputs stay hidden. '
        "Findings, causes and clues come from other inputs, drawn in the same way, which a page "
        "calls our inputs. Try your function on your own small ones.</p>",
        f'<p class="soft">{version_text(result.version)}</p>' if result.version else "",
    ]
    return as_page(title, parts)


def _total(result: Result) -> str:
    """Return how the total came about, where it is not the sum of all points."""
    lines = [
        f"<b>The teacher's points</b> for the whole work, instead of {result.earned:g} from the "
        "grader"
    ] * (result.total is not None)
    lines += [f"<b>The teacher's comment:</b> {escape(comment)}" for comment in result.comments]
    return as_list([*map(escape, _time(result)), *lines])


def _time(result: Result) -> list[str]:
    """Return what matters about when the work came."""
    lines = [f"Attempt {result.attempt} counts: it has the most points."] * bool(result.attempt)
    lines += [f"Your deadline was extended to {result.extended}."] * bool(result.extended)
    if result.percent_off:
        days = "1 day" if result.days_late == 1 else f"{result.days_late} days"
        lines.append(
            f"Late by {days}, as a day counts once it has begun (handed in {result.handed_in}): "
            f"{result.percent_off:g}% of {result.earned:g} points are taken off, which is "
            f"{result.taken_off:g}."
        )
    return lines


def _decision(function: Function) -> str:
    """Return what the teacher has decided about a function, and why."""
    parts = []
    if function.graded is not None:
        parts.append(f"<b>The teacher's points</b>, instead of {function.graded:g} from the grader")
    if function.comment:
        parts.append(f"<b>The teacher's comment:</b> {escape(function.comment)}")
    return f'<p class="decided">{"<br>".join(parts)}</p>' if parts else ""


def _card(function: Function, exercise: Exercise) -> str:
    is_right = function.state in ("right", "follows")
    state = f'<span class="{"good" if is_right else "bad"}">{STATES[function.state]}</span>'
    file = f' <span class="soft">in {escape(function.file)}</span>' if function.file else ""
    marks = {True: '<span class="good">&#10003;', False: '<span class="bad">&#10007;'}
    counted = {"values": f" ({function.counted})"} if function.counted else {}
    groups = "".join(
        f"{marks[ok]} {name}{counted.get(name, '')}</span>" for name, ok in function.groups.items()
    )
    label, _, cause = function.cause.partition(": ")
    parts = [
        f"<h2><span>{escape(exercise.title)}</span><span class='points'>{function.points:g} of "
        f"{function.out_of:g}</span></h2>",
        _decision(function),
        f"<p><code>{escape(exercise.function_name)}</code>: {state}{file}</p>",
        f'<div class="groups">{groups}</div>' if groups else "",
        as_list(map(quoted, function.findings)),
        f"<p><b>{label.capitalize()}:</b> {quoted(cause)}</p>" if cause else "",
        f"<p><b>Hint:</b> {quoted(function.hint)}</p>" if function.hint else "",
    ]
    return f'<div class="card">{"".join(parts)}</div>'
