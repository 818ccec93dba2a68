"""Numba twins of the core: the same meaning, compiled. Nothing here knows of the core."""
