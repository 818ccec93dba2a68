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
    function the newer one counts, and a function that was handed in only once still counts. So an
    attempt that repeats the one before, byte for byte, is none.
    """
    if task.assignment.attempts == "last":
        return [task]
    found: dict[tuple[bytes, ...], Task] = {}  # by all that is there, the newest first
    for end in sorted({file.attempt for file in task.files}):
        files = tuple(file for file in task.files if file.attempt <= end)
        own = [file for file in files if file.attempt == end]
        newest_first = sorted(files, key=lambda file: (file.order, file.name), reverse=True)
        found.setdefault(
            tuple(dict.fromkeys(file.data for file in newest_first)),
            task._replace(
                files=files,
                is_late=any(file.is_late for file in own),
                handed_in=max(file.handed_in for file in own),
            ),
        )
    made = list(found.values()) or [task]
    if len(made) > MOST:
        trouble = (*task.trouble, LEFT_OUT.format(count=len(made), most=MOST))
        made = [one._replace(trouble=trouble) for one in made[-MOST:]]
    return made
