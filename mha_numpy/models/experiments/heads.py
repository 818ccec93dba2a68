"""One head or several, at equal width and params: every token has to read k places at once."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import (
    Activation,
    Embedding,
    Layer,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    Sequential,
)
from mha_numpy.models.experiments.experiment import Experiment
from mha_numpy.models.train import AdamW, Batch, fit, share_right, warm_up_cosine

V, T, D = 8, 8, 32


class Reader(Layer):
    """Attention, then a readout of k tokens from each token's row; nothing goes around attention.

    As in `AttentionOnlyLM`, queries and keys know the place, values only the token.
    """

    def __init__(self, places: int, num_heads: int, readout: str, rng: int) -> None:
        super().__init__()
        generator, self.backend = np.random.default_rng(rng), "numpy"
        self.places = places
        self.embedding = Embedding(V, D, std=1.0, rng=generator)
        self.positions = LearnedPositions(T, D, std=1.0, rng=generator)
        self.attention = MultiHeadAttention(D, num_heads, bias=False, rng=generator)
        layers: list[Layer] = [Linear(D, places * V, rng=generator)]
        if readout == "MLP":
            layers = [Linear(D, 4 * D, rng=generator), Activation("relu"),
                      Linear(4 * D, places * V, rng=generator)]  # fmt: skip
        self.readout = Sequential(*layers)

    def forward(self, ids: Array) -> Array:
        """Score the tokens at each of k places: (B, T) -> (B, T, k, V)."""
        x = self.embedding(ids)
        placed = self.positions(x)
        out = self.readout(self.attention(placed, placed, x))
        return out.reshape(*ids.shape, self.places, V)

    def backward(self, d_logits: Array) -> None:
        """Add to the params' gradients; ids have none."""
        d_out = self.readout.backward(d_logits.reshape(*d_logits.shape[:2], -1))
        d_query, d_key, d_value = self.attention.backward(d_out)
        self.embedding.backward(self.positions.backward(d_query + d_key) + d_value)


def draw_batch(rng: np.random.Generator, places: int, size: int = 32) -> Batch:
    """Draw random tokens; each asks for those one, two, ... k places before it, in a circle."""
    ids = rng.integers(V, size=(size, T))
    answers = [np.roll(ids, place + 1, axis=1) for place in range(places)]
    return Batch((ids,), np.stack(answers, axis=-1))


def _run(arm: str, seed: int) -> dict[str, float]:
    places, heads, readout, steps = arm.split(", ")
    k, num_steps = int(places.split()[0]), int(steps.split()[0])
    model = Reader(k, int(heads.split()[0]), readout, seed).astype(np.float32)
    fit(
        model, partial(draw_batch, places=k), steps=num_steps, optimizer=AdamW(model, 1e-2),
        schedule=warm_up_cosine(num_steps, num_steps // 10), max_norm=1.0, rng=seed, progress=False,
    )  # fmt: skip
    (ids,), targets = draw_batch(np.random.default_rng(1000 + seed), k, 256)
    return {"right": share_right(model(ids), targets)}


HEADS = Experiment(
    "heads",
    "One head or several, at equal width",
    "One head has one distribution, so it has to compromise; several heads read several places.",
    "A, B, C, D, E",
    tuple(
        f"{k} places, {h} heads, {readout}, {steps} steps"
        for k in (1, 2, 4) for h in (1, 2, 4, 8)
        for readout, steps in (("linear", 500), ("MLP", 500))
    ),
    {"right": "share of right answers on new sequences"},
    _run,
)  # fmt: skip
