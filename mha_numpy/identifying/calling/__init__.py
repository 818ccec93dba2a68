"""What a function takes: its arguments, their roles, and the arrays to call it with."""
