"""explain_crash: what a tutor would say about an error that a function has raised."""

import re
from functools import cache
from inspect import cleandoc
from pathlib import Path

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis import TASKS, find_task, right_answers
from mha_numpy.teach.exercises.crash_words import CASES, Crash
from mha_numpy.teach.exercises.mends import Works
from mha_numpy.teach.exercises.verdict import Verdict

FILE = Path(__file__).with_name("crashes.txt")  # patterns, each with its sentence below it
PLACE = re.compile(r" \(line (\d+) of [^)]*?(: `.*`)?\)(?=$|;| \((call|while))")


def explain_crash(verdict: Verdict, error: str, text: str, works: Works) -> str:
    """Return a tutor's sentence about an error; "" where Python's message says it all.

    Parameters
    ----------
    verdict : Verdict
        Of the run.
    error : str
        One line, as a run reports it: kind, message and place.
    text : str
        The text of the function, with line numbers that fit the error's.
    works : callable
        Whether the function runs if its text is changed to another one.
    """
    place = PLACE.search(error)
    message = PLACE.sub("", error)
    probes = find_task(verdict.exercise.task).probes()
    number = next((stage.probe for stage in verdict.stages if stage.passed is False), 0) or 0
    inputs = probes[number] if verdict.exercise.kind != "tests" else {}
    crash = Crash(
        message, int(place[1][:9]) if place else 0, (place[2] or "")[2:] if place else "",
        text, works, inputs,
        _sizes_of(verdict.exercise.task, number) if inputs else {},
    )  # fmt: skip
    for pattern, explain in CASES:
        found = re.search(pattern, message)
        if found and (told := explain(crash, *found.groups())):
            return told
    for pattern, sentence in _sentences():
        if found := re.search(pattern, message):
            lengths = [crash.length(text) for text in found.groups("")]
            return sentence.format(*found.groups(), lengths=lengths)
    return ""


@cache
def _sentences() -> list[tuple[str, str]]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [(pattern, told.strip()) for pattern, told in zip(lines[::2], lines[1::2], strict=True)]


def _sizes_of(task: str, number: int) -> dict[int, list[str]]:
    """Return the names of each length in an input, as the task's text has them."""
    if conventions_of(task):  # its arrays have other shapes than the text
        return {}
    inputs, expected = TASKS[task].probes()[number], leaves(right_answers(task)[number])
    arrays = {**inputs, **{name or TASKS[task].result: one for name, one in expected.items()}}
    doc, sizes = cleandoc(str(TASKS[task].solution.__doc__)), dict[int, list[str]]()
    for names, told in re.findall(r"^(\w+(?:, \w+)*) : \((.*?)\)", doc, re.MULTILINE):
        letters = [part.strip() for part in told.split(",") if part.strip()]
        for name in names.split(", "):
            shape = np.shape(arrays[name]) if isinstance(arrays.get(name), np.ndarray) else ()
            if letters[:1] == ["..."]:
                shape, letters = shape[len(shape) - len(letters) + 1 :], letters[1:]
            if len(shape) == len(letters):
                for letter, size in zip(letters, shape, strict=True):
                    sizes.setdefault(size, []).append(letter)
    for name, value in inputs.items():
        if type(value) is int:
            sizes.setdefault(value, []).append(name)
    return sizes
