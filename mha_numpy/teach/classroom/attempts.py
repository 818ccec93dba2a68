"""Attempts: what a student had handed in after each of them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mha_numpy.teach.classroom.results import Task

ATTEMPTS = ("last", "best")  # which counts
MOST = 10  # that are graded
LEFT_OUT = "there are {count} attempts, and only the last {most} were graded"


def attempts_of(task: "Task") -> list["Task"]:
    """Return a task for each attempt, from the first to the last; or one task, if the last counts.

    After an attempt, a student has handed in its files and all earlier ones: of two copies of a
    function the newer one counts, and a function that was handed in only once still counts.
    """
    ends = sorted({file.attempt for file in task.files})
    if task.assignment.attempts == "last" or len(ends) < 2:
        return [task]
    trouble = task.trouble
    if len(ends) > MOST:
        trouble = (*trouble, LEFT_OUT.format(count=len(ends), most=MOST))
    made = []
    for end in ends[-MOST:]:
        files = tuple(file for file in task.files if file.attempt <= end)
        own = [file for file in files if file.attempt == end]
        made.append(
            task._replace(
                files=files,
                trouble=trouble,
                is_late=any(file.is_late for file in own),
                handed_in=max(file.handed_in for file in own),
            )
        )
    return made
