"""All pairs around attention in one table, each with what draws its inputs."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from mha_numpy import core, layers
from mha_numpy.layers import FeedForwardParams
from mha_numpy.layers.activations import ACTIVATIONS, GATED
from mha_numpy.layers.experts import AXES

D, F, V, N, E, C = 7, 5, 6, 8, 9, 3
IGNORED = -100


class Pair(NamedTuple):
    """A forward with its forward mode and its backward."""

    forward: Callable
    jvp: Callable
    backward: Callable
    draw: Callable  # (rng, tokens) -> inputs to differentiate by, and options
    least_rank: int = 0  # of tokens, the axes before the features
    maps_tokens: bool = True  # the first input has one row for each token, and so has the output

    def ready(self, rng, tokens, dtype=np.float64):
        """Return forward with its options, and the inputs to differentiate by."""
        inputs, options = self.draw(rng, tokens)
        cast = partial(cast_floats, dtype=dtype)
        options = {name: cast(option) for name, option in options.items()}
        return partial(self.forward, **options), {name: cast(x) for name, x in inputs.items()}


def cast_floats(value, dtype):
    """Convert an array of floats, or a tuple of them; leave the rest."""
    if isinstance(value, FeedForwardParams):
        return FeedForwardParams(*(cast_floats(param, dtype) for param in value))
    return value.astype(dtype) if getattr(value, "dtype", None) == np.float64 else value


def draw_norm(rng, tokens, *params, **options):
    return {
        "x": 2 * rng.normal(size=(*tokens, D)) + 1,
        **{name: rng.normal(size=D) for name in params},
    }, options


def draw_linear(rng, tokens, *params):
    shapes = {"x": (*tokens, D), "w": (D, F), "b": (F,)}
    return {name: rng.normal(size=shapes[name]) for name in ("x", *params)}, {}


def draw_features(rng, tokens, *names, **options):
    return {name: 2 * rng.normal(size=(*tokens, F)) for name in names}, options


def draw_dropout(rng, tokens, stretched):
    inputs, _ = draw_features(rng, tokens, "x")
    shape = (F,) if stretched else (*tokens, F)
    return inputs, {"dropout_mask": (rng.random(shape) > 0.4) / 0.6}


def draw_embedding(rng, tokens):
    return {"table": rng.normal(size=(V, D))}, {"ids": rng.integers(0, V, tokens)}


def draw_positions(rng, tokens, offset):
    x, table = rng.normal(size=(*tokens, D)), rng.normal(size=(N, D))
    if offset >= 0:
        return {"x": x, "table": table}, {"offset": offset}
    some = rng.integers(
        0, N // 2, tokens if offset == -2 else tokens[-1:]
    )  # so that some are alike
    return {"x": x, "table": table}, {"positions": some}


def draw_cross_entropy(rng, tokens, ignores, **options):
    targets = rng.integers(0, V, tokens)
    if ignores:
        targets = np.where(rng.random(tokens) < 0.4, IGNORED, targets)
        options["ignore_index"] = IGNORED
    return {"logits": 3 * rng.normal(size=(*tokens, V))}, {"targets": targets, **options}


def draw_feed_forward(rng, tokens, activation, biases):
    shapes = {"w_in": (D, F), "b_in": (F,), "w_out": (F, D), "b_out": (D,)}
    if activation in GATED:
        shapes |= {"w_gate": (D, F), "b_gate": (F,)}
    params = FeedForwardParams(*(
        rng.normal(size=shapes[name]) if name in shapes and (biases or name[0] == "w") else None
        for name in FeedForwardParams._fields
    ))  # fmt: skip
    return {"x": rng.normal(size=(*tokens, D)), "params": params}, {"activation": activation}


def draw_experts(rng, tokens, limit=1.5, **options):
    """Draw params, and tokens that are far from a different choice and from the clips."""
    sizes = {"D": D, "E": E, "F": F}
    params = {
        name: rng.normal(size=[sizes[a] for a in axes.split()]) for name, axes in AXES.items()
    }
    x = rng.normal(size=(50 + 8 * int(np.prod(tokens)), D))
    logits = np.sort(x @ params["w_router"] + params["b_router"], axis=-1)
    is_clear = logits[:, -C] - logits[:, -C - 1] > 0.05
    for name in ("gate", "in"):
        wide = np.einsum("nd,edf->nef", x, params[f"w_{name}"]) + params[f"b_{name}"]
        is_clear &= (abs(abs(wide) - limit) > 0.01).all(axis=(1, 2))
    x = x[is_clear][: int(np.prod(tokens))].reshape(*tokens, D)
    return {"x": x, **params}, {"num_chosen": C, "limit": limit, **options}


def pair(name, draw, *arguments, least_rank=0, maps_tokens=True, **options):
    """Return the pair of a name, drawn with these arguments and options."""
    room = core if name == "linear" else layers
    ways = (getattr(room, f"{name}_{way}") for way in ("forward", "jvp", "backward"))

    def draw_all(rng, tokens):
        return draw(rng, tokens, *arguments, **options)

    return Pair(*ways, draw_all, least_rank, maps_tokens)


PAIRS = {
    "linear": pair("linear", draw_linear, "w", "b"),
    "linear without bias": pair("linear", draw_linear, "w"),
    "layer norm": pair("layer_norm", draw_norm, "gain", "bias"),
    "layer norm without bias": pair("layer_norm", draw_norm, "gain", eps=0.5),
    "rms norm": pair("rms_norm", draw_norm, "gain"),
    "rms norm, large eps": pair("rms_norm", draw_norm, "gain", eps=0.5),
    "rms norm without gain": pair("rms_norm", draw_norm),
    "relu": pair("relu", draw_features, "x"),
    "gelu": pair("gelu", draw_features, "x"),
    "gelu by tanh": pair("gelu", draw_features, "x", approximate="tanh"),
    "swiglu": pair("swiglu", draw_features, "gate", "x"),
    "geglu": pair("geglu", draw_features, "gate", "x"),
    "geglu by tanh": pair("geglu", draw_features, "gate", "x", approximate="tanh"),
    "softcap": pair("softcap", draw_features, "x", cap=1.5),
    "mixture of experts": pair("mixture_of_experts", draw_experts, alpha=1.3),
    "dropout": pair("dropout", draw_dropout, False),
    "dropout of features": pair("dropout", draw_dropout, True),
    "embedding": pair("embedding", draw_embedding, maps_tokens=False),
    "positions": pair("learned_positions", draw_positions, 0, least_rank=1),
    "positions from 2": pair("learned_positions", draw_positions, 2, least_rank=1),
    "positions of a sequence": pair("learned_positions", draw_positions, -1, least_rank=1),
    "positions of each token": pair("learned_positions", draw_positions, -2, least_rank=1),
    **{
        f"cross-entropy, {reduction}{', smooth' * (s > 0)}{', ignored' * ignores}": pair(
            "cross_entropy", draw_cross_entropy, ignores, reduction=reduction, label_smoothing=s,
            maps_tokens=reduction == "none",
        )
        for reduction, s, ignores in product(("mean", "sum", "none"), (0.0, 0.3), (False, True))
    },
    **{
        f"feed-forward, {activation}{'' if biases else ', no biases'}": pair(
            "feed_forward", draw_feed_forward, activation, biases
        )
        for activation, biases in product(ACTIVATIONS, (True, False))
    },
}  # fmt: skip
