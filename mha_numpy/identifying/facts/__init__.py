"""What else a function does: its options, blind rows, dropout, a cache."""
