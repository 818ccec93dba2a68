"""What is a mistake, and what only a convention."""
