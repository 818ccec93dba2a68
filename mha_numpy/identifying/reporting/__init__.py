"""What was found, in words: a datasheet, as text, page and JSON."""
