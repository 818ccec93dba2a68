"""Assignments: made with a variant for each student, graded in a sandbox, given back with pages."""

from mha_numpy.teach.classroom.assignment import Assignment
from mha_numpy.teach.classroom.grade import grade
from mha_numpy.teach.classroom.make import READY, make_assignment
from mha_numpy.teach.classroom.public import assert_right, public_check
from mha_numpy.teach.classroom.roster import read_roster
from mha_numpy.teach.classroom.solved import write_solutions
from mha_numpy.teach.classroom.table import read_assignment

__all__ = [
    "READY", "Assignment", "assert_right", "grade", "make_assignment", "public_check",
    "read_assignment", "read_roster", "write_solutions",
]  # fmt: skip
