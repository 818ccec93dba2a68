"""What a walk returns: the layer, its trace and weights, the report on its gradients."""

from dataclasses import dataclass

from mha_numpy.checking import GradcheckReport
from mha_numpy.dtypes import Array
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.tracing import Trace


@dataclass(frozen=True)
class Walk:
    """What a walk has seen."""

    layer: MultiHeadAttention
    tokens: list[str]  # T_q query tokens
    source_tokens: list[str]  # T_k key tokens; the same list in self-attention
    is_causal: bool
    seed: int  # of everything that is random
    trace: Trace  # every step, forward and backward
    weights: Array  # (B, H, T_q, T_k)
    visible: Array | None  # bool, broadcasts to the weights; None: nothing is hidden
    report: GradcheckReport

    @property
    def is_cross(self) -> bool:
        """Whether keys and values come from another sentence."""
        return self.source_tokens is not self.tokens
