"""Back through cross-entropy."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.layers import cross_entropy_forward
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Slope, Task
from mha_numpy.teach.tasks.cross_entropy import draw_loss, log_softmax, share_of_each


def cross_entropy_backward(d_loss: float, logits: Array, targets: Array, ignored: int) -> Array:
    """Return the gradient of the logits.

    Forward was ``loss = mean over tokens of -log softmax(logits)[target]``. Tokens whose target is
    `ignored` counted neither in the sum nor in the number that it was divided by. Logits may be in
    the thousands.

    Parameters
    ----------
    d_loss : float
        The gradient of the loss.
    logits : (B, T, V)
    targets : (B, T) int
        The right entry of the vocabulary for each token, 0 to V - 1, or `ignored`.
    ignored : int
        For example -100 or -1, or the id of padding. At least one target differs from it.

    Returns
    -------
    d_logits : (B, T, V)
    """
    probs = np.exp(log_softmax(logits))
    asked = targets[..., None] == np.arange(probs.shape[-1])
    d_losses = d_loss * share_of_each(targets, ignored)
    return d_losses[..., None] * (probs - asked)


def _draw_loss_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw the same, and the gradient of the loss."""
    upstream = (1.7, -0.6, 2.5, 0.8, -1.4, 0.3)
    return [{"d_loss": d, **i} for d, i in zip(upstream, draw_loss(rng), strict=True)]


DIFFERENCE = "d_losses[..., None] * (probs - asked)"

MISTAKES = [
    Mistake("-100 ignored, -1 as an index",
            "tokens with the target -100 are left out, not those with the target `ignored`, and -1 is taken for the last entry of the vocabulary",
            "counted = targets != ignored",
            {"d_losses = d_loss * share_of_each(targets, ignored)": "d_losses = d_loss * share_of_each(targets, -100)",
             "asked = targets[": "asked = (targets % probs.shape[-1])["}),
    Mistake("target not subtracted", "d_logits is softmax itself: nothing is subtracted at the target", "softmax(logits) - one_hot(targets)",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "probs")}),
    Mistake("sign of d_logits", "d_logits has the wrong sign", "softmax(logits) - one_hot(targets)",
            {DIFFERENCE: DIFFERENCE.replace("probs - asked", "asked - probs")}),
    Mistake("d_loss left out", "the upstream gradient d_loss is left out", "d_loss * (softmax(logits) - one_hot(targets)) / n",
            {"d_losses = d_loss * ": "d_losses = "}),
    Mistake("softmax skipped backward", "d_logits is the gradient of the probabilities: softmax is skipped on the way back",
            "softmax(logits) - one_hot(targets), which already contains softmax's backward",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "-1.0 * asked / probs")}),
    Mistake("through softmax twice", "softmax(logits) - one_hot(targets) goes back through softmax once more",
            "softmax(logits) - one_hot(targets), which already contains softmax's backward",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "probs * (probs - asked - (probs * (probs - asked)).sum(axis=-1, keepdims=True))")}),
    Mistake("1 subtracted for the targets of all tokens", "every token has 1 subtracted in the columns of all targets",
            "each token's own target: one_hot, or rows and targets as two indices",
            {"asked = targets[..., None] == np.arange(probs.shape[-1])":
             "asked = np.isin(np.arange(probs.shape[-1]), targets[targets != ignored])"}),
    Mistake("ignored tokens keep their softmax", "ignored tokens get a gradient, that of softmax, instead of 0",
            "0 for ignored tokens", {"d_losses = d_loss * share_of_each(targets, ignored)":
                                     "d_losses = d_loss / np.full(targets.shape, (targets != ignored).sum())"}),
]  # fmt: skip

TASK = Task(
    cross_entropy_backward,
    place=420,
    difficulty=3,
    minutes=20,
    needs=("cross-entropy",),
    hints=Hints(
        where="Write the loss of one token as log(sum of exp(logits)) - logits[target], and "
        "differentiate both terms.",
        question="A token's softmax is (0.7, 0.2, 0.1), and its target is the second entry. Which "
        "logits should rise, which should fall, and what is the sum over all three?",
        mistake="ignored tokens keep their softmax",
        fix="counted = targets != ignored; one_hot = targets[..., None] == np.arange(V); d_loss * "
        "counted[..., None] * (softmax(logits) - one_hot) / counted.sum()",
    ),
    draw=_draw_loss_backward,
    laws=[
        Law("each token's d_logits sum to 0", lambda _, arrays: arrays[""].sum(axis=-1)),
        Law(
            "ignored tokens have no gradient",
            lambda inputs, arrays: np.where(
                (inputs["targets"] == inputs["ignored"])[..., None], arrays[""], 0
            ),
        ),
    ],
    slope=lambda inputs: Slope(
        lambda logits: cross_entropy_forward(
            logits, inputs["targets"], ignore_index=inputs["ignored"]
        )[0],
        {"logits": inputs["logits"]},
        np.asarray(inputs["d_loss"]),
    ),
    mistakes=MISTAKES,
)
