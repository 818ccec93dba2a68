"""Does the suite catch the mistakes that people make? Each is applied to the core in turn."""
