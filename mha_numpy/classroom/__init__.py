"""Assignments made, graded in isolation, and fed back."""

from mha_numpy.classroom.grade import grade

__all__ = ["grade"]
