"""settle: what a student gets in the end, from what the grader found and the teacher decided.

What the grader found is kept as it is, in by_student. So a decision can be changed or taken back at
any time, and nothing is graded again.
"""

from collections.abc import Iterable
from dataclasses import replace

from mha_numpy.teach.classroom.overrides import Override
from mha_numpy.teach.classroom.results import Function, Result


def settle(result: Result, overrides: Iterable[Override]) -> Result:
    """Return a student's result with the teacher's decisions about this student in it.

    Examples
    --------
    >>> graded = Result("ada", "", False, True, "", [], [Function("rope", 2, 10, "wrong")])
    >>> found = settle(graded, [Override("ada", "rope", 8, comment="as we discussed")])
    >>> found.points, found.functions[0].graded, found.functions[0].comment
    (8, 2, 'as we discussed')
    """
    own = [one for one in overrides if one.student == result.student]
    functions = [_decided(function, own) for function in result.functions]
    total = next((one.points for one in own if not one.exercise and one.points is not None), None)
    comments = [one.comment for one in own if not one.exercise and one.comment]
    return replace(result, functions=functions, total=total, comments=comments)


def _decided(function: Function, own: Iterable[Override]) -> Function:
    here = [one for one in own if one.exercise == function.exercise]
    comment = "; ".join(one.comment for one in here if one.comment)
    for one in here:
        if one.points is not None:
            function = replace(function, points=one.points, graded=function.points)
    return replace(function, comment=comment)
