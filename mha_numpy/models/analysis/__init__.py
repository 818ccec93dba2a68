"""What heads do: scores of the patterns in their weights, cuts, and how much they matter."""

from mha_numpy.models.analysis.ablation import (
    PruningCurve,
    ablation_scores,
    heads_by_layer,
    least_important_first,
    pruning_curve,
)
from mha_numpy.models.analysis.cuts import cut_heads, cut_model, mean_heads
from mha_numpy.models.analysis.importance import gate_gradients, head_importance, weights_times_norm
from mha_numpy.models.analysis.layers import attention_layers
from mha_numpy.models.analysis.patterns import (
    head_patterns,
    mean_distance,
    mean_entropy,
    pattern_score,
    token_patterns,
)
from mha_numpy.models.analysis.pruning import prune_heads, prune_model

__all__ = [
    "PruningCurve", "ablation_scores", "attention_layers", "cut_heads", "cut_model",
    "gate_gradients", "head_importance", "head_patterns", "heads_by_layer",
    "least_important_first", "mean_distance", "mean_entropy", "mean_heads", "pattern_score",
    "prune_heads", "prune_model", "pruning_curve", "token_patterns", "weights_times_norm",
]  # fmt: skip
