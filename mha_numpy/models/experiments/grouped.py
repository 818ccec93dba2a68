"""Fewer key/value heads from the start: loss on new text, bytes to keep, speed of decoding."""

from functools import partial
from time import perf_counter

import numpy as np

from mha_numpy.core import KVCache
from mha_numpy.layers import MultiHeadAttention, cross_entropy_forward
from mha_numpy.models import TransformerLM
from mha_numpy.models.cost import ModelConfig, count_flops
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.result import Estimate, Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import RECIPES, AdamW

D, H, WIDTH, T, STEPS, RATE = 48, 8, 6, 32, 400, 1e-2
VOCABULARY = 74  # characters of the novel
KV_HEADS = 1, 2, 8
CONTEXTS = 64, 256, 1024, 4096


def wider(num_heads: int, num_kv_heads: int) -> int:
    """Return the hidden width that gives a model as many params as with H heads and 4 D.

    Examples
    --------
    >>> wider(8, 8), wider(8, 2), wider(8, 1), wider(1, 1)
    (192, 228, 234, 276)
    """

    def params(heads: int, kv_heads: int) -> int:
        return 2 * D * WIDTH * (heads + kv_heads) + WIDTH * (heads + 2 * kv_heads)

    saved = params(H, H) - params(num_heads, num_kv_heads)
    return 4 * D + round(saved / (2 * D + 1))  # a column of w_in, a row of w_out, a bias


def kept(num_kv_heads: int) -> int:
    """Return the bytes of a token's keys and values in float32."""
    return 2 * num_kv_heads * WIDTH * 4


def longer(num_kv_heads: int) -> int:
    """Return the steps that take as many multiplications as STEPS with H key/value heads.

    Examples
    --------
    >>> longer(8), longer(2), longer(1)
    (400, 445, 453)
    """

    def per_step(kv_heads: int) -> int:
        sizes = ModelConfig("", D, 1, H, kv_heads, WIDTH, 4 * D, VOCABULARY, T)
        return count_flops(sizes, T).total

    return round(STEPS * per_step(H) / per_step(num_kv_heads))


ARMS = {  # heads, key/value heads, hidden width, steps
    "1 head, wider": (1, 1, wider(1, 1), STEPS),
    "H_kv = 1": (H, 1, 4 * D, STEPS),
    "H_kv = 2": (H, 2, 4 * D, STEPS),
    "H_kv = 8": (H, H, 4 * D, STEPS),
    "H_kv = 1, wider": (H, 1, wider(H, 1), STEPS),
    "H_kv = 2, wider": (H, 2, wider(H, 2), STEPS),
    "H_kv = 1, longer": (H, 1, 4 * D, longer(1)),
    "H_kv = 2, longer": (H, 2, 4 * D, longer(2)),
}


def make_model(arm: str, seed: int) -> TransformerLM:
    """Return one layer's model with random params."""
    num_heads, num_kv_heads, hidden, _ = ARMS[arm]
    return TransformerLM(
        VOCABULARY, T, embed_dim=D, num_heads=num_heads, num_kv_heads=num_kv_heads,
        head_dim=WIDTH, hidden_dim=hidden, num_layers=1, activation="relu", rng=seed,
    ).astype(np.float32)  # fmt: skip


def _tokens_a_second(num_heads: int, num_kv_heads: int, seed: int) -> list[float]:
    """Time a layer with random params that reads one more token of each of 8 texts."""
    rng = np.random.default_rng(seed)
    layer = MultiHeadAttention(256, num_heads, num_kv_heads, head_dim=32, rng=rng)
    layer = layer.astype(np.float32)
    x = rng.normal(size=(8, 1, 256)).astype(np.float32)
    speeds = []
    for context in CONTEXTS:
        past, times = rng.normal(size=(8, num_kv_heads, context, 32)).astype(np.float32), []
        kv_cache = KVCache()
        kv_cache.append(past, past)
        for _ in range(8):
            start = perf_counter()
            layer(x, kv_cache=kv_cache)
            times.append(perf_counter() - start)
        speeds.append(len(x) / min(times))
    return speeds


def _run(arm: str, seed: int) -> Measured:
    task = RECIPES["text"].make_task()
    task.num_tokens = T
    model = make_model(arm, seed)
    num_heads, num_kv_heads, _, steps = ARMS[arm]
    optimizer = AdamW(model, RATE, weight_decay=0.1)
    train(model, partial(task.draw_batch, size=16), steps, seed, optimizer=optimizer)
    (ids,), targets = task.draw_held_out(np.random.default_rng(1000 + seed), 256)
    loss, _ = cross_entropy_forward(model(ids), targets)
    return {"loss": float(loss), "tokens a second": _tokens_a_second(num_heads, num_kv_heads, seed)}


def worse(result: Result, arm: str, than: str = "H_kv = 8") -> Estimate:
    """Return how much greater an arm's loss is, seed by seed: both had the same batches."""
    more = result.values("loss", arm) - result.values("loss", than)
    return Result("", result.seeds, {arm: {"loss": list(more)}}, 0).estimate("loss", arm)


def _findings(result: Result) -> list[Finding]:
    all_heads, two, one, single = "H_kv = 8", "H_kv = 2", "H_kv = 1", "1 head, wider"
    two_wider, one_wider, two_longer, one_longer = (
        f"{arm}, {how}" for how in ("wider", "longer") for arm in (two, one)
    )

    def loss(arm: str) -> str:
        return f"{result.mean('loss', arm):.3f}"

    def more(arm: str) -> str:
        mean, low, high = worse(result, arm)
        return f"{mean:.3f} ({low:.3f} to {high:.3f})"

    def cannot_tell(*pairs: tuple[str, str]) -> bool:
        return all(low < 0 < high for _, low, high in (worse(result, *pair) for pair in pairs))

    def gain(arm: str, context: int, than: str = all_heads) -> float:
        """Return how many times as many tokens a second an arm decodes as another."""
        at = CONTEXTS.index(context)
        own, other = (result.values("tokens a second", each)[:, at].mean() for each in (arm, than))
        return float(own / other)

    short, long = CONTEXTS[0], CONTEXTS[-1]
    return [
        Finding(
            f"Multi-head attention has a loss of {loss(all_heads)} nats. Seed by seed, H_kv = 2 "
            f"has {more(two)} more, and H_kv = 1 has {more(one)} more. Both intervals contain 0, "
            "so five seeds can't tell them apart. That doesn't prove them equal.",
            cannot_tell((two, all_heads), (one, all_heads)),
        ),
        Finding(
            f"The same is true at equal params: {more(two_wider)} more for H_kv = 2, and "
            f"{more(one_wider)} more for H_kv = 1. Nor do these seeds show that the wider "
            "feed-forward network gains anything.",
            cannot_tell(
                (two_wider, all_heads), (one_wider, all_heads), (two_wider, two), (one_wider, one)
            ),
        ),
        Finding(
            "It is also true with as many multiplications. With fewer key and value heads there is "
            f"time for {longer(2) - STEPS} and {longer(1) - STEPS} more steps, and then the loss "
            f"differs from multi-head's by {more(two_longer)} with H_kv = 2, and by "
            f"{more(one_longer)} with H_kv = 1. (Below 0 is better.)",
            cannot_tell((two_longer, all_heads), (one_longer, all_heads)),
        ),
        Finding(
            "Sharing is better than having fewer heads. With the same cache and as many params, a "
            f"single head of that width has a loss of {loss(single)}, and eight that share one "
            f"key and value head have {loss(one_wider)}. The single head decodes "
            f"{gain(single, long, one):.1f} times as fast after {long} tokens: it has an eighth "
            "of the scores to compute.",
            result.is_less("loss", one_wider, single) and gain(single, long, one) > 1,
        ),
        Finding(
            f"The cache keeps {kept(8)} bytes per token with H_kv = 8, {kept(2)} with H_kv = 2 and "
            f"{kept(1)} with H_kv = 1. The speed does not follow: after {long} tokens, decoding is "
            f"{gain(two, long):.1f} times as fast with H_kv = 2 as with H_kv = 8, and "
            f"{gain(one, long):.1f} times with H_kv = 1. After {short} tokens it is "
            f"{gain(two, short):.1f} and {gain(one, short):.1f} times as fast. (With NumPy, on one "
            "machine; yours gives other numbers.)",
            all(gain(f"H_kv = {n}", short) < gain(f"H_kv = {n}", long) < H / n for n in (1, 2)),
            1,
        ),
    ]


GROUPED = Experiment(
    "grouped",
    "Fewer key/value heads from the start",
    "Grouped-query attention is nearly as good as multi-head attention and nearly as fast as "
    "multi-query attention; multi-query loses quality.",
    "C, E; Shazeer 2019, section 4; Ainslie et al. 2023, section 3",
    "Here five seeds see no loss of quality. One head instead of eight does lose.",
    f"A language model of one layer, with {H} query heads of width {WIDTH}, learns the characters "
    f"of a novel in {STEPS} steps of 16 pieces of {T}, with H_kv = 8, 2 or 1 key/value heads. With "
    'fewer, it has fewer params. The models called "wider" get them back in the feed-forward '
    "network, so that all have the same number, to within half a hidden unit. Those called "
    '"longer" train for as many multiplications as H_kv = 8, in '
    f"{longer(2)} and {longer(1)} steps. One more model has "
    "a single head of that width, and so the cache of H_kv = 1. All use the learning rate "
    f"{RATE:g}, the best of 0.005, 0.01, 0.02 and 0.04 in one run each with H_kv = 8 and with "
    "H_kv = 1. The loss is that of held-out text. The speed is that of another model: one layer "
    "with random params, 8 heads of width 32, reads one more token of each of 8 texts, and the "
    "quickest of 8 times counts.",
    tuple(ARMS),
    {
        "loss": "nats a character on held-out text",
        "tokens a second": "decoded by a layer with random params, at "
        + ", ".join(map(str, CONTEXTS)) + " tokens of context; that of one machine",
    },
    _run,
    (
        Chart(
            "Loss on held-out text", "loss", KV_HEADS,
            {"same feed-forward": [f"H_kv = {n}" for n in KV_HEADS],
             "same number of params": ["H_kv = 1, wider", "H_kv = 2, wider", "H_kv = 8"],
             "same multiplications": ["H_kv = 1, longer", "H_kv = 2, longer", "H_kv = 8"]},
            "key/value heads", "nats a character", log_x=True,
        ),
        Chart(
            "Decoding", "tokens a second", CONTEXTS,
            {f"H_kv = {n}": f"H_kv = {n}" for n in KV_HEADS},
            "tokens of context", "tokens a second", log_x=True, log_y=True,
            point="The cache shrinks more than the time",
        ),
    ),
    _findings,
)  # fmt: skip
