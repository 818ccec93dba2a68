"""What heads do: scores of the patterns that their weights make, cuts, and what they are worth."""

from mha_numpy.analysis.cuts import cut_heads, mean_heads
from mha_numpy.analysis.importance import head_importance, weights_times_norm
from mha_numpy.analysis.patterns import induction_score, previous_token_score

__all__ = [
    "cut_heads", "head_importance", "induction_score", "mean_heads", "previous_token_score",
    "weights_times_norm",
]  # fmt: skip
