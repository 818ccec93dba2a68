"""Attention once more, as a student would write it: plain NumPy, and right.

The files read as a small textbook. A mistake is an edit of one of their texts, which therefore
stands only once in all of them, and a function's name is the only one of its kind.
"""
