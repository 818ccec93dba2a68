"""Which settings of the family give a function's numbers."""
