"""What a report of heads knows: weights, patterns and cuts, ready for JSON."""

import re
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.models import Bert
from mha_numpy.models.analysis import (
    ablation_scores,
    attention_layers,
    least_important_first,
    pruning_curve,
    token_patterns,
    weights_times_norm,
)
from mha_numpy.models.text import Tokens
from mha_numpy.show.page.heads.measures import Measure
from mha_numpy.show.page.heads.words import family_of

DELIMITERS = ("[SEP]", "</s>", "<|endoftext|>", *".,;:!?")  # [CLS] begins a text, parts nothing
ENDING = re.compile("'(s|t|d|m|re|ll|ve)", re.IGNORECASE)
TINY = 1e-30  # instead of 0 below a fraction's line


def describe_texts(model: Any, tokens: Tokens, labels: list[list[str]]) -> list[dict[str, Any]]:
    """Run the model, and return what its heads do on each text."""
    options = {"mask": tokens.mask} if isinstance(model, Bert) else {}
    model(tokens.ids, **options)
    layers = attention_layers(model).values()
    found = [(layer.weights, weights_times_norm(layer)) for layer in layers]
    described = []
    for b, names in enumerate(labels):
        T = len(names)
        here = slice(b, b + 1), slice(None), slice(T), slice(T)  # without padding
        ids, parts = tokens.ids[b : b + 1, :T], np.array([[name in DELIMITERS for name in names]])
        patterns = token_patterns(ids, is_delimiter=parts)
        own = {name: where[0] for name, where in patterns.items()}
        words, pieces = _words_of(names)
        read = [_describe_layer(w[here], flows[here], own, pieces) for w, flows in found]
        described.append(
            {"labels": words} | {name: [layer[name] for layer in read] for name in read[0]}
        )
    return described


def _words_of(names: list[str]) -> tuple[list[str], Array]:
    """Return the words of tokens, and which tokens are their pieces, such as didn, ' and t."""
    words: list[str] = []
    of_token = []
    for before, name, after in zip(["[CLS]", *names], names, [*names[1:], ""], strict=False):
        is_ending = any(map(ENDING.fullmatch, (name, name + after, before + name)))
        if before != "[CLS]" and (is_ending or name.startswith("##")):
            words[-1] += name.removeprefix("##")
        else:
            words.append(name)
        of_token.append(len(words) - 1)
    return words, np.eye(len(words))[:, of_token]


def _describe_layer(
    weights: Array, flows: Array, patterns: dict[str, Array], pieces: Array
) -> dict[str, Any]:
    families = [family_of(head, patterns) for head in weights[0]]
    # a word gives the mean of what its pieces give, and gets the sum of what they get (Clark 2019)
    mean = pieces / pieces.sum(axis=1, keepdims=True)
    weights, flows = (mean @ of_tokens[0] @ pieces.T for of_tokens in (weights, flows))  # (H, T, T)
    # a column of weight x norm is a column of weights times one number, or of pieces their mean
    norms = flows.sum(axis=1) / np.maximum(weights.sum(axis=1), TINY)
    return {
        "families": families,
        "weights": (1000 * weights).round().astype(int).reshape(len(norms), -1).tolist(),
        "norms": [[float(f"{norm:.3g}") for norm in of_head] for of_head in norms],
    }


def describe_worth(measure: Measure) -> dict[str, Any]:
    """Cut heads, and return what changes: one by one, and one after the other."""
    measure.change()  # a forward of the model as it is; that of a loss needs no last token
    importance = measure.importance()
    order = least_important_first(importance)
    at_random = [order[i] for i in np.random.default_rng(0).permutation(len(order))]
    curve, random = (
        pruning_curve(measure.model, lambda: -measure.change(), heads)
        for heads in (order, at_random)
    )
    layers, changes = list(importance), ablation_scores(measure.model, measure.change)
    return {
        "kind": measure.kind,
        "zero": [_numbers(changes[name]) for name in layers],
        "order": [[layers.index(name), h] for name, h in curve.heads],
        "curve": _numbers(-curve.scores),
        "random": _numbers(-random.scores),
    }


def _numbers(array: Array) -> list[float]:
    return [round(float(x), 6) for x in array]
