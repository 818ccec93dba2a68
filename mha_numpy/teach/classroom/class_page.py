"""class_page: how a class did, what to look at, and who has similar code."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from itertools import chain, product
from statistics import median, median_high

from mha_numpy.teach.classroom.alike import MOST_SHOWN
from mha_numpy.teach.classroom.pages import as_list, as_page, as_row, as_table, version_text
from mha_numpy.teach.classroom.results import STATES, UNSAFE, Function, Grades, Result, file_name
from mha_numpy.teach.classroom.side_by_side import address
from mha_numpy.teach.diagnosis import BANK, Variant, using

UNKNOWN = "no known mistake"
UNLISTED = " (not in the list of mistakes)"  # after a kind of slip
MOST_NAMED = 10  # students, of each mistake
OTHERS = {UNKNOWN, *STATES.values()}
BINS = 10  # of the points


def class_page(grades: Grades) -> str:
    """Return the page about the class: points, mistakes, time, what to look at."""
    title, results = grades.assignment.title, grades.results
    totals = [result.points for result in results]
    out_of = max((result.out_of for result in results), default=0.0)
    right = sum(result.points == result.out_of for result in results)
    is_unsafe = not all(result.is_isolated for result in results)
    trouble = [f"{_link(one)}: {escape(text)}" for one in results for text in one.trouble]
    trouble += [f"{_link(one)}: {escape(text)}" for one in results for text in _unclear(one)]
    trouble += map(escape, grades.strange)
    pairs = len(grades.alike)
    have = "pair of students has" if pairs == 1 else "pairs of students have"
    similar = f' <a href="#similar">{pairs} {have} similar code</a>.' * bool(pairs)
    summary = (
        f"<p>{len(results)} students, {right} of them with all {out_of:g} points; the median "
        f"is {median(totals):g}.{similar}</p>"
        if totals
        else ""
    )
    parts = [
        f"<h1>{escape(title)}: the class</h1>",
        summary,
        f'<p class="bad">{UNSAFE}</p>' if is_unsafe else "",
        f"<h2>Please look at</h2>{as_list(trouble)}" if trouble else "",
        "<h2>Points</h2>" + _bars(totals, out_of),
        "<h2>Exercises</h2>" + _by_exercise(grades),
        "<h2>Mistakes</h2>" + _heat_map(grades),
        "<h2>Students</h2>" + _by_student(results),
        '<h2 id="similar">Similar code</h2>' + _alike(grades),
        f'<p class="soft">{version_text(grades.assignment.version)}</p>',
    ]
    return as_page(title, parts)


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
    rows = [as_row("exercise", "right", "mean", "of", "median time", is_head=True)]
    for one in grades.exercises():
        times = [function.seconds for function in one.functions if function.seconds]
        time = f"{median_high(times):.1f} s" if times else ""
        rows.append(as_row(one.name, f"{one.right}", f"{one.mean:.1f}", f"{one.out_of:g}", time))
    return as_table("Exercises", rows)


def _heat_map(grades: Grades) -> str:
    """Return how often each mistake was made in each exercise, and who made it."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    made_by: defaultdict[str, dict[str, None]] = defaultdict(dict)
    names = list(grades.assignment.exercises)
    for name, result in product(names, grades.results):
        with using(Variant(own=grades.assignment.own.get(name))):
            made = [_mistakes(one) for one in result.functions if one.exercise == name]
        for what in chain.from_iterable(made):
            counts[what][name] += 1
            made_by[what][_link(result)] = None
    if not counts:
        return "<p>There are none.</p>"
    most = max(max(of_one.values()) for of_one in counts.values())
    rows = [as_row("mistake", *names, "who", is_head=True)]

    def rank(what: str) -> tuple[bool, bool, int, str]:  # the most frequent first
        return what in OTHERS, what.endswith(UNLISTED), -counts[what].total(), what

    for what in sorted(counts, key=rank):
        cells = []
        for name in names:
            count = counts[what][name]
            shade = f' style="background:rgba(var(--heat),{0.15 + 0.6 * count / most:.2f})"'
            cells.append(f'<td class="n"{shade if count else ""}>{count or ""}</td>')
        links = list(made_by[what])
        more = [f"and {len(links) - MOST_NAMED} more"] * (len(links) > MOST_NAMED)
        cells.append(f"<td>{', '.join([*links[:MOST_NAMED], *more])}</td>")
        rows.append(f'<tr><td class="what">{escape(what)}</td>{"".join(cells)}</tr>')
    return as_table("Mistakes", rows)


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
    if function.state == "wrong":
        return [f"{function.kind}{UNLISTED}" if function.kind else UNKNOWN]
    return [STATES[function.state]]


def _by_student(results: list[Result]) -> str:
    rows = [as_row("student", "points", "time", "remarks", is_head=True)]
    for result in results:
        seconds = f"{sum(function.seconds for function in result.functions):.1f} s"
        rows.append(as_row(_link(result), f"{result.points:g}", seconds, _remarks(result)))
    return as_table("Students", rows)


def _unclear(result: Result) -> list[str]:
    """Return what only the teacher can decide."""
    decided = [(one.exercise, one.points, one.graded) for one in result.functions]
    decided += [("the whole work", result.points, replace(result, total=None).points)]
    less = [
        f"the teacher's points for {what} ({points:g}) replace {graded:g} from the grader, which "
        "is more: if the work has changed, delete the row in overrides.csv"
        for what, points, graded in decided
        if graded is not None and graded > points
    ]
    awaited = (
        f"extended to {result.extended}, so gradebooks have no grade yet; if no work comes, write "
        "0 points into overrides.csv"
    )
    return [*less, *[awaited] * result.is_awaited, *[result.unclear] * bool(result.unclear)]


def _remarks(result: Result) -> str:
    """Return what is special about a student's points."""
    remarks = ['<span class="bad">late</span>'] * result.is_late
    remarks += [f"{result.taken_off:g} taken off"] * bool(result.percent_off)
    remarks += [f"attempt {result.attempt}"] * bool(result.attempt)
    remarks += [f"extended to {result.extended}"] * bool(result.extended)
    if result.decided:
        remarks.append(f"points of {escape(', '.join(result.decided))} by the teacher")
    return ", ".join(remarks)


def _alike(grades: Grades) -> str:
    """Return the pairs that are alike, and what this means."""
    if not grades.alike:
        return "<p>No two submissions have similar code.</p>"
    links = {result.student: _link(result) for result in grades.results}
    rows = [as_row("students", "overlap", "code", is_head=True)]
    for number, pair in enumerate(grades.alike):
        both = ", ".join(links.get(student, escape(student)) for student in (pair.one, pair.other))
        look = f'<a href="{escape(address(pair))}">side by side</a>' * (number < MOST_SHOWN)
        rows.append(as_row(both, f"{100 * pair.overlap:.0f}%", look))
    return (
        "<p>Names, comments and handed-out code do not count, nor does code that a third of the "
        "class wrote. Two people may well have the same idea, so read both before you draw any "
        "conclusion.</p>"
        f"{as_table('Similar code', rows)}"
    )


def _link(result: Result) -> str:
    address = escape(f"feedback/{file_name(result.student)}.html")
    return f'<a href="{address}">{escape(result.name or result.student)}</a>'
