"""Show it any attention: identify says what a function computes, by calling it."""
