"""check and hint: the exercises from within a notebook, or any Python."""

import sys
from collections.abc import Callable
from typing import Any

from mha_numpy.tables import show
from mha_numpy.teach.exercises.catalogue import find_exercise
from mha_numpy.teach.exercises.hints import Hint
from mha_numpy.teach.exercises.judge import check_callable, judge
from mha_numpy.teach.exercises.records import Records
from mha_numpy.teach.exercises.sandbox import can_fork
from mha_numpy.teach.exercises.verdict import Verdict

RECORDS = Records()  # of this session
NO_LIMITS = "A check has no time or memory limit here, so if it does not end, restart the kernel."


def check(exercise_id: str, function: Callable[..., Any]) -> None:
    """Check your function, and show what is right, what is not, and which mistake it is.

    Parameters
    ----------
    exercise_id : str
        Of an exercise: ``mha-numpy exercises`` lists them.
    function : callable
        Takes the arguments that the exercise lists, in their order.

    Examples
    --------
    >>> def mine(d_weights, weights):
    ...     return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    >>> check("softmax-backward", mine)  # doctest: +ELLIPSIS
    softmax-backward: right
    ...
    """
    exercise = find_exercise(exercise_id)
    check_callable(function)
    if not can_fork():
        print(NO_LIMITS)
    verdict = judge(exercise, lambda: function)
    RECORDS.note(verdict)
    _show(verdict)


def hint(exercise_id: str, *, force: bool = False) -> None:
    """Show the next of four hints; the third comes with a picture, the fourth is the fix.

    Parameters
    ----------
    exercise_id : str
        Of an exercise.
    force : bool
        Whether to show a hint after the first one even if nothing was checked since the last hint.

    Examples
    --------
    >>> hint("softmax-backward")  # doctest: +ELLIPSIS
    softmax-backward, hint ... of 4: ...
    """
    _show(RECORDS.give_hint(find_exercise(exercise_id), force=force))


def _show(shown: Verdict | Hint) -> None:
    """Show a verdict or a hint: with its picture in a notebook, else as text."""
    if sys.modules.keys() & {"ipykernel", "pyodide_kernel"}:  # the second one in a browser
        from IPython.display import display

        display(shown)
        return
    for section in shown.sections:
        show(section)
