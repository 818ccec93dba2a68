"""settle: what a student gets in the end, from what the grader found and the teacher decided.

What the grader found is kept as it is, in by_student. So a decision, a deadline, the late rule or
the points of an exercise can be changed or taken back at any time, and nothing is graded again.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.overrides import OVERRIDES, Override
from mha_numpy.teach.classroom.results import Function, Result

HOW_LATE = (
    "late, but nothing says by how much, so no points are taken off; write when it came into the "
    f"column handed_in of {OVERRIDES}"
)
EXTENDED = (
    "the platform calls it late, but there is an extension and no time, so it counts as in time; "
    f"if it was late after all, write when it came into the column handed_in of {OVERRIDES}"
)


def settle(result: Result, assignment: Assignment, overrides: Iterable[Override] = ()) -> Result:
    """Return a student's result with points, the late rule and the teacher's decisions applied.

    If the best attempt counts, it is the one with the most points after that, whatever the teacher
    gives for the whole work; of equal ones the last. It counts as a whole: its points are not mixed
    with those of other attempts.

    Examples
    --------
    >>> hw = Assignment("hw", "", {"rope": 10}, {})
    >>> graded = Result("ada", "", False, True, "", [], [Function("rope", 2, 10, "wrong")])
    >>> found = settle(graded, hw, [Override("ada", "rope", 8, comment="as we discussed")])
    >>> found.points, found.functions[0].graded, found.functions[0].comment
    (8.0, 2.0, 'as we discussed')
    """
    own = [one for one in overrides if one.student == result.student]
    attempts = [
        _settled(one, assignment, own, is_last=one is result) for one in (*result.earlier, result)
    ]
    if len(attempts) == 1:
        return attempts[0]
    points = [replace(one, total=None).points for one in attempts]
    best = max(range(len(attempts)), key=lambda number: (points[number], number))
    return replace(attempts[best], earlier=[], attempt=f"{best + 1} of {len(attempts)}")


def _settled(
    result: Result, assignment: Assignment, own: list[Override], *, is_last: bool
) -> Result:
    for_all = [one for one in own if not one.exercise]
    if result.handed_in and not is_last:  # the teacher's time is that of the last one
        for_all = [one._replace(handed_in=None) for one in for_all]
    return replace(
        _timed(result, assignment, for_all),
        version=assignment.version,
        functions=[
            _decided(function, own, assignment.exercises[function.exercise])
            for function in result.functions
        ],
        total=next((one.points for one in for_all if one.points is not None), None),
        comments=[one.comment for one in for_all if one.comment],
    )


def _decided(function: Function, own: Iterable[Override], out_of: float) -> Function:
    points = round(function.points * out_of / function.out_of, 2)
    function = replace(function, points=points, out_of=out_of)
    here = [one for one in own if one.exercise == function.exercise]
    comment = "; ".join(one.comment for one in here if one.comment)
    for one in here:
        if one.points is not None:
            function = replace(function, points=one.points, graded=function.points)
    return replace(function, comment=comment)


def _timed(result: Result, assignment: Assignment, own: list[Override]) -> Result:
    """Return a result with what it loses because it is late, and with an extension."""
    rule = assignment.late
    extended = next((one.deadline for one in own if one.deadline), None)
    recorded = datetime.fromisoformat(result.handed_in) if result.handed_in else None
    handed_in = next((one.handed_in for one in own if one.handed_in), recorded)
    deadline = extended or assignment.deadline
    days, unclear = 0, ""
    if handed_in and deadline:
        days = rule.days(handed_in, deadline)
        is_late = days > 0
    else:
        is_late = result.is_late and not extended
        if result.is_late and (extended or rule.per_day):
            unclear = EXTENDED if extended else HOW_LATE
    return replace(
        result,
        is_late=is_late,
        handed_in=str(handed_in or "")[:16],
        extended=str(extended or "")[:16],
        days_late=days,
        percent_off=rule.percent(days),
        unclear=unclear,
    )
