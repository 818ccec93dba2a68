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
from mha_numpy.models.train import AdamW, Batch, fit, share_right, warm_up_cosine
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
    return fit(
        model, partial(draw, task=task), steps=steps, optimizer=AdamW(model, RATE),
        schedule=warm_up_cosine(steps, steps // 10), max_norm=1.0, rng=seed,
        measure=measure, measure_every=10, progress=False,
    )  # fmt: skip


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
        "a fifth fails": failing[2],
        "as heads fail": failing,
        "with noise": noisy[2],
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

    def steps(arm: str) -> str:
        return f"{result.mean('steps', arm):.0f}"

    def share(measure: str, arm: str) -> str:
        return f"{result.mean(measure, arm):.0%}"

    def needed(arm: str) -> str:
        return f"{result.mean('heads needed', arm):.1f}"

    reached = all((result.values("right", arm) > TRAINED).all() for arm in (one, two, four, eight))
    return [
        Finding(
            f"Training is not easier with more heads of the same total width: one head a layer "
            f"needs {steps(one)} steps until {TRAINED:.0%} of the copies are right, two "
            f"{steps(two)}, four {steps(four)} and eight {steps(eight)}. In the end all of them "
            "get there, with every seed.",
            result.is_less("steps", one, eight) and reached,
        ),
        Finding(
            f"Four heads as wide as the one need {steps(wide)} steps, but have four times the "
            "params. That more heads make training easier is true here only if each keeps its "
            "width; whether it is the heads or the params, this does not show.",
            result.is_less("steps", wide, one),
        ),
        Finding(
            "If each head fails with a probability of 0.2, one head a layer gives "
            f"{share('a fifth fails', one)} right answers, two {share('a fifth fails', two)}, "
            f"four {share('a fifth fails', four)} and eight {share('a fifth fails', eight)}. "
            "Others stand in for a head that fails: several are more robust than one.",
            all(result.is_less("a fifth fails", one, arm) for arm in (two, four, eight)),
        ),
        Finding(
            "Noise as large as what the heads write is another matter: "
            f"{share('with noise', one)} with one head, {share('with noise', four)} with four, "
            f"{share('with noise', eight)} with eight narrow ones, which are the least robust; "
            f"{share('with noise', wide)} with four wide ones. It depends on what is disturbed.",
            result.is_less("with noise", eight, one) and result.is_less("with noise", one, wide),
        ),
        Finding(
            f"How many heads can go depends on the task: to keep {KEPT:.0%} of the right answers, "
            f"four places need {needed(few)} of 4 heads, {needed(some)} of 8, and {needed(many)} "
            f"of 16. Copying, with two jobs, needs {needed(four)} of 8 and {needed(eight)} of 16: "
            "most can go, but narrow heads share a job that a wide one does alone.",
            (result.values("heads needed", few) == 4).all()
            and result.mean("heads needed", four) < 4
            and result.mean("heads needed", eight) < 8
            and result.is_less("heads needed", four, eight),
        ),
        Finding(
            "One head of width 4 in each layer, trained from the start, ends with "
            f"{share('right', narrow)} right, and {share('trained on', narrow)} after {MORE} more "
            f"steps. Trained as one of eight, then left alone, it gives "
            f"{share('one head a layer', eight)}, and after {MORE} steps "
            f"{share('trained on', eight)}. So fewer heads before training are worse than the same "
            f"number after it, unless they share out the whole width: one of width {D} gets "
            f"{share('right', one)}.",
            result.is_less("trained on", narrow, eight) and result.is_less("right", narrow, one),
        ),
    ]


REDUNDANCY = Experiment(
    "redundancy",
    "More heads than needed",
    "Redundant heads make training easier and the model robust, and most heads can be pruned "
    "after training.",
    "A, B, C; Michel et al. 2019; Voita et al. 2019",
    "Two tasks. Copying: segments of letters come back, and two layers of attention carry them on, "
    "which takes two jobs: a head that looks at the token before, and one that looks for the same "
    "letter. Places: each token asks for four others, which one layer reads, so there are four "
    "jobs. Heads share the width of 32, so that more of them are narrower and all models have the "
    "same number of params; two arms of copying change the params instead: one head as narrow as "
    "one of eight, and four as wide as a single one. All are trained with a rate of 0.01; of "
    "0.005, 0.01 and 0.02 it was the best, or as good as any, for one, four and eight heads. "
    "Afterwards, heads fail: each is switched off at random, anew for each sequence. Or noise is "
    "added to what each head writes, in units of its own length (root mean square). Then the head "
    "is cut without which most answers stay right, then the next, and so on; the order is chosen "
    f"on 64 sequences, and all shares are of 256 others. At last one head a layer is left, and it "
    f"is trained on for {MORE} steps.",
    tuple(ARMS),
    {
        "right": "share of right answers on new sequences",
        "steps": f"steps until {TRAINED:.0%} are right; all of them if that never happens",
        "while it trains": "share of right answers, every 10 steps",
        "a fifth fails": "share of right answers if each head fails with probability 0.2",
        "as heads fail": f"the same with probabilities {', '.join(map(str, FAILING))}",
        "with noise": "share of right answers with noise as large as what the heads write",
        "under noise": f"the same with noise of {', '.join(map(str, NOISE))} times that size",
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
        ),
        Chart(
            "Copying: right answers with noise on the heads", "under noise",
            NOISE, _lines("copying"), "noise, relative to the head", "share of right answers",
        ),
        *(
            Chart(
                f"{task.capitalize()}: right answers by heads left", "by heads left",
                range(MOST + 1), _lines(task), "heads left in the model", "share of right answers",
            )
            for task in ("copying", "places")
        ),
    ),
    _findings,
)  # fmt: skip
