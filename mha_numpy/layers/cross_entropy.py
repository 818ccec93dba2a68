"""Cross-entropy of softmax, from logits; forward, forward mode and backward."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checks import check_choice, check_ids, check_integer, check_number
from mha_numpy.core.masks import only_visible
from mha_numpy.core.pair import Pair, Records, Values
from mha_numpy.dtypes import Array, as_integer_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.steps import constant

REDUCTIONS = ("mean", "sum", "none")


def cross_entropy_steps(
    logits: Array, targets: Array, counted: Array, label_smoothing: float, reduction: str
) -> tuple[Array, Array, Array, Array]:
    """Compute the loss of each token from its logits (..., V), then of all."""
    V = logits.shape[-1]
    # 1. log of softmax; subtracting the largest logit changes nothing, and nothing overflows
    shifted = logits - logits.real.max(axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    # 2. what is asked for: 1 at the target, of which smoothing shares some among all
    at_target = (targets[..., None] == np.arange(V)).astype(log_probs.dtype)
    expected = (1 - label_smoothing) * at_target + label_smoothing / V
    expected = np.where(counted[..., None], expected, 0)

    # 3. minus its mean log-probability; what is not asked for may have probability 0
    surprise = np.where(expected == 0, 0, -log_probs)
    losses = (expected * surprise).sum(axis=-1)

    # 4. reduce
    loss = reduce_losses(losses, counted, reduction)
    return log_probs, expected, losses, loss


def cross_entropy_steps_backward(
    d_loss: Array, log_probs: Array, expected: Array, counted: Array, reduction: str
) -> Array:
    """Pull the gradient of the loss back to the logits (..., V)."""
    # 4. loss = reduce_losses(losses)
    d_losses = reduce_losses_backward(d_loss, counted, reduction)

    # 3. to 1. what softmax said, less what was asked for; an ignored token has no gradient
    d_logits = d_losses[..., None] * (np.exp(log_probs) - expected)
    return np.where(counted[..., None], d_logits, 0)


def cross_entropy_steps_jvp(
    logits_dot: Array, log_probs: Array, expected: Array, counted: Array, reduction: str
) -> Array:
    """Push the tangent of the logits (..., V) forward to the loss."""
    # 1. to 3. what softmax said, less what was asked for; an ignored token stands still
    slopes = np.exp(log_probs) - expected
    losses_dot = only_visible(slopes * logits_dot, slopes != 0).sum(axis=-1)  # 0 * NaN is 0 here
    losses_dot = np.where(counted, losses_dot, 0)

    # 4. loss = reduce_losses(losses)
    return reduce_losses(losses_dot, counted, reduction)


def reduce_losses(losses: Array, counted: Array, reduction: str) -> Array:
    """Sum the losses of the tokens (...,), or take their mean."""
    if reduction == "none":
        return losses
    return np.asarray(losses.sum() * share_of_each(counted, reduction))


def reduce_losses_backward(d_loss: Array, counted: Array, reduction: str) -> Array:
    """Pull the gradient of the loss back to the losses of the tokens (...,)."""
    share = d_loss.dtype.type(share_of_each(counted, reduction))  # a float is float64 in NumPy 1
    return np.broadcast_to(d_loss * share, counted.shape)


def share_of_each(counted: Array, reduction: str) -> float:
    """Return how much a token's loss counts: the mean is over the tokens that are not ignored."""
    return 1 / max(int(counted.sum()), 1) if reduction == "mean" else 1.0


class CrossEntropyCache(NamedTuple):
    """What `cross_entropy_backward` needs, and the loss of each token."""

    log_probs: Array  # (..., V), in the dtype of the computation
    expected: Array  # (..., V)
    counted: Array  # (...,) bool: False where the target is ignored
    losses: Array  # (...,): 0 where ignored
    reduction: str
    dtype: np.dtype[Any]
    backend: str


class CrossEntropyGrads(NamedTuple):
    """The gradient of the one differentiable input."""

    d_logits: Array  # (..., V)


def cross_entropy_forward(
    logits: Array,
    targets: Array,
    *,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> tuple[Array, CrossEntropyCache]:
    """Return the cross-entropy of ``softmax(logits)`` with the targets.

    ``loss = mean over tokens of -log softmax(logits)[target]``.

    Parameters
    ----------
    logits : (..., V) float array
        Scores of the V entries of the vocabulary; (B, T, V) for tokens. PyTorch wants V second.
    targets : (...,) int array
        The right entry for each token, 0 to V - 1.
    ignore_index : int, optional
        A target that means no target, such as -100 or the id of padding. Such tokens have loss 0
        and gradient 0, and the mean does not count them.
    label_smoothing : float
        0 <= s <= 1: the share of the target's probability that all V entries share evenly.
    reduction : {"mean", "sum", "none"}
        "none" returns the loss of each token.

    Returns
    -------
    loss : array of rank 0, or (...,) with ``reduction="none"``
        In nats. If every token is ignored, the mean is 0.
    cache : CrossEntropyCache
        With ``cache.losses``, of each token.

    Notes
    -----
    Log and softmax are computed in one step: the log of a probability that has become 0 would be
    -inf. Source: Goodfellow et al. 2016, *Deep Learning*, section 6.2.2; smoothing: Szegedy et al.
    2016, section 7. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> logits = np.log([[0.25, 0.75], [0.5, 0.5]])
    >>> loss, cache = cross_entropy_forward(logits, np.array([1, 0]))
    >>> np.exp(-cache.losses), float(loss.round(4))
    (array([0.75, 0.5 ]), 0.4904)
    """
    return CROSS_ENTROPY.forward(
        logits=logits, targets=targets, ignore_index=ignore_index, label_smoothing=label_smoothing,
        reduction=reduction,
    )  # fmt: skip


def cross_entropy_backward(d_loss: Array, cache: CrossEntropyCache) -> CrossEntropyGrads:
    """Pull a gradient back to the logits: ``d_logits = (softmax(logits) - one_hot(target)) / n``.

    `d_loss` is like the loss: 1.0 to train on this loss only. n is the number of tokens that are
    not ignored. Each token's row of `d_logits` sums to 0.

    Examples
    --------
    >>> loss, cache = cross_entropy_forward(np.log([[0.25, 0.75]]), np.array([0]))
    >>> cross_entropy_backward(np.array(1.0), cache).d_logits
    array([[-0.75,  0.75]])
    """
    return CROSS_ENTROPY.backward(d_loss, cache)


def cross_entropy_jvp(logits_dot: Array, cache: CrossEntropyCache) -> Array:
    """Push a tangent to the loss: ``loss_dot = sum((softmax(logits) - one_hot) * logits_dot) / n``.

    Examples
    --------
    >>> loss, cache = cross_entropy_forward(np.log([[0.25, 0.75]]), np.array([0]))
    >>> cross_entropy_jvp(np.array([[1.0, 0.0]]), cache)
    array(-0.75)
    """
    return CROSS_ENTROPY.jvp(logits_dot, cache)


def _check(values: Values) -> None:
    """Add `counted`, whether each target counts, and put 0 where it does not."""
    logits, ignored = values["logits"], values["ignore_index"]
    if logits.ndim < 1 or logits.shape[-1] == 0:
        raise ShapeError(f"logits: expected (..., V) with V >= 1; got {logits.shape}")
    targets = as_integer_array(
        "targets", values["targets"], "an integer array, an id for each token"
    )
    if targets.shape != logits.shape[:-1]:
        raise ShapeError(
            f"targets: expected {logits.shape[:-1]}, as logits {logits.shape} without the last "
            f"axis; got {targets.shape}"
        )
    counted = np.ones(targets.shape, bool)
    if ignored is not None:
        counted = targets != check_integer("ignore_index", ignored)
    advice = "; where nothing is asked, " + (
        "pass ignore_index=" if ignored is None else f"write {ignored}, the ignore_index"
    )
    targets = check_ids("targets", np.where(counted, targets, 0), logits.shape[-1], advice)
    values |= {"targets": targets, "counted": counted}
    if not 0 <= values["label_smoothing"] <= 1:
        raise ConfigError(f"label_smoothing: expected 0 to 1; got {values['label_smoothing']}")


def _records(values: Values) -> Records:
    smoothing, counted, V = values["label_smoothing"], values["counted"], values["logits"].shape[-1]
    yield "logits", "... V", ""
    yield "targets", "..."
    at_target = "(targets[..., None] == np.arange(V))"
    expected = f"1.0 * {at_target}"
    if smoothing:
        yield "label_smoothing", ""
        expected = f"(1 - label_smoothing) * {at_target} + label_smoothing / {V}"
    if not counted.all():
        yield "counted", "..."
        expected = f"np.where(counted[..., None], {expected}, 0)"
    yield "expected", "... V", expected
    shifted = "(logits - logits.max(axis=-1, keepdims=True))"
    log_of_sum = f"np.log(np.exp({shifted}).sum(axis=-1, keepdims=True))"
    yield "log_probs", "... V", f"{shifted} - {log_of_sum}"
    yield "losses", "...", "-(expected * log_probs).sum(axis=-1)"
    if values["reduction"] != "none":
        constant("share", share_of_each(counted, values["reduction"]))
        yield "loss", "", "losses.sum() * share"


def _records_backward(values: Values) -> Records:
    of_each = "np.exp(log_probs) - expected"
    if values["reduction"] == "none":
        values["d_losses"] = values["d_loss"]
        yield "d_losses", "...", ""
        equation = f"d_losses[..., None] * ({of_each})"
    else:
        yield "d_loss", "", ""
        equation = f"d_loss * share * ({of_each})"
    if not values["counted"].all():
        yield "counted", "..."
        equation = f"np.where(counted[..., None], {equation}, 0)"
    yield "d_logits", "... V", equation


def _kernel(
    kernels: Any, logits: Array, targets: Array, counted: Array, smoothing: float, reduction: str
) -> Any:
    log_probs, expected, losses = kernels.cross_entropy(logits, targets, counted, smoothing)
    return log_probs, expected, losses, reduce_losses(losses, counted, reduction)


def _kernel_backward(
    kernels: Any, d_loss: Array, log_probs: Array, expected: Array, counted: Array, reduction: str
) -> Any:
    d_losses = reduce_losses_backward(d_loss, counted, reduction)
    return kernels.cross_entropy_backward(d_losses, log_probs, expected, counted)


def _like(cache: CrossEntropyCache) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape = cache.counted.shape if cache.reduction == "none" else ()
    return shape, cache.log_probs.dtype


CROSS_ENTROPY = Pair(
    cross_entropy_steps,
    cross_entropy_steps_backward,
    cross_entropy_steps_jvp,
    CrossEntropyCache,
    CrossEntropyGrads,
    inputs={"logits": ""},
    options={
        "label_smoothing": check_number,
        "reduction": partial(check_choice, choices=REDUCTIONS),
    },
    check=_check,
    computes="log_probs expected losses loss",
    like=_like,
    shapes=lambda cache: {"logits": cache.log_probs.shape},
    records=_records,
    records_backward=_records_backward,
    kernel=_kernel,
    kernel_backward=_kernel_backward,
)
