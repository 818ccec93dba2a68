"""Show it any attention: `identify` says what a function computes, by calling it."""

from mha_numpy.identifying.entry import identify as identify
