"""Cross-entropy of softmax, from logits; forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from mha_numpy.backends import ONE_PASS_KERNELS, chosen_backend, find_kernels
from mha_numpy.checks import check_choice, check_ids, check_integer, check_number, check_type
from mha_numpy.dtypes import Array, as_integer_array
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.layers.arrays import as_computed, as_gradient, axes_of
from mha_numpy.steps import constant, is_watched, step

REDUCTIONS = ("mean", "sum", "none")


class CrossEntropySteps(NamedTuple):
    """What forward's steps compute."""

    log_probs: Array  # (..., V)
    expected: Array  # (..., V): the distribution that is asked for; 0 where ignored
    losses: Array  # (...,): of each token


def cross_entropy_steps(
    logits: Array, targets: Array, counted: Array, label_smoothing: float
) -> CrossEntropySteps:
    """Compute the loss of each token from its logits (..., V)."""
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
    return CrossEntropySteps(log_probs, expected, losses)


def reduce_losses(losses: Array, counted: Array, reduction: str) -> Array:
    """Sum the losses of the tokens (...,), or take their mean: step 4."""
    # 4. reduce
    if reduction == "none":
        return losses
    return losses.sum() * share_of_each(counted, reduction)


def share_of_each(counted: Array, reduction: str) -> float:
    """Return how much a token's loss counts: the mean is over the tokens that are not ignored."""
    return 1 / max(int(counted.sum()), 1) if reduction == "mean" else 1.0


def reduce_losses_backward(d_loss: Array, counted: Array, reduction: str) -> Array:
    """Pull the gradient of the loss back to the losses of the tokens (...,)."""
    # 4. loss = mean of losses, or their sum
    share = d_loss.dtype.type(share_of_each(counted, reduction))  # a float is float64 in NumPy 1
    return np.broadcast_to(d_loss * share, counted.shape)


def cross_entropy_steps_backward(
    d_loss: Array, log_probs: Array, expected: Array, counted: Array, reduction: str
) -> Array:
    """Pull the gradient of the loss back to the logits (..., V)."""
    # 4. loss = reduce_losses(losses)
    d_losses = reduce_losses_backward(d_loss, counted, reduction)

    # 3. to 1. what softmax said, less what was asked for; an ignored token has no gradient
    d_logits = d_losses[..., None] * (np.exp(log_probs) - expected)
    return np.where(counted[..., None], d_logits, 0)


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
        The entry that is right for each token, 0 to V - 1.
    ignore_index : int, optional
        A target that stands for none, such as -100 or the id of padding: such tokens have loss 0
        and gradient 0, and the mean does not count them.
    label_smoothing : float
        0 <= s <= 1: the share of the target's probability that all V entries share evenly.
    reduction : {"mean", "sum", "none"}
        "none" returns the loss of each token.

    Returns
    -------
    loss : array of rank 0, or (...,) with ``reduction="none"``
        In nats. Where every token is ignored, the mean is 0.
    cache : CrossEntropyCache
        With ``cache.losses``, of each token.

    Raises
    ------
    DTypeError, ShapeError, ConfigError, BackendError
        `logits` is not a float array, `targets` are not integers of its shape without the last
        axis, one of them is not in the vocabulary, or an option has an impossible value.

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
    dtype, (logits,) = as_computed(logits=logits)
    if logits.ndim < 1 or logits.shape[-1] == 0:
        raise ShapeError(f"logits: expected (..., V) with V >= 1; got {logits.shape}")
    targets, counted = _check_targets(targets, logits.shape, ignore_index)
    label_smoothing = check_number("label_smoothing", label_smoothing)
    if not 0 <= label_smoothing <= 1:
        raise ConfigError(f"label_smoothing: expected 0 to 1; got {label_smoothing}")
    check_choice("reduction", reduction, REDUCTIONS)

    kernels = find_kernels(ONE_PASS_KERNELS, logits)
    if kernels is None:
        steps = cross_entropy_steps(logits, targets, counted, label_smoothing)
    else:
        steps = CrossEntropySteps._make(
            kernels.cross_entropy(logits, targets, counted, label_smoothing)
        )
    loss = reduce_losses(steps.losses, counted, reduction)
    if is_watched():
        _record(logits, targets, counted, label_smoothing, steps)
        if reduction != "none":
            constant("share", share_of_each(counted, reduction))
            step("loss", np.asarray(loss), "", "losses.sum() * share")
    log_probs, expected, losses = steps
    cache = CrossEntropyCache(
        log_probs, expected, counted, losses, reduction, dtype, chosen_backend()
    )
    return np.asarray(loss, dtype), cache


def cross_entropy_backward(d_loss: Array, cache: CrossEntropyCache) -> CrossEntropyGrads:
    """Pull a gradient back to the logits: ``d_logits = (softmax(logits) - one_hot(target)) / n``.

    Parameters
    ----------
    d_loss : float array like the loss
        1.0 to train on this loss alone.
    cache : CrossEntropyCache

    Returns
    -------
    CrossEntropyGrads
        ``d_logits``. Each token's row sums to 0.

    Raises
    ------
    DTypeError, ShapeError, ConfigError
        `d_loss` is not a float or not of the shape of the loss; `cache` is not forward's.

    Notes
    -----
    n is the number of tokens that are not ignored. Derivation: ``docs/blocks.md``.

    Examples
    --------
    >>> loss, cache = cross_entropy_forward(np.log([[0.25, 0.75]]), np.array([0]))
    >>> cross_entropy_backward(np.array(1.0), cache).d_logits
    array([[-0.75,  0.75]])
    """
    check_type("cache", cache, CrossEntropyCache, "cross_entropy_forward")
    log_probs, expected, counted, _, reduction, dtype, backend = cache
    shape = counted.shape if reduction == "none" else ()
    d_loss = as_gradient(d_loss, shape, log_probs.dtype, name="d_loss")
    kernels = find_kernels(ONE_PASS_KERNELS, d_loss, log_probs, backend=backend)
    if kernels is None:
        d_logits = cross_entropy_steps_backward(d_loss, log_probs, expected, counted, reduction)
    else:
        d_losses = reduce_losses_backward(d_loss, counted, reduction)
        d_logits = kernels.cross_entropy_backward(d_losses, log_probs, expected, counted)
    if is_watched():
        _record_backward(d_loss, d_logits, counted, reduction)
    return CrossEntropyGrads(d_logits.astype(dtype, copy=False))


def _check_targets(
    targets: Any, logits_shape: tuple[int, ...], ignore_index: int | None
) -> tuple[Array, Array]:
    """Return the targets, 0 where they are ignored, and whether each counts."""
    targets = as_integer_array("targets", targets, "an integer array, an id for each token")
    *tokens, V = logits_shape
    if targets.shape != tuple(tokens):
        raise ShapeError(
            f"targets: expected {tuple(tokens)}, as logits {logits_shape} without the last axis; "
            f"got {targets.shape}"
        )
    counted = np.ones(targets.shape, bool)
    if ignore_index is not None:
        counted = targets != check_integer("ignore_index", ignore_index)
    advice = "; where nothing is asked, " + (
        "pass ignore_index=" if ignore_index is None else f"write {ignore_index}, the ignore_index"
    )
    return check_ids("targets", np.where(counted, targets, 0), V, advice), counted


def _record(
    logits: Array, targets: Array, counted: Array, label_smoothing: float, steps: CrossEntropySteps
) -> None:
    """Record the steps of each token's loss."""
    axes, tokens = axes_of(logits, "V"), axes_of(logits, "")
    step("logits", logits, axes)
    constant("targets", targets, tokens)
    at_target = "(targets[..., None] == np.arange(V))"
    expected = f"1.0 * {at_target}"
    if label_smoothing:
        constant("label_smoothing", label_smoothing)
        expected = f"(1 - label_smoothing) * {at_target} + label_smoothing / {logits.shape[-1]}"
    if not counted.all():
        constant("counted", counted, tokens)
        expected = f"np.where(counted[..., None], {expected}, 0)"
    step("expected", steps.expected, axes, expected)
    shifted = "(logits - logits.max(axis=-1, keepdims=True))"
    log_of_sum = f"np.log(np.exp({shifted}).sum(axis=-1, keepdims=True))"
    step("log_probs", steps.log_probs, axes, f"{shifted} - {log_of_sum}")
    step("losses", steps.losses, tokens, "-(expected * log_probs).sum(axis=-1)")


def _record_backward(d_loss: Array, d_logits: Array, counted: Array, reduction: str) -> None:
    """Record backward's steps."""
    tokens, of_each = axes_of(d_logits, ""), "np.exp(log_probs) - expected"
    if reduction == "none":
        step("d_losses", d_loss, tokens)
        equation = f"d_losses[..., None] * ({of_each})"
    else:
        step("d_loss", d_loss, "")
        equation = f"d_loss * share * ({of_each})"
    if not counted.all():
        constant("counted", counted, tokens)
        equation = f"np.where(counted[..., None], {equation}, 0)"
    step("d_logits", d_logits, axes_of(d_logits, "V"), equation)
