"""What heads do: scores of the patterns that their weights make, cuts, and what they are worth."""

from mha_numpy.analysis.cuts import cut_heads, mean_heads
from mha_numpy.analysis.importance import head_importance, weights_times_norm
from mha_numpy.analysis.patterns import (
    head_patterns,
    mean_distance,
    mean_entropy,
    pattern_score,
    token_patterns,
)

__all__ = [
    "cut_heads", "head_importance", "head_patterns", "mean_distance", "mean_entropy", "mean_heads",
    "pattern_score", "token_patterns", "weights_times_norm",
]  # fmt: skip
