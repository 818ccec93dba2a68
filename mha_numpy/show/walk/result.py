"""What a walk goes through, and what it has seen: a layer, its trace and weights, its gradients."""

from dataclasses import dataclass
from typing import Any

from mha_numpy.checking import GradcheckReport
from mha_numpy.checking.tracing import Trace
from mha_numpy.core.masks import Window
from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.tables import Table


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One attention layer, what flows into it, and what is said about both."""

    layer: MultiHeadAttention
    inputs: dict[str, Array]  # x_q; x_k and x_v where they are not those before them
    tokens: list[str]  # T_q: what each query stands for
    source_tokens: list[str]  # T_k: what each key stands for; often the same list
    is_cross: bool = False  # whether keys and values come from another sequence
    is_causal: bool = False
    window: Window | None = None  # how far a token sees
    seed: int  # of everything that is random
    model: str | None = None  # the trained model that the layer is of; None: random params
    about: str  # which params and inputs these are
    note: str  # the same in a line, for pictures
    query_name: str = "queries"  # on the axes of pictures
    key_name: str = "keys"
    said: tuple[str | Table, ...] = ()  # by the trained model
    features: list[str] | None = None  # D: what each feature of the inputs means
    d_out: Array | None = None  # the upstream gradient; None: random

    @property
    def options(self) -> dict[str, Any]:
        """What attention is computed with, but for causality."""
        layer = self.layer
        return {
            "num_heads": layer.num_heads, "num_kv_heads": layer.num_kv_heads,
            "rope": layer.rope, "window": self.window,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Walk(Setting):
    """What a walk has seen."""

    trace: Trace  # every step, forward and backward
    weights: Array  # (B, H, T_q, T_k)
    visible: Array | None  # bool, broadcasts to the weights; None: nothing is hidden
    report: GradcheckReport

    @property
    def is_trained(self) -> bool:
        """Whether the params are those of a trained model."""
        return self.model is not None

    @property
    def page_note(self) -> str:
        """What a picture of both passes says about its numbers."""
        return self.note + " The upstream gradient is random." * self.is_trained
