"""Exercises that check themselves and name the mistake."""

from mha_numpy.teach.exercises.audit import Audit, audit_tests
from mha_numpy.teach.exercises.catalogue import EXERCISES, find_exercise
from mha_numpy.teach.exercises.check_own import check_own, judge_own
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.exercise import Exercise
from mha_numpy.teach.exercises.folder import exercises_in, hint_in, judge_file, start
from mha_numpy.teach.exercises.hints import Hint, give_hint
from mha_numpy.teach.exercises.judge import judge
from mha_numpy.teach.exercises.notebook import check, hint
from mha_numpy.teach.exercises.verdict import Verdict

__all__ = [
    "EXERCISES", "Audit", "Exercise", "Hint", "Limits", "Verdict", "audit_tests", "check",
    "check_own", "exercises_in", "find_exercise", "give_hint", "hint", "hint_in", "judge",
    "judge_file", "judge_own", "start",
]  # fmt: skip
