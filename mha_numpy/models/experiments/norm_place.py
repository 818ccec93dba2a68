"""The layer norm before or after: with three learning rates, with warm-up and without."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.models import TransformerLM
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.train import AdamW, fit, gradient_norm, loss_and_gradients, warm_up_cosine
from mha_numpy.models.train.recipes import RECIPES

T, D, LAYERS, STEPS, WARM_UP = 16, 32, 6, 100, 30
RATES = 1e-3, 3e-3, 1e-2
PLACES, STARTS = ("before", "after"), ("warm-up", "no warm-up")


def arm_of(place: str, start: str, rate: float) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("after", "no warm-up", 1e-3)
    'norm after, no warm-up, rate 0.001'
    """
    return f"norm {place}, {start}, rate {rate:g}"


ARMS = {
    arm_of(place, start, rate): (place, start, rate)
    for place in PLACES for start in STARTS for rate in RATES
}  # fmt: skip


def make_model(vocab_size: int, place: str, seed: int) -> TransformerLM:
    """Return a model whose embeddings start with deviation 1, as large as what a norm returns.

    With the library's 0.02, the first norm after a sum would divide by so little that the gradient
    of the first layer is ten times that of the others.
    """
    model = TransformerLM(
        vocab_size, T, embed_dim=D, num_heads=4, num_layers=LAYERS, activation="relu",
        norm_first=place == "before", rng=seed,
    )  # fmt: skip
    for name, param in model.named_params():
        if name.endswith("table"):
            param /= param.std()
    return model.astype(np.float32)


def _run(arm: str, seed: int) -> Measured:
    place, start, rate = ARMS[arm]
    task = RECIPES["text"].make_task()
    task.num_tokens = T
    model = make_model(len(task.vocabulary), place, seed)
    rng = np.random.default_rng(1000 + seed)
    batch, ((ids,), targets) = task.draw_batch(rng, 64), task.draw_held_out(rng, 256)

    def norms() -> list[float]:
        loss_and_gradients(model, batch)
        return [gradient_norm(block) for block in model.blocks]

    first = norms()
    history = fit(
        model, partial(task.draw_batch, size=16), steps=STEPS, optimizer=AdamW(model, rate),
        schedule=warm_up_cosine(STEPS, WARM_UP if start == "warm-up" else 0),
        rng=seed, progress=False,
    )  # fmt: skip
    last = norms()
    return {
        "loss": cross_entropy_forward(model(ids), targets)[0],
        "while it trains": np.reshape(history.losses, (-1, 5)).mean(axis=1).tolist(),
        "gradients at the start": first,
        "gradients at the end": last,
        "last layer at the start": first[-1],
        "first layer at the end": last[0],
    }


def frequencies_loss() -> float:
    """Return the loss on held-out text of knowing only how often each character occurs."""
    task = RECIPES["text"].make_task()
    counts = np.bincount(task.trained_on, minlength=len(task.vocabulary))
    return float(-np.log(counts / counts.sum())[task.held_out].mean())


def _findings(result: Result) -> list[Finding]:
    lowest, middle, highest = RATES
    with_it, without = STARTS

    def losses(place: str, start: str, rate: float = highest) -> Array:
        return result.values("loss", arm_of(place, start, rate))

    def helps(place: str, rate: float) -> bool:
        return result.is_less("loss", arm_of(place, with_it, rate), arm_of(place, without, rate))

    before, after = (arm_of(place, without, highest) for place in PLACES)
    low, high = (result.values("gradients at the start", arm) for arm in (before, after))
    there, gone = (result.values("first layer at the end", arm) for arm in (before, after))
    guess = frequencies_loss()
    failed, warmed = losses("after", without), losses("after", with_it)
    slower, slower_warmed = losses("after", without, middle), losses("after", with_it, middle)
    best, best_after = (
        min(losses(place, start, rate).mean() for start in STARTS for rate in RATES)
        for place in PLACES
    )
    return [
        Finding(
            f"With a learning rate of {highest:g} and no warm-up, the norm after fails: its loss "
            f"is {failed.mean():.2f}, and knowing only how often each character occurs gives "
            f"{guess:.2f}. With the norm before, the loss is "
            f"{losses('before', without).mean():.2f}.",
            abs(failed - guess).max() < 0.03 and result.is_less("loss", before, after),
        ),
        Finding(
            f"{WARM_UP} steps of warm-up do not save it: the loss is {warmed.mean():.2f}, and in "
            f"{sum(warmed < guess - 0.1)} of {len(warmed)} runs it is more than 0.1 below that of "
            "the frequencies. (Longer ones are not tried here, and may save it.)",
            not helps("after", highest) and 0 < sum(warmed < guess - 0.1) < len(warmed) / 2,
        ),
        Finding(
            f"A lower rate does more. With {middle:g} and no warm-up, the loss is "
            f"{slower.mean():.2f}, and {sum(slower < guess - 0.1)} of {len(slower)} runs are more "
            f"than 0.1 below. With a warm-up it is {slower_warmed.mean():.2f}, higher with each "
            f"seed. (With {lowest:g}, {STEPS} steps bring no run so far, with either place.) This "
            "is one small model; with more layers and steps, a warm-up may gain more than it "
            "costs.",
            sum(slower < guess - 0.1) > sum(warmed < guess - 0.1)
            and min(losses(p, s, lowest).min() for p in PLACES for s in STARTS) > guess - 0.1
            and bool((slower < slower_warmed).all()),
        ),
        Finding(
            f"Up to a rate of {highest:g}, the norm before needs no warm-up: at none of the rates "
            f"does it surely lower the loss. (Higher rates are not tried here, and may need one.) "
            f"And it gets further: its best mean loss is {best:.2f}, and with the norm after it "
            f"is {best_after:.2f}.",
            not any(helps("before", rate) for rate in RATES) and best < best_after,
        ),
        Finding(
            f"Before the first step, the last layer's gradient is {high[:, -1].mean():.2f} with "
            f"the norm after and {low[:, -1].mean():.2f} with the norm before. But it is larger in "
            f"all layers, {high[:, 0].mean():.2f} against {low[:, 0].mean():.2f} in the first, and "
            "AdamW divides its steps by the size of the gradients. So this does not yet explain "
            "why the norm after fails.",
            bool((high > low).all()) and abs(high[:, 0].mean() / high[:, -1].mean() - 1) < 0.15,
            2,
        ),
        Finding(
            f"In the end, with a rate of {highest:g} and no warm-up, the first layer's gradient is "
            f"{gone.max():.5f} or less with the norm after, and {there.min():.2f} or more with the "
            "norm before.",
            bool(gone.max() < 1e-3 < there.min()),
            3,
        ),
    ]


def _lines(rate: float) -> dict[str, str]:
    return {f"{p}, {s}": arm_of(p, s, rate) for p in PLACES for s in STARTS}


LAYER_NUMBERS = range(1, LAYERS + 1)

NORM_PLACE = Experiment(
    "norm-place",
    "The norm before or after?",
    "With the norm after the residual sum, training needs a warm-up, because the gradients of the "
    "last layers are large at first. With the norm before, it needs none.",
    "Xiong et al. 2020",
    "Half true. Up to a rate of 0.01, the norm before needs no warm-up. After, a smaller rate "
    "helped, not a short warm-up.",
    f"A language model of {LAYERS} layers of width {D} learns to predict the next character of a "
    f"novel in {STEPS} steps of AdamW. Each layer's norm comes before attention and the "
    "feed-forward network, or after the sum with what goes around them. The learning rate falls as "
    f"a cosine, either from the first step or after a warm-up of {WARM_UP} steps. We try three "
    "learning rates, do not clip gradients, and measure the norm of each layer's gradient before "
    "the first step and after the last. All embeddings start with deviation 1.",
    tuple(ARMS),
    {
        "loss": "nats per character of held-out text",
        "while it trains": "nats per character, mean of 5 steps",
        "gradients at the start": "norm of each layer's gradient before the first step",
        "gradients at the end": "norm of each layer's gradient after the last step",
        "last layer at the start": "norm of the last layer's gradient before the first step",
        "first layer at the end": "norm of the first layer's gradient after the last step",
    },
    _run,
    (
        Chart(
            "Loss on held-out text, by learning rate", "loss", RATES,
            {f"{p}, {s}": [arm_of(p, s, rate) for rate in RATES]
             for p in PLACES for s in STARTS},
            "learning rate", "nats", log_x=True,
        ),
        Chart(
            "Loss while it trains, with a learning rate of 0.01", "while it trains",
            [5 * i + 3 for i in range(STEPS // 5)], _lines(1e-2), "step", "nats",
        ),
        Chart(
            "Gradients before the first step", "gradients at the start", LAYER_NUMBERS,
            {place: arm_of(place, "no warm-up", 1e-2) for place in PLACES}, "layer", "norm",
            point="The first gradients don't explain it",
        ),
        *(
            Chart(
                f"Gradients after the last step, with a learning rate of {rate:g}",
                "gradients at the end", LAYER_NUMBERS, _lines(rate), "layer", "norm", log_y=True,
                point=point,
            )
            for rate, point in (
                (3e-3, "The failed model's first layer gets almost no gradient"), (1e-2, ""),
            )
        ),
    ),
    _findings,
)  # fmt: skip
