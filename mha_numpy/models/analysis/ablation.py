"""A model's score without each head, and as more and more heads are cut."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_count, check_number
from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer
from mha_numpy.models.analysis.cuts import cut_model
from mha_numpy.models.analysis.layers import attention_layers
from mha_numpy.progress import progress

Head = tuple[str, int]  # the name of its layer, and its number
Score = Callable[[], Any]


class PruningCurve(NamedTuple):
    """The heads of a model in the order in which they were cut, and the score after each cut."""

    heads: list[Head]  # (name of the layer, number): N of them
    scores: Array  # (N + 1,): with none cut, one, two, ...

    def first(self, n: int) -> dict[str, list[int]]:
        """Return the first n heads by layer, as `cut_model` and `prune_model` take them."""
        return heads_by_layer(self.heads[:n])


def heads_by_layer(heads: Sequence[Head]) -> dict[str, list[int]]:
    """Return the numbers of the heads of each layer, as `cut_model` and `prune_model` take them.

    Examples
    --------
    >>> heads_by_layer([("0", 3), ("1", 2), ("0", 1)])
    {'0': [3, 1], '1': [2]}
    """
    found: dict[str, list[int]] = {}
    for name, h in heads:
        found.setdefault(name, []).append(h)
    return found


def ablation_scores(
    model: Layer, score: Score, *, means: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Return the score of a model without each of its heads, one at a time.

    The drop is roughly a lower bound on the head's effect, because others may take over its work.

    Parameters
    ----------
    model : Layer
    score : function without arguments
        It runs the model, in `eval` mode, on its test data, and returns a number.
    means : dict from names of layers to (H, d_v) float arrays, optional
        From `mean_heads`: a head that is cut writes its mean, instead of 0.

    Returns
    -------
    dict from the name of each attention layer to an (H,) array

    Notes
    -----
    Source: Michel et al. 2019, *Are sixteen heads really better than one?*, section 3.2.

    Examples
    --------
    >>> from mha_numpy.models import induction_by_hand
    >>> model, ids = induction_by_hand(vocab_size=10, max_tokens=8), np.array([[7, 1, 4, 9, 7, 1]])
    >>> def score():  # the share of right answers: after 7 came 1, after 1 came 4
    ...     return np.mean(model(ids).argmax(axis=-1)[0, -2:] == [1, 4])
    >>> float(score()), ablation_scores(model, score)
    (1.0, {'attentions.0': array([0.5]), 'attentions.1': array([0.])})
    """
    heads = _all_heads(model)
    scores = {name: np.zeros(len(of_layer)) for name, of_layer in heads_by_layer(heads).items()}
    with closing(progress(heads, len(heads), "cutting each head")) as bar:
        for name, h in bar:
            scores[name][h] = _score_without([(name, h)], model, score, means)
    return scores


def least_important_first(importance: Mapping[str, Array]) -> list[Head]:
    """Return all heads of all layers in one order, for `pruning_curve`.

    `importance` comes from `head_importance`, or is the loss measured by `ablation_scores`.

    Examples
    --------
    >>> least_important_first({"0": np.array([0.2, 0.9]), "1": np.array([0.5])})
    [('0', 0), ('1', 0), ('0', 1)]
    """
    heads = [(name, h) for name, of_layer in importance.items() for h in range(len(of_layer))]
    return sorted(heads, key=lambda head: importance[head[0]][head[1]])


def pruning_curve(
    model: Layer,
    score: Score,
    order: Sequence[Head] | None = None,
    *,
    num_cuts: int | None = None,
    means: Mapping[str, Array] | None = None,
) -> PruningCurve:
    """Cut more and more heads of a model, and return the score after each cut.

    Parameters
    ----------
    model : Layer
        Unchanged afterwards; `prune_model` makes it smaller.
    score : function without arguments
        As for `ablation_scores`; the higher, the better. For a loss, return the negative.
    order : (name of the layer, number of the head) pairs, optional
        The order of the cuts, such as from `least_important_first`. Default greedy: cut the head
        without which the score is highest.
    num_cuts : int, optional
        How many heads to cut; default all of `order`, or all of the model.
    means : optional
        As for `ablation_scores`.

    Notes
    -----
    With N cuts an order takes N + 1 scores, and greedy cuts of N heads take N (N + 1) / 2 + 1.
    Source: Michel et al. 2019, *Are sixteen heads really better than one?*, section 4.

    Examples
    --------
    >>> from mha_numpy.models.train import load_trained, share_right
    >>> trained = load_trained("induction")
    >>> (ids,), targets = trained.task.draw_batch(np.random.default_rng(1), 16)
    >>> def score():
    ...     return share_right(trained.model(ids), targets)
    >>> curve = pruning_curve(trained.model, score)
    >>> curve.scores.round(1)  # six of eight heads can go, after training, on this task
    array([1. , 1. , 1. , 1. , 1. , 1. , 1. , 0.1, 0. ])
    >>> curve.first(6)
    {'attentions.0': [1, 2, 3], 'attentions.1': [0, 1, 2]}
    """
    all_heads = _all_heads(model)
    most = len(all_heads if order is None else order)
    num_cuts = most if num_cuts is None else check_count("num_cuts", num_cuts, least=0)
    if num_cuts > most:
        raise ConfigError(f"num_cuts: expected at most the number of heads, {most}; got {num_cuts}")

    cut: list[Head] = []
    scores = [_score_without([], model, score, means)]
    num_trials = sum(most - n for n in range(num_cuts)) if order is None else num_cuts
    with closing(progress(range(num_trials), num_trials, "cutting heads")) as bar:
        for n in range(num_cuts):
            next_heads = [h for h in all_heads if h not in cut] if order is None else [order[n]]
            trials = [
                _score_without([*cut, head], model, score, means)
                for head, _ in zip(next_heads, bar, strict=False)
            ]
            best = int(np.argmax(trials))
            cut.append(next_heads[best])
            scores.append(trials[best])
    return PruningCurve(cut, np.array(scores))


def _score_without(
    heads: Sequence[Head], model: Layer, score: Score, means: Mapping[str, Array] | None
) -> float:
    with cut_model(model, heads_by_layer(heads), means=means):
        number = score()
    return check_number("score", number[()] if isinstance(number, np.ndarray) else number)


def _all_heads(model: Layer) -> list[Head]:
    layers = attention_layers(model).items()
    return [(name, h) for name, layer in layers for h in range(layer.num_heads)]
