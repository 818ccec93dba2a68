"""What a walk runs, and what it has seen: a layer, its trace, weights and gradients."""

from dataclasses import dataclass
from typing import Any

from mha_numpy.checking import GradcheckReport
from mha_numpy.checking.tracing import Trace
from mha_numpy.core import FullMultiHeadParams, MultiHeadParams
from mha_numpy.core.masks import Window
from mha_numpy.dtypes import Array
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.tables import Table


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What the numbers of an example mean, in words."""

    features: list[str]  # D: of a row of x, and of out
    heads: list[str]  # H: what each head looks for
    matched: list[list[str]]  # H lists of d_k: the columns of q and k
    handed: list[list[str]]  # H lists of d_v: the columns of v and heads
    asks: list[list[str]]  # H lists of T_q: what each token asks, as a question
    asker: int  # the token that the story is about
    wish: str  # what L rewards
    goal: str  # what L is, in numbers of the new row
    written: list[str]  # T_q: the tokens as the sentence has them, with its full stops
    dare: str  # what to change on the page


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One attention layer, its inputs, and how both are described."""

    layer: MultiHeadAttention
    inputs: dict[str, Array]  # x_q; x_k and x_v where they are not those before them
    tokens: list[str]  # T_q: what each query stands for
    source_tokens: list[str]  # T_k: what each key stands for; often the same list
    is_cross: bool = False  # whether keys and values come from another sequence
    is_causal: bool = False
    window: Window | None = None  # how far a token sees
    softcap: float | None = None
    scale: float | None = None
    seed: int  # of everything that is random
    model: str | None = None  # the trained model that has the layer; None: random params
    about: str  # which params and inputs these are
    note: str  # the same in a line, for pictures
    query_name: str = "queries"  # on the axes of pictures
    key_name: str = "keys"
    said: tuple[str | Table, ...] = ()  # the trained model's own words
    meaning: Meaning | None = None  # of an example: what its numbers mean
    d_out: Array | None = None  # the upstream gradient; None: random

    @property
    def features(self) -> list[str] | None:
        """What each of the D features of the inputs means; None: nothing in words."""
        return self.meaning.features if self.meaning else None

    @property
    def options(self) -> dict[str, Any]:
        """What attention is computed with, but for causality."""
        layer = self.layer
        return {
            "num_heads": layer.num_heads, "num_kv_heads": layer.num_kv_heads,
            "rope": layer.rope, "qk_norm": layer.qk_norm, "window": self.window,
            "softcap": self.softcap, "scale": self.scale, "sink": layer.params.get("sink"),
        }  # fmt: skip

    @property
    def params(self) -> MultiHeadParams | FullMultiHeadParams:
        """The layer's params, with gains and a gate only if it has them."""
        params = self.layer.params
        full = FullMultiHeadParams._make(params.get(name) for name in FullMultiHeadParams._fields)
        is_plain = all(param is None for param in full[8:])
        return MultiHeadParams._make(full[:8]) if is_plain else full


@dataclass(frozen=True, kw_only=True)
class Walk(Setting):
    """A setting after its run."""

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
