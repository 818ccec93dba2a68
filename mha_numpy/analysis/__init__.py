"""What heads do: scores of the patterns that their weights make, and cuts."""

from mha_numpy.analysis.patterns import induction_score, previous_token_score

__all__ = ["induction_score", "previous_token_score"]
