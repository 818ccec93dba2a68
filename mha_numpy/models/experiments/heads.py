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
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import AdamW, Batch, fit, share_right, warm_up_cosine

V, T, D, STEPS = 8, 8, 32, 300
HEADS_TRIED = 1, 2, 4, 8, 16
ENOUGH = 0.95  # share of right answers


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




def arm_of(places: int, num_heads: int, readout: str) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of(2, 1, "MLP")
    '2 places, 1 head, MLP'
    """
    return (
        f"{places} place{'s' * (places > 1)}, {num_heads} head{'s' * (num_heads > 1)}, {readout}"
    )


READOUTS = "linear", "MLP"
ARMS = {  # places, heads, readout, steps
    arm_of(places, heads, readout): (places, heads, readout, STEPS)
    for places in (1, 2, 4) for heads in HEADS_TRIED for readout in READOUTS
}  # fmt: skip
LONGER = "2 places, 1 head, linear, 5 times as long"
ARMS[LONGER] = 2, 1, "linear", 5 * STEPS


def _run(arm: str, seed: int) -> Measured:
    places, num_heads, readout, steps = ARMS[arm]
    model = Reader(places, num_heads, readout, seed).astype(np.float32)
    asked = draw_batch(np.random.default_rng(1000 + seed), places, 256)

    def measure(model: Reader, step: int) -> dict[str, float]:
        return {"right": share_right(model(*asked.inputs), asked.targets)}

    history = fit(
        model, partial(draw_batch, places=places), steps=steps, optimizer=AdamW(model, 1e-2),
        schedule=warm_up_cosine(steps, steps // 10), max_norm=1.0, rng=seed,
        measure=measure, measure_every=steps // 20, progress=False,
    )  # fmt: skip
    steps_at, right = history.curve("right")
    enough = steps_at[right >= ENOUGH]
    return {
        "right": right[-1],
        "steps": enough[0] if len(enough) else steps,
        "while it trains": right[1:].tolist(),
    }


def _findings(result: Result) -> list[Finding]:
    def right(arm: str) -> float:
        return result.mean("right", arm)

    def steps(num_heads: int) -> float:
        return result.mean("steps", arm_of(2, num_heads, "linear"))

    one_place = [arm_of(1, heads, readout) for heads in HEADS_TRIED for readout in READOUTS]
    stuck, two_heads = arm_of(2, 1, "linear"), arm_of(2, 2, "linear")
    by_mlp, four_by_mlp = arm_of(2, 1, "MLP"), arm_of(4, 1, "MLP")
    four_two = arm_of(4, 2, "linear")
    guess = (1 + 1 / V) / 2
    return [
        Finding(
            "If the answer is in one place, one head is enough: all numbers of heads get at least "
            f"{min(right(arm) for arm in one_place):.1%} right.",
            min(right(arm) for arm in one_place) > 0.99,
        ),
        Finding(
            "If it needs two places and the readout is linear, one head gets "
            f"{right(stuck):.1%} right, and {right(LONGER):.1%} with five times as many steps. A "
            f"model that reads one place and guesses the other gets {guess:.1%}. Two heads get "
            f"{right(two_heads):.1%}.",
            max(right(stuck), right(LONGER)) < guess + 0.03 and right(two_heads) > 0.99,
        ),
        Finding(
            "An MLP behind it can take the mixture of one head apart: "
            f"{right(by_mlp):.1%} for two places, and {right(four_by_mlp):.1%} for four. So one "
            "head does not make it impossible; it leaves the work to the next layer.",
            right(by_mlp) > 0.95 and result.is_less("right", stuck, by_mlp),
        ),
        Finding(
            f"Four places and two heads, with a linear readout: {right(four_two):.1%}. Each head "
            "brings home one place, and the others are guessed.",
            abs(right(four_two) - (2 + 2 / V) / 4) < 0.05,
        ),
        Finding(
            f"More heads than places do not harm here, and they do not help much: two heads need "
            f"{steps(2):.0f} steps for {ENOUGH:.0%} at two places, sixteen heads of width "
            f"{D // 16} need {steps(16):.0f}.",
            max(steps(2), steps(16)) < STEPS,
        ),
    ]


HEADS = Experiment(
    "heads",
    "One head or several?",
    "One head has only one distribution, so it has to compromise. Several heads read several "
    "places at once.",
    "A, B, C, D, E",
    f"Each of {T} tokens asks for the tokens one, two, ... k places before it, in a circle. The "
    f"model is one attention layer of width {D}, so that H heads of width {D} / H have the same "
    "number of params, and a readout: one linear map, or an MLP. Nothing goes around attention: "
    "whatever the readout learns of other tokens has come through the heads.",
    tuple(ARMS),
    {
        "right": "share of right answers on new sequences",
        "steps": f"steps until {ENOUGH:.0%} are right; all of them if that never happens",
        "while it trains": "share of right answers, at 20 times from the start to the end",
    },
    _run,
    tuple(
        Chart(
            f"Right answers, {places} place{'s' * (places > 1)} at once", "right", HEADS_TRIED,
            {readout: [arm_of(places, heads, readout) for heads in HEADS_TRIED]
             for readout in READOUTS},
            "heads", "share of right answers", log_x=True,
        )
        for places in (1, 2, 4)
    ),
    _findings,
)  # fmt: skip
