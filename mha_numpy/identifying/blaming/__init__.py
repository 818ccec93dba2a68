"""Which line of a function is to blame, found by running it step by step."""
