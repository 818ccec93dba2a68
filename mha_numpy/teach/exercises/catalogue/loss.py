"""The loss of a language model, and where all gradients begin."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "cross-entropy",
    title="Cross-entropy from logits",
    difficulty=3,
    minutes=20,
    needs=("softmax",),
    hints=Hints(
        where="Compute log and softmax in one step: write log(exp(a) / sum of exp(b)) as a "
        "difference. Then ask over which tokens the mean runs. Notebook 07 treats large scores.",
        question="The logits are (1000, 3), and the target is the second. What is the loss? What "
        "is softmax here, and what is its log?",
        mistake="log of a probability that became 0",
        fix="shifted = logits - logits.max(axis=-1, keepdims=True); log_probs = shifted - np.log("
        "np.exp(shifted).sum(axis=-1, keepdims=True)); counted = targets != ignored; "
        "-log_probs[counted, targets[counted]].mean()",
    ),
)
def cross_entropy(logits: Array, targets: Array, ignored: int) -> Array:
    """Return the mean cross-entropy of softmax(logits) with the targets.

    ``loss = mean over tokens of -log softmax(logits)[target]``, with the natural logarithm. Tokens
    whose target is `ignored` count neither in the sum nor in the number that divides it. Logits may
    be in the thousands.

    Parameters
    ----------
    logits : (B, T, V)
    targets : (B, T) int
        For each token the entry of the vocabulary that is right, 0 to V - 1, or `ignored`.
    ignored : int
        For example -100 or -1, or the id of padding. At least one target differs from it.

    Returns
    -------
    loss : a number
    """
    raise NotImplementedError


@exercise(
    "cross-entropy-backward",
    title="Back through cross-entropy",
    difficulty=3,
    minutes=20,
    needs=("cross-entropy",),
    hints=Hints(
        where="Write the loss of one token as log(sum of exp(logits)) - logits[target], and "
        "differentiate both terms.",
        question="Softmax of a token is (0.7, 0.2, 0.1), and its target the second entry. Which "
        "logits should rise, which fall, and what is the sum over all three?",
        mistake="ignored tokens keep their softmax",
        fix="counted = targets != ignored; one_hot = targets[..., None] == np.arange(V); d_loss * "
        "counted[..., None] * (softmax(logits) - one_hot) / counted.sum()",
    ),
)
def cross_entropy_backward(d_loss: float, logits: Array, targets: Array, ignored: int) -> Array:
    """Return the gradient of the logits.

    Forward was ``loss = mean over tokens of -log softmax(logits)[target]``. Tokens whose target is
    `ignored` counted neither in the sum nor in the number that divides it. Logits may be in the
    thousands.

    Parameters
    ----------
    d_loss : float
        The gradient of the loss.
    logits : (B, T, V)
    targets : (B, T) int
        For each token the entry of the vocabulary that is right, 0 to V - 1, or `ignored`.
    ignored : int
        For example -100 or -1, or the id of padding. At least one target differs from it.

    Returns
    -------
    d_logits : (B, T, V)
    """
    raise NotImplementedError
