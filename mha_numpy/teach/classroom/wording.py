"""The sentences that a student may read about a run, none of which their code could have written.

A function sees the hidden inputs when it is graded. Error messages, exit texts
and printed text could reveal these inputs, and so could the numbers in a finding. So each sentence
here consists of facts that the grader knows, fixed words, and lines of the student's own text.
"""

import builtins
import re
from inspect import signature

import numpy as np

from mha_numpy.teach.classroom.intake import Source
from mha_numpy.teach.conventions import in_words_of
from mha_numpy.teach.diagnosis import Variant, find_task
from mha_numpy.teach.diagnosis.search import SmallEdit
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.hints import give_hint
from mha_numpy.teach.exercises.mends import ONE
from mha_numpy.teach.exercises.verdict import Verdict

HOMES = (builtins, np.exceptions)  # of errors whose kinds are told
LINE = 80  # characters of a line that is quoted
ENDS = (  # as sandbox.py begins them; a run may also write such a text itself
    ("took longer than", "it took too long and was stopped"),
    ("asked for more than", "it asked for too much memory"),
    ("ended the process", "it ended the process"),
    ("was killed for lack", "it was killed for lack of memory"),
    ("was killed", "it was killed"),
    ("used up its", "it used up its processor time"),
    ("crashed", "it crashed the process"),
    ("its answers", "its answers could not be read"),
    ("asked for answers", "it asked for answers and did not read them"),
    ("returned more than", "it returned more than any answer needs"),
)
FAILED = {
    "type and dtype": "the type or dtype of the result is not the one in the task",
    "shape": "a shape is not the one in the task",
    "finite": "there are NaN or infinite numbers where there should be none",
    "inputs left alone": "it changes its inputs in place; work on a copy",
    "the same twice": "a second call with the same inputs returns something else",
    "values": "numbers are wrong",
    "gradients": "numerical differentiation gives different gradients",
    "memory": "it uses as much memory as all scores need; keep only one block of them",
    "accepts a right function": "it rejects a function that is right",
}  # stages
CLUE = "clue, from other inputs than those that give points"  # the label that a student reads
STEP = re.compile(r", in (the step that computes|what) (\S.*?)(?: returns)?, gives exactly")
CAUSES = ("likely cause", "clue", "and also", "also", "or")  # of remarks


def has_own_words(ended: str) -> bool:
    """Return whether the end of a run has words that say all about it."""
    return any(ended.startswith(start) for start, _ in ENDS)


def error_of(error: str, source: Source | None = None) -> str:
    r"""Return the kind of an error and, from a source, the line of the student's text.

    Examples
    --------
    >>> source = Source("def f(x):\n    return x.T[9]", "hw.py")
    >>> error_of("IndexError: 0.123 is hidden (line 2 of hw.py: `0.456`)", source)
    'an IndexError in `return x.T[9]`'
    """
    for start, sentence in ENDS:
        if error.startswith(start):
            return sentence
    kind = "".join(re.findall(r"^\w+", error))
    known = next((getattr(home, kind) for home in HOMES if hasattr(home, kind)), None)
    is_known = isinstance(known, type) and issubclass(known, BaseException)
    what = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}" if is_known else "an error"
    place = re.findall(rf"\(line (\d+) of {re.escape(source.file)}\b", error) if source else []
    lines = source.text.split("\n") if source else []
    number = int(place[-1][:9]) if place else 0
    line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"{what} in `{line[:LINE]}`" if line else what


def findings_of(verdict: Verdict, why: str) -> list[str]:
    """Return what is wrong, one sentence for each failed question.

    `why` says how a run ended that did not come to its end.
    """
    found = []
    for stage in verdict.stages:
        if stage.passed is not False:
            continue
        if stage.name == "runs":
            return [f"it does not run: {why}"]  # the rest follows from it
        if stage.name == "invariants":
            found.append(f"it breaks this rule: {_statement(verdict)}")
        elif stage.name == "catches mistakes":  # its finding counts, and says no more
            found.append(f"of the mistakes, it catches {stage.finding}")
        else:
            found.append(FAILED.get(stage.name, stage.name))
    return found


def _statement(verdict: Verdict) -> str:
    piece = find_task(verdict.exercise.task)
    statements = [law.statement for law in piece.laws]
    statements += [reaction.statement for reaction in piece.reactions]
    findings = [stage.finding for stage in verdict.stages if stage.name == "invariants"]
    broken = (text for text in statements if findings and findings[0].startswith(f"{text}: "))
    return next(broken, "one about the result")


def hint_of(exercise: Exercise, variant: Variant) -> str:
    """Return the first hint, in the words of the variant's conventions.

    Examples
    --------
    >>> from mha_numpy.teach.exercises import find_exercise
    >>> hint_of(find_exercise("split-heads"), Variant(1, ("heads first",))).split("; ")[1][:35]
    'in the result the heads come first.'
    """
    return in_words_of(variant.of(exercise.task), give_hint(exercise, 1).text)


def cause_of(verdict: Verdict) -> str:
    """Return the likely cause or the clue, under that name, with alternatives; "" without one.

    Of a small edit it tells the kind, since the edited lines are those of a solution. Of a change
    in the student's own text it tells the kind and the place, and leaves the change to the student.
    """
    if verdict.mended:
        return f"likely cause: {verdict.mended.place}. {ONE}"
    told = {name: text for name, text in verdict.remarks.items() if name in CAUSES}
    parts = list[str]()
    known = _names_of(verdict.exercise)
    for name, text in told.items():
        between, colon = "; or " if name == "or" else "; ", "" if parts else ":"
        lines = text.strip().removeprefix("- ").split("\n- ")
        lines = [_without_solution(line, verdict.edit, known) for line in lines]
        label = CLUE if name == "clue" else name
        parts.append(f"{label}{colon} {between.join(lines)}")
    return "; ".join(parts)


def _names_of(exercise: Exercise) -> set[str]:
    """Return the names that the task tells: of the function, its arguments and its results."""
    task = find_task(exercise.task)
    return {task.name, *signature(task.solution).parameters, *task.results}


def _without_solution(text: str, edit: SmallEdit | None, known: set[str]) -> str:
    """Return a text without edited lines and variables of a solution, in fixed words."""
    step = STEP.search(text)
    if step and step[2] not in known:
        text = text.replace(step[0], ", in one step of a right function, gives exactly")
    quoted = (
        [f"`{'; '.join(lines.splitlines())}`" for lines in (edit.wrong, edit.right) if lines]
        if edit
        else []
    )
    sentences = text.split(". ")
    kept = [one for one in sentences if not any(line in one for line in quoted)]
    if len(kept) == len(sentences):
        return text
    yours = (re.findall(r"we get exactly your ([\w, ]+)$", text) or ["numbers"])[0]
    return ". ".join([*kept, f"One such slip in a right function gives exactly your {yours}"])
