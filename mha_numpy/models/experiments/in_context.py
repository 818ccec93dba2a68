"""Learning in context: loss by place, with one layer or two, a head cut, and a head supplied."""

from functools import partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import cut_heads, head_patterns, mean_heads
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import IGNORED, Batch, share_right

V, T, STEPS, EVERY, ENOUGH = 16, 20, 300, 10, 0.75
PERIODS = 4, 10  # least and most


def draw_again(rng: np.random.Generator, size: int) -> Batch:
    """Draw 4 to 10 different letters, again and again; ask for every next letter.

    The period is drawn for each sequence, so that no fixed distance leads to the answer.
    """
    rows = [np.resize(rng.permutation(V)[: rng.integers(PERIODS[0], PERIODS[1] + 1)], T + 1)
            for _ in range(size)]  # fmt: skip
    ids = np.stack(rows)
    return Batch((ids[:, :-1],), ids[:, 1:])


def draw_pairs(rng: np.random.Generator, size: int) -> Batch:
    """Draw T / 2 pairs of a key and a value, whose keys come again; ask for the values.

    Keys are the first V / 2 tokens, values the others. Which value belongs to a key is drawn for
    each sequence, so that only the sequence can tell.
    """
    belongs = V // 2 + rng.integers(V // 2, size=(size, V // 2))
    keys = rng.integers(V // 2, size=(size, T // 2))
    ids = np.stack([keys, np.take_along_axis(belongs, keys, axis=1)], axis=-1).reshape(size, T)
    return Batch((ids,), np.where(np.arange(T) % 2 == 0, np.roll(ids, -1, axis=1), IGNORED))


def ask_known(ids: Array, targets: Array) -> Array:
    """Ask only where the token has come before, so that its answer can be read: (B, T)."""
    is_earlier = np.tril(ids[:, :, None] == ids[:, None, :], k=-1).any(axis=2)
    return np.where(is_earlier, targets, IGNORED)


def fix_head(model: AttentionOnlyLM, back: int) -> None:
    """Let head 0.0 see only the token so many places back; what it writes is still learned."""
    mask, i = np.ones((model.num_heads, T, T), bool), np.arange(T)
    mask[0] = np.arange(T) == np.maximum(i - back, 0)[:, None]
    first = model.attentions[0]
    first.forward = partial(first.forward, mask=mask)  # type: ignore[method-assign]


AGAIN, PAIRS = "the same again", "keys and values"
TASKS = {AGAIN: draw_again, PAIRS: draw_pairs}
ONE, TWO, LONGER = "1 layer", "2 layers", "1 layer, 3 times as long"
FIXED, WRONG = "2 layers, a head fixed 1 back", "2 layers, a head fixed 2 back"
MODELS = {  # layers, width, steps, how far back a head is fixed
    ONE: (1, 44, STEPS, 0),  # about as many params as two layers of width 32
    TWO: (2, 32, STEPS, 0),
    FIXED: (2, 32, STEPS, 1),
    WRONG: (2, 32, STEPS, 2),
    LONGER: (1, 44, 3 * STEPS, 0),
}
TRIED = {AGAIN: tuple(MODELS), PAIRS: (ONE, TWO, FIXED)}
ARMS = {f"{task}, {name}": (task, name) for task in (PAIRS, AGAIN) for name in TRIED[task]}


def _run(arm: str, seed: int) -> Measured:
    task, name = ARMS[arm]
    num_layers, width, steps, back = MODELS[name]
    draw = TASKS[task]
    model = AttentionOnlyLM(V, T, embed_dim=width, num_heads=2, num_layers=num_layers, rng=seed)
    if back:
        fix_head(model, back)
    model = model.astype(np.float32)
    (ids,), targets = draw(np.random.default_rng(1000 + seed), 256)
    known = ask_known(ids, targets)

    def losses() -> list[float]:
        _, cache = cross_entropy_forward(model(ids), targets, ignore_index=IGNORED)
        by_place: Array = cache.losses.sum(axis=0)[cache.counted[0]] / len(ids)
        return by_place.tolist()

    history = train(
        model, partial(draw, size=48), steps, seed,
        measure=lambda model, step: {"right": share_right(model(ids), known)},
        measure_every=steps * EVERY // STEPS,
    )  # fmt: skip
    steps_at, right = history.curve("right")
    enough = steps_at[right >= ENOUGH]
    measured = {
        "loss": losses(),
        "right": right[-1],
        "steps": enough[0] if len(enough) else steps,
        "while it trains": right[1:].tolist(),
    }
    first = model.attentions[0]
    before, means = head_patterns(first.weights, ids)["previous"], mean_heads(first)
    head = int(before.argmax())
    with cut_heads(first, head, means=means):
        measured["loss, head cut"] = losses()
        measured["right, head cut"] = share_right(model(ids), known)
    with cut_heads(first, 1 - head, means=means):
        measured["right, other cut"] = share_right(model(ids), known)
    return measured | {"token before": before[head]}


def _findings(result: Result) -> list[Finding]:
    def values(measure: str, name: str) -> list[Array]:
        return [result.values(measure, f"{task}, {name}") for task in TASKS]

    def both(measure: str, name: str, form: str = ".0%") -> str:
        return " and ".join(f"{each.mean():{form}}" for each in values(measure, name))

    def all_less(measure: str, name: str, other_measure: str, other: str) -> bool:
        """Say whether, in both tasks, each run of one is less than each run of the other."""
        pairs = zip(values(measure, name), values(other_measure, other), strict=True)
        return all(a.max() < b.min() for a, b in pairs)

    (again, pairs), (one_again, one_pairs) = (
        [each.mean(axis=0) for each in values("loss", name)] for name in (TWO, ONE)
    )
    new = (1 - 2 / V) ** (T // 2 - 1)  # how often the last key has not come before
    two, longer = f"{AGAIN}, {TWO}", f"{AGAIN}, {LONGER}"
    cut = result.values("right, head cut", f"{PAIRS}, {TWO}")
    in_time = sum(result.values("right", two) >= ENOUGH)
    wrong = result.estimate("steps", f"{AGAIN}, {WRONG}")
    return [
        Finding(
            f"With two layers, the loss falls from {again[0]:.2f} nats at the first place to "
            f"{again[-1]:.2f} at the last if letters come again, and from {pairs[0]:.2f} to "
            f"{pairs[-1]:.2f} with keys and values, of which new keys cost "
            f"{new * np.log(V / 2):.2f}. No param changes on the way, so the model learns from the "
            f"sequence. With one layer it falls too, but only to {one_again[-1]:.2f} and "
            f"{one_pairs[-1]:.2f}.",
            again[-1] < one_again[-1] < again[0] and pairs[-1] < one_pairs[-1] < pairs[0],
        ),
        Finding(
            f"Two layers get {both('right', TWO)} right in the two tasks, and one layer of about "
            f"as many params {both('right', ONE)}. The worst run with two is better than the best "
            "with one, also if letters come again and one layer trains three times as long "
            f"({result.mean('right', longer):.0%}). This does not show that one layer never "
            "learns it.",
            all_less("right", ONE, "right", TWO)
            and result.values("right", longer).max() < result.values("right", two).min(),
        ),
        Finding(
            f"Training waits for this head. If it is fixed, {ENOUGH:.0%} are right after "
            f"{both('steps', FIXED, '.0f')} steps in the two tasks, otherwise after "
            f"{both('steps', TWO, '.0f')} ({STEPS} if never). The slowest run with it is faster "
            f"than the fastest without, and if letters come again only {in_time} of "
            f"{len(result.seeds)} get there without it. "
            'This is half of "each needs the other"; we did not fix the second head.',
            all_less("steps", FIXED, "steps", TWO) and in_time < len(result.seeds),
            2,
        ),
        Finding(
            "Fixing just any head is not enough. With one fixed 2 back it takes "
            f"{wrong.mean:.0f} steps ({wrong.low:.0f} to {wrong.high:.0f}) if letters come again, "
            "not surely more or less than with no fixed head.",
            result.mean("steps", f"{AGAIN}, {FIXED}") < wrong.low
            and not result.is_less("steps", f"{AGAIN}, {WRONG}", two)
            and not result.is_less("steps", two, f"{AGAIN}, {WRONG}"),
            2,
        ),
        Finding(
            f"Two layers need the head that looks at the token before: cutting it leaves "
            f"{both('right, head cut', TWO)} right, while cutting that layer's other head leaves "
            f"{both('right, other cut', TWO)}. But it need not do the whole job by itself: with "
            f"keys and values, single runs keep {cut.min():.0%} to {cut.max():.0%}.",
            all_less("right, head cut", TWO, "right, other cut", TWO) and cut.max() > 0.5,
            4,
        ),
    ]


def _charts() -> list[Chart]:
    loss, learning, cut = list[Chart](), list[Chart](), list[Chart]()
    for task, places in ((AGAIN, range(1, T + 1)), (PAIRS, range(1, T + 1, 2))):
        layers = {name: f"{task}, {name}" for name in (ONE, TWO)}
        trained = {name: f"{task}, {name}" for name in TRIED[task] if name not in (ONE, LONGER)}
        is_first, told = task == AGAIN, "letters come again" if task == AGAIN else task
        loss.append(Chart(f"Loss by place, {told}", "loss", places, layers, "place", "nats"))
        learning.append(Chart(
            f"Right answers while it trains, {told}", "while it trains",
            range(EVERY, STEPS + 1, EVERY), trained, "step", "share of right answers",
            point="Training waits for the head that looks at the token before" * is_first,
        ))  # fmt: skip
        cut.append(Chart(
            f"Loss by place, {told}, without the head that looks at the token before",
            "loss, head cut", places, layers, "place", "nats",
            point="Without that head, most of it is lost" * is_first,
        ))  # fmt: skip
    return [*loss, *learning, *cut]


IN_CONTEXT = Experiment(
    "in-context",
    "Can a model learn from what it reads?",
    "A model learns in context, without changing its params. Two heads in two layers do it: one "
    "looks at the token before, and the other looks for the note it left. Each needs the other.",
    "C; Olsson et al. 2022",
    "True here. Two layers learn it, as the first head forms.",
    "In two tasks only the sequence can tell the answer. In the first, 4 to 10 random letters come "
    "again and again, and we ask for the next one. In the second, each key has a random value; the "
    "key comes again, and we ask for its value. We train models of attention only, with one layer "
    "or two, about as many params and the same learning rate, and measure the loss at each place "
    "of new sequences. Then we cut the head of the first layer that looks most at the token "
    "before: it writes its mean instead. As a control we cut the layer's other head. In some rows, "
    "one head of the first layer sees only the token 1 or 2 places back, from the start of "
    "training.",
    tuple(ARMS),
    {
        "loss": "nats at each place that is asked",
        "right": "share of right answers, where the token has come before",
        "steps": f"steps until {ENOUGH:.0%} of them are right; all if that never happens",
        "while it trains": f"share of right answers, {STEPS // EVERY} times to the end",
        "loss, head cut": "loss without the head that looks most at the token before",
        "right, head cut": "share of right answers without that head",
        "right, other cut": "share of right answers without the other head of the first layer",
        "token before": "mean weight of that head on the token before",
    },
    _run,
    tuple(_charts()),
    _findings,
)  # fmt: skip
