"""What a model loses without a head: what is measured depends on what the model is for."""

from typing import Any, TypeAlias

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer, cross_entropy_forward
from mha_numpy.models import Bert, SentenceBert, TransformerLM
from mha_numpy.models.analysis import gate_gradients, head_importance
from mha_numpy.models.text import Tokens
from mha_numpy.models.train import IGNORED, Batch, loss_and_gradients
from mha_numpy.progress import progress

DIRECTIONS = 32  # of a vector's change that are looked at, as the page says; all, if not wider
AT_ONCE = 8  # sequences of one backward


def measure_for(model: Any) -> type["VectorChange"] | type["LossChange"]:
    """Return what is measured for such a model.

    Both have the `model` whose heads are cut; `kind`, under which the page has the words for it;
    `change`, 0 for the model as it is; and `importance`, what the gradients of the gates say about
    each head, in the unit of `change`.
    """
    if isinstance(model, Bert):
        return VectorChange
    if isinstance(model, TransformerLM) or getattr(model, "is_causal", False):
        return LossChange
    raise ConfigError(
        "model: expected a Bert, or a causal language model such as GPT2 or Llama; "
        f"got {type(model).__name__}"
    )


class VectorChange:
    """How far the texts' vectors turn: ``1 - cos = |e - e_uncut|^2 / 2`` for vectors of length 1.

    At the uncut model its gradient is 0, as at every lowest point. So the vectors themselves are
    differentiated: a cut changes e by about -de/dg, and 1 - cos by about ``|de/dg|^2 / 2``.
    """

    kind = "vectors"

    def __init__(self, bert: Bert, tokens: Tokens) -> None:
        self.model: Layer = SentenceBert(bert).eval()
        self.tokens = tokens
        self.uncut = self._vectors()

    def _vectors(self) -> Array:
        """Return the (B, D) vectors of the texts."""
        return self.model(self.tokens.ids, mask=self.tokens.mask)

    def change(self) -> float:
        """Return 1 - cos, the mean over the texts; by differences, where no digits are lost."""
        return float(((self._vectors() - self.uncut) ** 2).sum(axis=1).mean() / 2)

    def importance(self) -> dict[str, Array]:
        """Return ``|de/dg|^2 / 2`` for each gate, estimated from random orthogonal directions.

        The estimate's standard deviation is about ``sqrt(2 / K)`` of it: a quarter for K = 32.
        """
        (B, D), K = self.uncut.shape, min(DIRECTIONS, self.uncut.shape[1])
        random = np.random.default_rng(0).normal(size=(D, K))
        directions = np.linalg.qr(random)[0].T * np.sqrt(D / K)  # (K, D): squares keep their mean
        directions = directions.astype(self.uncut.dtype)
        runs = [
            (ids[mask], directions[at : at + AT_ONCE])
            for ids, mask in zip(self.tokens.ids, self.tokens.mask, strict=True)
            for at in range(0, K, AT_ONCE)
        ]

        def run() -> None:
            for ids, some in progress(runs, len(runs), "gradients of the gates"):
                self.model(np.repeat(ids[None], len(some), axis=0))  # one direction a sequence
                self.model.backward(some)

        slopes = gate_gradients(self.model, run)  # (B * K, H)
        return {name: (d_gate**2).sum(axis=0) / (2 * B) for name, d_gate in slopes.items()}


class LossChange:
    """How much the loss grows: the cross-entropy of each next token."""

    kind = "loss"

    def __init__(self, model: Layer, tokens: Tokens) -> None:
        self.model = model
        targets = np.where(tokens.mask, tokens.ids, IGNORED)[:, 1:]
        self.batch = Batch((tokens.ids[:, :-1],), targets)
        self.uncut = self._loss()

    def _loss(self) -> float:
        """Return the mean over all tokens that have one before them."""
        logits = self.model(*self.batch.inputs)
        return float(cross_entropy_forward(logits, self.batch.targets, ignore_index=IGNORED)[0])

    def change(self) -> float:
        """Return by how much the loss is larger now."""
        return self._loss() - self.uncut

    def importance(self) -> dict[str, Array]:
        """Return ``sum_b |d loss / d gate_bh|``."""
        return head_importance(self.model, lambda: loss_and_gradients(self.model, self.batch))


Measure: TypeAlias = VectorChange | LossChange
