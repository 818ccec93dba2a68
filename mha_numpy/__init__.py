"""Attention in NumPy: forward and hand-written backward, step by step, checked."""
