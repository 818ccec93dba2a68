"""Exercises that check themselves, the diagnosis that names a mistake, and classrooms.

Begin with ``mha_numpy.teach.exercises``.
"""
