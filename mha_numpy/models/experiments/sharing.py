"""One key and value head for several query heads, without more training: bases aligned or not."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.models import AttentionOnlyLM
from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.experiments.experiment import Chart, Experiment, Finding
from mha_numpy.models.experiments.heads import D, Reader, V, draw_batch
from mha_numpy.models.experiments.result import Measured, Result
from mha_numpy.models.experiments.training import train
from mha_numpy.models.train import Batch, share_right
from mha_numpy.models.train.tasks import Induction

PLACES, STEPS = 4, 300


def rotation(head: Array, target: Array) -> Array:
    """Return the R, with R R^T = 1, that brings ``head @ R`` nearest: (N, d), (N, d) -> (d, d).

    Source: Schönemann 1966, *A generalized solution of the orthogonal Procrustes problem*.
    """
    u, _, vt = np.linalg.svd(head.T @ target)
    return u @ vt


def align_heads(layer: MultiHeadAttention, num_kv_heads: int) -> None:
    """Rotate keys and values towards those of the first head in each group; no output changes.

    It reads the keys and values of the last forward. For each head::

        (q R) (k R)^T = q R R^T k^T = q k^T
        (weights v S) (S^T w_o) = weights v w_o
    """
    params, d = layer.params, layer.head_dim
    seen = layer.forward_cache.attention.inputs  # k, v: (B, H, T, d)
    keys, values = (x.swapaxes(0, 1).reshape(layer.num_heads, -1, d) for x in (seen.k, seen.v))
    for h in range(layer.num_heads):
        first, own = h - h % (layer.num_heads // num_kv_heads), slice(h * d, (h + 1) * d)
        r, s = rotation(keys[h], keys[first]), rotation(values[h], values[first])
        for name, turn in (("w_q", r), ("w_k", r), ("w_v", s)):
            params[name][:, own] = params[name][:, own] @ turn
        params["w_o"][own] = s.T @ params["w_o"][own]


def average_heads(layer: MultiHeadAttention, num_kv_heads: int) -> None:
    """Give each group of heads the mean of its w_k and w_v: (D, H * d) -> (D, H_kv * d)."""
    for name in ("w_k", "w_v"):
        w = layer.params[name]
        groups = w.reshape(len(w), num_kv_heads, -1, layer.head_dim)
        layer.params[name] = groups.mean(axis=2).reshape(len(w), -1)
    layer.num_kv_heads = num_kv_heads


def keep_first(layer: MultiHeadAttention, num_kv_heads: int) -> None:
    """Cut all heads of each group but the first."""
    group = layer.num_heads // num_kv_heads
    layer.head_gate = (np.arange(layer.num_heads) % group == 0).astype(layer.params["w_k"].dtype)


WAYS = {
    "mean": [average_heads],
    "aligned, then mean": [align_heads, average_heads],
    "one head kept": [keep_first],
}
FROM_THE_START = "trained so from the start"  # only where that is quick
MODELS = {  # task, heads, layers that share
    "4 heads of width 8": ("places", 4, [0]),
    "8 heads of width 4": ("places", 8, [0]),
    "induction, second layer": ("induction", 4, [1]),
    "induction, both layers": ("induction", 4, [0, 1]),
}
KV_HEADS = {model: [2**i for i in range(H.bit_length())] for model, (_, H, _) in MODELS.items()}
TASKS: dict[str, Callable[..., Batch]] = {
    "places": partial(draw_batch, places=PLACES),
    "induction": Induction(vocab_size=32, num_tokens=48).draw_batch,
}


def arm_of(model: str, way: str) -> str:
    """Return the name of an arm.

    Examples
    --------
    >>> arm_of("4 heads of width 8", "mean")
    '4 heads of width 8: mean'
    """
    return f"{model}: {way}"


def ways_of(model: str) -> list[str]:
    """Return in how many ways its heads share."""
    return [*WAYS, FROM_THE_START] if MODELS[model][0] == "places" else list(WAYS)


ARMS = {arm_of(model, way): (model, way) for model in MODELS for way in ways_of(model)}


@cache  # several arms change the heads of the same model
def _train(task: str, num_heads: int, num_kv_heads: int, seed: int) -> Layer:
    model: Layer
    if task == "places":
        model = Reader(PLACES, num_heads, "linear", seed)
        model.attention = MultiHeadAttention(D, num_heads, num_kv_heads, bias=False, rng=seed)
    else:
        model = AttentionOnlyLM(32, 48, embed_dim=64, num_heads=num_heads, num_layers=2, rng=seed)
    model = model.astype(np.float32)
    train(model, partial(TASKS[task], size=32), STEPS, seed)
    return model


def _run(arm: str, seed: int) -> Measured:
    name, way = ARMS[arm]
    task, num_heads, layers = MODELS[name]
    asked = TASKS[task](np.random.default_rng(1000 + seed), size=256)
    seen = TASKS[task](np.random.default_rng(2000 + seed), size=64)
    right = []
    for num_kv_heads in KV_HEADS[name]:
        trained_with = num_kv_heads if way == FROM_THE_START else num_heads
        model = deepcopy(_train(task, num_heads, trained_with, seed))
        attentions = list(attention_layers(model).values())
        model(*seen.inputs)
        for layer in layers:
            for change in WAYS.get(way, []):
                change(attentions[layer], num_kv_heads)
        right.append(share_right(model(*asked.inputs), asked.targets))
    return {"one for all": right[0], "right": right}


def _findings(result: Result) -> list[Finding]:
    mean, aligned, kept = WAYS
    wide, narrow, second, both = MODELS

    def right(model: str, way: str) -> Array:
        return result.values("right", arm_of(model, way))  # (seeds, numbers of key/value heads)

    def one(model: str, way: str) -> str:
        return f"{right(model, way)[:, 0].mean():.1%}"

    def is_less(model: str, way: str) -> bool:
        return result.is_less("one for all", arm_of(model, way), arm_of(model, aligned))

    def points_lost(model: str) -> Array:
        return 100 * (right(model, aligned)[:, -1] - right(model, aligned)[:, 0])

    lost, lost_in_both = points_lost(second).max(), points_lost(both)
    four_wide, four_narrow = right(wide, aligned)[:, 0], right(narrow, aligned)[:, 1]
    guess = (1 + (PLACES - 1) / V) / PLACES
    from_the_start = min(right(model, FROM_THE_START).min() for model in (wide, narrow))
    return [
        Finding(
            "Induction: with one key and value head in the second layer, the plain mean gets "
            f"{one(second, mean)} right. Aligned first, it gets {one(second, aligned)}, and no "
            f"seed loses more than {lost:.1f} points. So sharing needed a common basis here, not "
            "more training.",
            is_less(second, mean) and bool(lost < 2),
            2,
        ),
        Finding(
            "These heads partly repeat one another: the first of them gets "
            f"{one(second, kept)} by itself. But with every seed that is less than the aligned "
            "mean gets, from a cache of the same size.",
            bool((right(second, kept)[:, 0] < right(second, aligned)[:, 0]).all()),
            2,
        ),
        Finding(
            f"With both layers shared, the plain mean gets {one(both, mean)}, and the aligned one "
            f"{one(both, aligned)}: it loses {lost_in_both.min():.1f} to {lost_in_both.max():.1f} "
            "points, depending on the seed. So alignment doesn't always come for free.",
            is_less(both, mean) and bool(lost_in_both.min() > 1),
            3,
        ),
        Finding(
            "Four heads of width 8 that read four different places can share as well: "
            f"{one(wide, aligned)} aligned, {one(wide, mean)} by the plain mean. The first head "
            f"by itself gets {one(wide, kept)}, and reading one place and guessing three would "
            f"get {guess:.1%}. So different questions can be put to the same keys.",
            is_less(wide, mean) and is_less(wide, kept) and bool(four_wide.mean() > 0.95),
        ),
        Finding(
            f"Heads of width 4 lose more. Groups of four get {four_narrow.mean():.1%}, where four "
            f"heads of width 8 got {four_wide.mean():.1%}; all eight together get "
            f"{one(narrow, aligned)}.",
            bool(four_narrow.max() < four_wide.min()),
            1,
        ),
        Finding(
            "Lack of room is not the reason, because models that share from the start of training "
            "get at least 99.9% right with every number of heads, also with one key and value head "
            "of width 4. It is the conversion that loses the rest. (Only the places were tried.)",
            bool(from_the_start > 0.999),
            1,
        ),
    ]


POINTS = (
    "Even heads that read different places can share", "Narrow heads lose more",
    "In one layer, aligned heads share at almost no cost", "With both layers shared, more is lost",
)  # fmt: skip

SHARING = Experiment(
    "sharing",
    "Can trained heads share?",
    "A trained multi-head model needs more training before its heads can share keys and values.",
    "Ainslie et al. 2023, section 2.1 (the mean, then more training); alignment: Jin et al. 2024",
    "False for four heads in one layer without rotary positions: if each is rotated first, which "
    "changes no output, they can share at little cost. Eight narrow heads lose far more that way, "
    "though another conversion may lose less.",
    f"In one kind of model each token asks for the tokens at {PLACES} places before it, and a "
    "linear readout follows, so that heads have to read different places. The other kind is the "
    "attention-only model for induction, with two layers of 4 heads of width 16. After training, "
    'each group of neighbouring heads gets one key head and one value head. "Mean" averages w_k '
    'and w_v of the group. "Aligned, then mean" first turns the queries and keys of each head by '
    "one rotation, and its values and rows of w_o by another, which changes no output. The "
    "rotations bring its keys and values as near as possible to those of the group's first head, "
    'on 64 sequences without answers. "One head kept" cuts all heads of the group but the first. '
    "For comparison, models of the first kind are also trained with shared heads from the start. "
    "All are scored on 256 new sequences. None has rotary positions, which would rule out most "
    "rotations.",
    tuple(ARMS),
    {
        "one for all": "share of right answers, with one key and value head per layer",
        "right": "the same, with 1, 2, 4, ... H of them; the last is the model as trained",
    },
    _run,
    tuple(
        Chart(
            f"Right answers without more training: {name}", "right", KV_HEADS[name],
            {way: arm_of(name, way) for way in ways_of(name)},
            "key/value heads", "share of right answers", log_x=True, point=point,
        )
        for name, point in zip(MODELS, POINTS, strict=True)
    ),
    _findings,
)  # fmt: skip
