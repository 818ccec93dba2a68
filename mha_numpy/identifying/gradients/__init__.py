"""Whether gradients are right, and what the wrong ones have forgotten."""
