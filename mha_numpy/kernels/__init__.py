"""Numba twins of the core: the same meaning, compiled. Nothing here imports the core."""
