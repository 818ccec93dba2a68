"""One head or several, at equal width and params: every token has to read k places at once.

Why no linear readout of one mixture w a + (1 - w) b names both tokens, if they have all the weight
and values know only the token: take two tokens, x and y. Every mixture of the two is a point
between the value of y and that of x, and along that line a linear readout changes from y to x at
one point. (Not from x to y: it has to name the token of (x, x), too, which is the value of x
itself.) To name the first token, it has to change between the mixtures of (y, x) and (x, y), so
that of (x, y) is nearer to x. To name the second, that of (y, x) has to be nearer. Both cannot be
true, whatever w depends on. If values know the place as well, or a third token has some of the
weight, mixtures leave this line, and the argument does not apply.
"""

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
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import Batch, share_right

V, T, D, STEPS = 8, 8, 32, 300
HEADS_TRIED = 1, 2, 4, 8, 16
ENOUGH, MORE = 0.95, 5  # share of right answers; times as many steps


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
    return f"{places} place{'s' * (places > 1)}, {num_heads} head{'s' * (num_heads > 1)}, {readout}"


READOUTS = "linear", "MLP"
ARMS = {  # places, heads, readout, steps
    arm_of(places, heads, readout): (places, heads, readout, STEPS)
    for places, readouts in ((1, READOUTS[:1]), (2, READOUTS), (4, READOUTS))
    for heads in HEADS_TRIED for readout in readouts
}  # fmt: skip
LONGER = {readout: f"{arm_of(2, 1, readout)}, {MORE} times as long" for readout in READOUTS}
ARMS |= {arm: (2, 1, readout, MORE * STEPS) for readout, arm in LONGER.items()}


def _run(arm: str, seed: int) -> Measured:
    places, num_heads, readout, steps = ARMS[arm]
    model = Reader(places, num_heads, readout, seed).astype(np.float32)
    asked = draw_batch(np.random.default_rng(1000 + seed), places, 256)

    def measure(model: Reader, step: int) -> dict[str, float]:
        return {"right": share_right(model(*asked.inputs), asked.targets)}

    history = train(
        model, partial(draw_batch, places=places), steps, seed,
        measure=measure, measure_every=steps // 20,
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

    def steps(places: int, num_heads: int) -> float:
        return result.mean("steps", arm_of(places, num_heads, "linear"))

    one_place = [right(arm_of(1, heads, "linear")) for heads in HEADS_TRIED]
    stuck, longer = arm_of(2, 1, "linear"), LONGER["linear"]
    guess = (1 + 1 / V) / 2
    by_mlp, later = (result.values("right", arm) for arm in (arm_of(2, 1, "MLP"), LONGER["MLP"]))
    four = [result.values("right", arm_of(4, heads, "linear")) for heads in HEADS_TRIED]
    return [
        Finding(
            "If the answer needs two places, the readout is linear and values know only the "
            f"token, one head gets {right(stuck):.1%} right, and {right(longer):.1%} after {MORE} "
            "times as many steps. "
            f"That's reading one place and guessing the other, {guess:.1%}: whichever token weighs "
            "more in the mixture wins both answers. Two heads get "
            f"{right(arm_of(2, 2, 'linear')):.1%}.",
            max(abs(right(arm) - guess) for arm in (stuck, longer)) < 0.01
            and right(arm_of(2, 2, "linear")) > ENOUGH,
        ),
        Finding(
            "An MLP can take the mixture of one head apart, but it has to find out how: "
            f"{(by_mlp > ENOUGH).sum()} of {len(by_mlp)} runs get at least {ENOUGH:.0%} right, the "
            f"others stay below {by_mlp[by_mlp < ENOUGH].max(initial=0):.0%}; after {MORE} times "
            f"as many steps it's {(later > ENOUGH).sum()} of {len(later)}. So one head doesn't "
            "make it impossible. It leaves the work to the next layer.",
            0 < (by_mlp > ENOUGH).sum() < len(by_mlp)
            and (by_mlp > ENOUGH).sum() <= (later > ENOUGH).sum(),
        ),
        Finding(
            "Four places and a linear readout need four heads: no run with one gets more than "
            f"{four[0].max():.0%} right, none with two more than {four[1].max():.0%}, and each "
            f"with four gets {four[2].min():.0%}.",
            four[0].max() < four[1].max() < ENOUGH < four[2].min() == 1,
            1,
        ),
        Finding(
            "If the answer is in one place, one head is enough. It even learns faster than many: "
            f"{ENOUGH:.0%} are right after {steps(1, 1):.0f} steps with one head, and after "
            f"{steps(1, 16):.0f} with sixteen, whose width is {D // 16}.",
            min(one_place) > ENOUGH
            and result.is_less("steps", arm_of(1, 1, "linear"), arm_of(1, 16, "linear")),
            2,
        ),
        Finding(
            "More heads than places help at first and harm later: for four places, four heads need "
            f"{steps(4, 4):.0f} steps, eight {steps(4, 8):.0f} and sixteen {steps(4, 16):.0f}. In "
            f"the end, all of them get {ENOUGH:.0%} or more.",
            steps(4, 8) < steps(4, 4) < steps(4, 16)
            and result.is_less("steps", arm_of(4, 8, "linear"), arm_of(4, 16, "linear"))
            and min(each.min() for each in four[2:]) > ENOUGH,
            2,
        ),
    ]


HEADS = Experiment(
    "heads",
    "One head or several?",
    "One head has only one distribution, so it has to compromise. Several heads read several "
    "places at once.",
    "A, B, C, D, E",
    "It did here, with a linear readout and values that know only the token. It isn't a law: a "
    "third token that takes some of the weight can give the order away, and an MLP can take a "
    "mixture apart, but it has to learn how.",
    f"Each of {T} tokens asks for the tokens one, two, ... k places before it, in a circle. The "
    f"model is one attention layer of width {D}, so that H heads of width {D} / H have the same "
    "number of params, and a readout: one linear map, or an MLP. Nothing goes around attention, "
    "so all that the readout learns of other tokens comes through the heads. Queries and keys know "
    "the token and its place, values only the token. With the place in the values as well, the "
    "mixture can say which token came from where: one head with a linear readout has learned to "
    "name both tokens of sequences of two, but not here, in a circle of eight.",
    tuple(ARMS),
    {
        "right": "share of right answers on new sequences",
        "steps": f"steps until {ENOUGH:.0%} are right; all of them if that never happens",
        "while it trains": "share of right answers, at 20 times from the start to the end",
    },
    _run,
    (
        *(
            Chart(
                f"Right answers, {places} places at once", "right", HEADS_TRIED,
                {readout: [arm_of(places, heads, readout) for heads in HEADS_TRIED]
                 for readout in READOUTS},
                "heads", "share of right answers", log_x=True, point=point,
            )
            for places, point in ((2, ""), (4, "Four places need four heads"))
        ),
        Chart(
            f"Steps until {ENOUGH:.0%} are right, linear readout ({STEPS}: never)", "steps",
            HEADS_TRIED,
            {f"{places} place{'s' * (places > 1)}":
             [arm_of(places, heads, "linear") for heads in HEADS_TRIED] for places in (1, 2, 4)},
            "heads", "steps", log_x=True, point="Too many heads slow training",
        ),
    ),
    _findings,
)  # fmt: skip
