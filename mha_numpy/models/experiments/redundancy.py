"""Redundant heads: easier to train, more robust, and free to prune? Two tasks with known jobs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import attention_layers, heads_by_layer, prune_model, pruning_curve
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.heads import Reader, draw_batch
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import Batch, share_right
from mha_numpy.models.train.tasks import Induction

D, T, STEPS, MORE, RATE = 32, 16, 300, 100, 1e-2
TRAINED, KEPT = 0.9, 0.95  # shares of right answers
FAILING = 0.0, 0.1, 0.2, 0.3, 0.4, 0.5
NOISE = 0.0, 0.5, 1.0, 1.5, 2.0
MOST = 16  # heads of a model


def arm_of(task: str, num_heads: int, width: int) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("copying", 1, 32)
    'copying, 1 head of width 32'
    """
    return f"{task}, {num_heads} head{'s' * (num_heads > 1)} of width {width}"


COPYING = [(1, 32), (2, 16), (4, 8), (8, 4), (1, 4), (4, 32)]  # heads of each layer, their width
PLACES = [(4, 8), (8, 4), (16, 2)]
ARMS = {
    arm_of(task, *each): (task, *each)
    for task, shapes in (("places", PLACES), ("copying", COPYING))
    for each in shapes
}


def _lines(task: str) -> dict[str, str]:
    """Return the arms of a task, by what differs."""
    return {arm.removeprefix(f"{task}, "): arm for arm, each in ARMS.items() if each[0] == task}


def make_model(task: str, num_heads: int, width: int, seed: int) -> Any:
    """Return a model with random params: two layers of attention, or one with a readout."""
    if task == "places":
        return Reader(4, num_heads, "linear", seed).astype(np.float32)
    model = AttentionOnlyLM(T, T, embed_dim=D, num_heads=1, rng=seed)
    rng = np.random.default_rng((seed, 1))
    model.attentions = [
        MultiHeadAttention(D, num_heads, head_dim=width, bias=False, rng=rng) for _ in range(2)
    ]
    return model.astype(np.float32)


def draw(rng: np.random.Generator, task: str, size: int = 32) -> Batch:
    """Draw segments that come back, or tokens of which each asks for four others."""
    return Induction(T, T).draw_batch(rng, size) if task == "copying" else draw_batch(rng, 4, size)


@contextmanager
def heads_fail(model: Layer, share: float, size: int, rng: np.random.Generator) -> Iterator[None]:
    """Switch each head off for a random share of the `size` sequences while a `with` block runs."""
    layers = attention_layers(model).values()
    for layer in layers:
        layer.head_gate = (rng.random((size, layer.num_heads)) >= share).astype(np.float32)
    try:
        yield
    finally:
        for layer in layers:
            layer.head_gate = None


@contextmanager
def noise_on_heads(model: Layer, size: float, rng: np.random.Generator) -> Iterator[None]:
    """Add noise to what heads write while a `with` block runs: `size` times a head's own length."""

    def forward(layer: MultiHeadAttention, *inputs: Array, **options: Any) -> Array:
        out: Any = type(layer).forward(layer, *inputs, **options)
        heads = layer.forward_cache.attention.heads  # (B, H, T, d_v)
        length = np.sqrt((heads**2).mean(axis=(0, 2, 3), keepdims=True))  # (1, H, 1, 1)
        noise = size * length * rng.normal(size=heads.shape).astype(out.dtype)
        return out + noise.swapaxes(1, 2).reshape(*out.shape[:2], -1) @ layer.params["w_o"]

    with ExitStack() as after:
        for layer in attention_layers(model).values():
            layer.forward = partial(forward, layer)  # type: ignore[method-assign]
            after.callback(delattr, layer, "forward")
        yield


def _train(model: Layer, task: str, steps: int, seed: int, measure: Any = None) -> Any:
    return train(
        model, partial(draw, task=task), steps, seed, rate=RATE, measure=measure, measure_every=10
    )


def _run(arm: str, seed: int) -> Measured:
    task, num_heads, width = ARMS[arm]
    model, rng = make_model(task, num_heads, width, seed), np.random.default_rng(1000 + seed)
    chosen_on, asked = draw(rng, task, 64), draw(rng, task, 256)

    def right(batch: Batch = asked) -> float:
        return share_right(model(*batch.inputs), batch.targets)

    history = _train(model, task, STEPS, seed, lambda model, step: {"right": right(chosen_on)})
    at, curve = history.curve("right")
    failing, noisy = [], []
    for share in FAILING:
        with heads_fail(model, share, len(asked.targets), rng):
            failing.append(right())
    for size in NOISE:
        with noise_on_heads(model, size, rng):
            noisy.append(right())
    measured = {
        "right": right(),
        "steps": float(min([*at[curve >= TRAINED], STEPS])),
        "while it trains": curve[1:].tolist(),
        "a fifth fails": failing[2] / failing[0],
        "as heads fail": failing,
        "with noise": noisy[2] / noisy[0],
        "under noise": noisy,
    }

    # the head first whose cut does least harm; then all but one of each layer, for good
    order = pruning_curve(model, partial(right, chosen_on)).heads
    left = pruning_curve(model, right, order).scores[::-1]  # with no heads left, one, two, ...
    stays = dict(order)  # the last one of each layer
    prune_model(model, heads_by_layer([head for head in order if head not in stays.items()]))
    one_each = right()
    _train(model, task, MORE, seed + 1)
    return measured | {
        "heads needed": float(np.argmax(left >= KEPT * left[-1])),
        "by heads left": [left[min(n, len(order))] for n in range(MOST + 1)],
        "one head a layer": one_each,
        "trained on": right(),
    }


def _findings(result: Result) -> list[Finding]:
    one, two, four, eight, narrow, wide = (arm_of("copying", *shape) for shape in COPYING)
    few, some, many = (arm_of("places", *shape) for shape in PLACES)

    def share(measure: str, arm: str) -> str:
        return f"{result.mean(measure, arm):.0%}"

    def needed(arm: str) -> str:
        return f"{result.mean('heads needed', arm):.1f}"

    def steps(arm: str) -> Array:
        """Return how many steps the seeds needed that got there."""
        taken = result.values("steps", arm)
        return taken[taken < STEPS]

    seeds, alone = len(result.seeds), result.values("trained on", narrow)
    return [
        Finding(
            f"Copying, with the same params: one head a layer needs {steps(one).mean():.0f} steps "
            f"until {TRAINED:.0%} are right, but gets there with {len(steps(one))} of {seeds} "
            f"seeds. Eight heads, which share the width of one, get there with "
            f"{len(steps(eight))} of {seeds}, in {steps(eight).mean():.0f} steps. They train more "
            f"slowly, and perhaps more surely: {seeds} seeds are too few to say.",
            len(steps(one)) < len(steps(eight)) == seeds and steps(one).max() < steps(eight).min(),
        ),
        Finding(
            f"With the same width of a head: one of width 4 gets there with {len(steps(narrow))} "
            f"of {seeds} seeds, eight with {len(steps(eight))}; one of width {D} in "
            f"{steps(one).mean():.0f} steps, four in {steps(wide).mean():.0f}. Heads that are "
            "added make training easier, but that may be due to the params that come with them.",
            len(steps(narrow)) < len(steps(eight)) == len(steps(wide)) == seeds
            and steps(wide).max() < steps(one).min(),
        ),
        Finding(
            "If a fifth of the heads fail at random, one head a layer keeps "
            f"{share('a fifth fails', one)} of its right answers, two "
            f"{share('a fifth fails', two)}, four {share('a fifth fails', four)} and eight "
            f"{share('a fifth fails', eight)}. Four or more are more robust, because "
            "others are left.",
            all(result.is_less("a fifth fails", one, arm) for arm in (four, eight)),
            1,
        ),
        Finding(
            f"Noise as large as what the heads write leaves one head {share('with noise', one)} of "
            f"its right answers, four {share('with noise', four)}, and eight "
            f"{share('with noise', eight)}. Against noise, narrow heads are less robust. Four "
            f"wide ones keep {share('with noise', wide)}.",
            result.is_less("with noise", eight, one) and result.is_less("with noise", eight, wide),
            2,
        ),
        Finding(
            f"How many heads can go depends on the task and on their width. To keep {KEPT:.0%} of "
            f"the right answers, four places need {needed(few)} of 4 heads, {needed(some)} of 8 "
            f"and {needed(many)} of 16; copying, with two jobs, {needed(four)} of 8 and "
            f"{needed(eight)} of 16. Narrow heads share a job that a wide one does by itself.",
            result.mean("heads needed", few) == 4
            and result.is_less("heads needed", some, many)
            and result.is_less("heads needed", four, eight),
            3,
        ),
        Finding(
            f"Eight heads trained together and cut to one a layer give "
            f"{share('one head a layer', eight)}, and {share('trained on', eight)} after {MORE} "
            "more steps. A single head of that width, trained by itself for as many steps, ends "
            f"anywhere from {alone.min():.0%} to {alone.max():.0%}. It can do the job, but does "
            "not always learn it: here, cutting heads after training is safer than before.",
            alone.min() < 0.8 < TRAINED < alone.max()
            and result.values("trained on", eight).min() > TRAINED,
            4,
        ),
    ]


REDUNDANCY = Experiment(
    "redundancy",
    "More heads than needed",
    "Redundant heads make training easier and the model robust, and most heads can be pruned "
    "after training.",
    "A, B, C; Michel et al. 2019; Voita et al. 2019",
    "Half true. With the same params, more heads are narrower: they survive failing heads better, "
    "but noise worse, and learn no faster.",
    "Two tasks. Copying: segments of letters come back, and two layers of attention carry them on, "
    "which takes two jobs: a head that looks at the token before, and one that looks for the same "
    "letter. Places: each token asks for four others, which one layer reads, so there are four "
    "jobs. Heads share the width of 32, so that more of them are narrower and all models have the "
    "same number of params; two arms of copying change the params instead: one head as narrow as "
    "one of eight, and four as wide as a single one. All are trained with a rate of 0.01; of "
    "0.005, 0.01 and 0.02 it was the best, or as good as any, for one, four and eight heads. "
    "Afterwards, heads fail: each is switched off at random, separately for each sequence. Or "
    "noise is added to what each head writes, relative to its length (root mean square). Then we "
    "cut the head without which most answers stay right, then the next, and so on; the order is "
    f"chosen on 64 sequences, and all shares are of 256 others. Finally, one head a layer is left, "
    f"and we train it for {MORE} more steps.",
    tuple(ARMS),
    {
        "right": "share of right answers on new sequences",
        "steps": f"steps until {TRAINED:.0%} are right; all of them if that never happens",
        "while it trains": "share of right answers, every 10 steps",
        "a fifth fails": "share of its right answers that it keeps if a fifth of the heads fail",
        "as heads fail": f"share of right answers if {', '.join(map(str, FAILING))} of them fail",
        "with noise": "share of its right answers that it keeps with noise as large as the heads",
        "under noise": f"share of right answers with {', '.join(map(str, NOISE))} times as much",
        "heads needed": f"heads left that still give {KEPT:.0%} of the whole model's right answers",
        "by heads left": f"share of right answers with 0 to {MOST} heads left, or all",
        "one head a layer": "share of right answers with all other heads cut for good",
        "trained on": f"the same after {MORE} more steps",
    },
    _run,
    (
        Chart(
            "Copying: right answers while it trains", "while it trains",
            range(10, STEPS + 1, 10), _lines("copying"), "step", "share of right answers",
        ),
        Chart(
            "Copying: right answers as heads fail at random", "as heads fail",
            FAILING, _lines("copying"), "probability of failing", "share of right answers",
            point="Several heads survive it if some fail",
        ),
        Chart(
            "Copying: right answers with noise on the heads", "under noise",
            NOISE, _lines("copying"), "noise, relative to the head", "share of right answers",
            point="Against noise, narrow heads are less robust",
        ),
        *(
            Chart(
                f"{task.capitalize()}: right answers by heads left", "by heads left",
                range(MOST + 1), _lines(task), "heads left in the model", "share of right answers",
                point=point,
            )
            for task, point in (
                ("copying", "How many heads can go depends on the task"), ("places", ""),
            )
        ),
    ),
    _findings,
)  # fmt: skip
