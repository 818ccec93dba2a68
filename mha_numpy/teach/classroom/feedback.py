"""What a class gets back: grades.csv, a page for each student, one for the class, Gradescope's."""

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import chain
from pathlib import Path
from statistics import median, median_high

from mha_numpy.teach.classroom.results import Function, Grades, Result, file_name, write_atomically
from mha_numpy.teach.diagnosis import BANK, Variant, using
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.exercise import Exercise

FORMULA = re.compile(r"(^|[;,])(?=\s*[=+@-])")  # a spreadsheet computes it, and may cut at either
UNSAFE = "This was run with --unsafe-local: with limits, but not in isolation."
STATES = {
    "right": "right",
    "follows": "right for your own forward, which is wrong",
    "wrong": "not right",
    "failed": "it did not run",
    "not written": "not written yet",
    "not there": "not handed in",
}
UNKNOWN = "no known mistake"
OTHERS = {UNKNOWN, *STATES.values()}
BINS = 10  # of the points
STYLE = Path(__file__).with_name("feedback.css")


def write_results(grades: Grades, out: Path) -> list[Path]:
    """Write everything that a teacher gives back or keeps.

    These are grades.csv, class.html, then a page and a file for Gradescope for each student.
    """
    texts = {"grades.csv": to_csv(grades), "class.html": class_page(grades)}
    for result in grades.results:
        name = file_name(result.student)
        page = student_page(result, grades.assignment.title, grades.assignment.find)
        texts[f"feedback/{name}.html"] = page
        texts[f"gradescope/{name}/results.json"] = json.dumps(to_gradescope(result), indent=1)
    for name, text in texts.items():
        write_atomically(out / name, text)
    return [out / name for name in texts]


def to_csv(grades: Grades) -> str:
    """Return the grades as a table for any spreadsheet, a line for each student."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    exercises = list(grades.assignment.exercises)
    is_unsafe = not all(result.is_isolated for result in grades.results)
    writer.writerow(["id", "name", "late", *exercises, "total", *["isolation"] * is_unsafe])
    for result in grades.results:
        who = [_cell(result.student), _cell(result.name), "late" * result.is_late]
        points = [f"{function.points:g}" for function in result.functions]
        unsafe = ["unsafe-local"] * is_unsafe
        writer.writerow([*who, *points, f"{result.points:g}", *unsafe])
    return stream.getvalue()


def _cell(text: str) -> str:
    """Return a text that no spreadsheet mistakes for a formula."""
    return FORMULA.sub(r"\1'", " ".join(text.split()))


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
    return {"score": result.points, "output": "\n".join(_notes(result)), "tests": tests}


def _notes(result: Result) -> list[str]:
    return [*result.trouble, *[UNSAFE] * (not result.is_isolated)]


def _lines(function: Function) -> Iterator[str]:
    """Yield the sentences about a function, in plain text."""
    yield STATES[function.state]
    yield from function.findings
    if function.cause:
        yield function.cause
    if function.hint:
        yield f"hint: {function.hint}"


def student_page(
    result: Result, title: str, find: Callable[[str], Exercise] = find_exercise
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
        _list(map(escape, _notes(result))),
        *(_card(function, find(function.exercise)) for function in result.functions),
        '<p class="soft">You get the points of a group of questions if the answer to all of them '
        "is yes. The inputs stay hidden, so try your function on your own small ones.</p>",
    ]
    return _page(title, parts)


def _card(function: Function, exercise: Exercise) -> str:
    is_right = function.state in ("right", "follows")
    state = f'<span class="{"good" if is_right else "bad"}">{STATES[function.state]}</span>'
    file = f' <span class="soft">in {escape(function.file)}</span>' if function.file else ""
    marks = {True: '<span class="good">&#10003;', False: '<span class="bad">&#10007;'}
    groups = "".join(f"{marks[ok]} {name}</span>" for name, ok in function.groups.items())
    label, _, cause = function.cause.partition(": ")
    parts = [
        f"<h3><span>{escape(exercise.title)}</span><span class='points'>{function.points:g} of "
        f"{function.out_of:g}</span></h3>",
        f"<p><code>{escape(exercise.function_name)}</code>: {state}{file}</p>",
        f'<div class="groups">{groups}</div>' if groups else "",
        _list(map(_quoted, function.findings)),
        f"<p><b>{label.capitalize()}:</b> {_quoted(cause)}</p>" if cause else "",
        f"<p><b>Hint:</b> {_quoted(function.hint)}</p>" if function.hint else "",
    ]
    return f'<div class="card">{"".join(parts)}</div>'


def _list(items: Iterable[str]) -> str:
    """Return items of HTML as a list, or nothing if there are none."""
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


def _quoted(text: str) -> str:
    """Return a text as HTML, with everything in backticks as code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def class_page(grades: Grades) -> str:
    """Return the page about the class: points, mistakes, time, what to look at."""
    title, results = grades.assignment.title, grades.results
    totals = [result.points for result in results]
    out_of = max((result.out_of for result in results), default=0.0)
    right = sum(result.points == result.out_of for result in results)
    is_unsafe = not all(result.is_isolated for result in results)
    trouble = [f"{_link(one)}: {escape(text)}" for one in results for text in one.trouble]
    summary = (
        f"<p>{len(results)} students, {right} of them with all {out_of:g} points; the median "
        f"is {median(totals):g}.</p>"
        if totals
        else ""
    )
    parts = [
        f"<h1>{escape(title)}: the class</h1>",
        summary,
        f'<p class="bad">{UNSAFE}</p>' if is_unsafe else "",
        "<h2>Points</h2>" + _bars(totals, out_of),
        "<h2>Exercises</h2>" + _by_exercise(grades),
        "<h2>Mistakes</h2>" + _heat_map(grades),
        "<h2>Students</h2>" + _by_student(results),
        f"<h2>Please look at</h2>{_list(trouble)}" if trouble else "",
        "<h2>Similar code</h2>" + _alike(grades),
    ]
    return _page(title, parts)


def _bars(totals: list[float], out_of: float) -> str:
    if not totals or out_of == 0:
        return "<p>No students were graded.</p>"
    counts = Counter(min(int(BINS * total / out_of), BINS - 1) for total in totals)
    most = max(counts.values())
    bars = []
    for number in range(BINS):
        count, start = counts[number], f"{out_of * number / BINS:.3g}"
        height = f"{100 * count / most:.0f}%"
        bar = f'<b><i style="height:{height}"><span>{count or ""}</span></i></b>'
        bars.append(f"<div>{bar}{start}&ndash;</div>")
    return f'<div class="bars">{"".join(bars)}</div>'


def _by_exercise(grades: Grades) -> str:
    """Return for each exercise how many are right, the mean of the points, and the time."""
    rows = [_row("exercise", "right", "mean", "of", "median time", tag="th")]
    for one in grades.exercises():
        times = [function.seconds for function in one.functions if function.seconds]
        time = f"{median_high(times):.1f} s" if times else ""
        rows.append(_row(one.name, f"{one.right}", f"{one.mean:.1f}", f"{one.out_of:g}", time))
    return _table(rows)


def _heat_map(grades: Grades) -> str:
    """Return how often each mistake was made in each exercise, the most frequent first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in grades.exercises():
        with using(Variant(own=grades.assignment.own.get(one.name))):
            for what in chain.from_iterable(map(_mistakes, one.functions)):
                counts[what][one.name] += 1
    if not counts:
        return "<p>There are none.</p>"
    names = list(grades.assignment.exercises)
    most = max(max(of_one.values()) for of_one in counts.values())
    rows = [_row("mistake", *names, tag="th")]
    for what in sorted(counts, key=lambda what: (what in OTHERS, -counts[what].total(), what)):
        cells = []
        for name in names:
            count = counts[what][name]
            shade = f' style="background:rgba(var(--heat),{0.15 + 0.6 * count / most:.2f})"'
            cells.append(f'<td class="n"{shade if count else ""}>{count or ""}</td>')
        rows.append(f'<tr><td class="what">{escape(what)}</td>{"".join(cells)}</tr>')
    return _table(rows)


def _mistakes(function: Function) -> Iterable[str]:
    """Return the mistakes that a function counts under."""
    if function.state == "right":
        return []
    known = [  # a convention by its name: its sentence is as long as a paragraph
        name if "followed" in name else BANK[name].verdict
        for name in function.mistakes
        if name in BANK
    ]
    if known:
        return known
    return [UNKNOWN if function.state == "wrong" else STATES[function.state]]


def _by_student(results: list[Result]) -> str:
    rows = [_row("student", "points", "time", "", tag="th")]
    for result in results:
        seconds = f"{sum(function.seconds for function in result.functions):.1f} s"
        late = '<span class="bad">late</span>' * result.is_late
        rows.append(_row(_link(result), f"{result.points:g}", seconds, late))
    return _table(rows)


def _link(result: Result) -> str:
    address = escape(f"feedback/{file_name(result.student)}.html")
    return f'<a href="{address}">{escape(result.name or result.student)}</a>'


def _alike(grades: Grades) -> str:
    """Return the pairs that are alike, and what this means."""
    if not grades.alike:
        return "<p>No two submissions have similar code.</p>"
    links = {result.student: _link(result) for result in grades.results}
    rows = [_row("students", "overlap", tag="th")]
    for pair in grades.alike:
        both = ", ".join(links.get(student, escape(student)) for student in (pair.one, pair.other))
        rows.append(_row(both, f"{100 * pair.overlap:.0f}%"))
    return (
        "<p>Names, comments and handed-out code do not count, nor does code that a third of the "
        "class wrote. Two people may well have the same idea, so read both before you draw any "
        "conclusion.</p>"
        f"{_table(rows)}"
    )


def _table(rows: list[str]) -> str:
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _row(*cells: str, tag: str = "td") -> str:
    """Return a row of a table; its cells are HTML, right-aligned after the first."""
    first, *others = cells
    right = "".join(f'<{tag} class="n">{cell}</{tag}>' for cell in others)
    return f"<tr><{tag}>{first}</{tag}>{right}</tr>"


def _page(title: str, parts: Iterable[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>\n{STYLE.read_text()}</style></head><body>\n"
        + "\n".join(filter(None, parts))
        + "\n</body></html>\n"
    )
