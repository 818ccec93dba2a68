"""Cross-entropy from logits, and back."""

import numpy as np

from mha_numpy.layers import cross_entropy_forward
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Inputs, Law, Piece, Reaction, Slope, moved


def _draw_loss(rng: np.random.Generator) -> list[Inputs]:
    """Draw logits, at last large ones; ignored are the targets -100, -1, or an id of padding."""
    probes: list[Inputs] = []
    for (B, T, V), ignored in (((2, 3, 5), -100), ((3, 4, 4), 0), ((2, 3, 6), -1), ((2, 4, 3), 2)):
        counted = [target for target in range(V) if target != ignored]
        logits, targets = 2 * rng.normal(size=(B, T, V)), rng.choice(counted, (B, T))
        targets[0, 1:3] = targets[1, 0] = ignored
        probes.append({"logits": logits, "targets": targets, "ignored": ignored})
    large, apart = probes[2]["logits"], probes[3]["logits"]
    large += 1000
    large[0, 0, probes[2]["targets"][0, 0]] = 3.0  # its probability is too small for a float
    apart[1, 1] -= 2000
    return probes


def _draw_loss_backward(rng: np.random.Generator) -> list[Inputs]:
    """Draw the same, and the gradient of the loss."""
    upstream = (1.7, -0.6, 2.5, 0.8)
    return [{"d_loss": d, **i} for d, i in zip(upstream, _draw_loss(rng), strict=True)]


def _slope_of_loss(inputs: Inputs) -> Slope:
    """Differentiate the loss by the logits."""
    targets, ignored = inputs["targets"], inputs["ignored"]
    return Slope(
        lambda logits: cross_entropy_forward(logits, targets, ignore_index=ignored)[0],
        {"logits": inputs["logits"]},
        np.asarray(inputs["d_loss"]),
    )


PIECES = [
    Piece(
        "cross_entropy",
        _draw_loss,
        result="loss",
        laws=[Law("no loss is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
        reactions=[
            Reaction(
                "adding one number to all logits of a token changes nothing",
                moved("logits", np.s_[0, 0]),
                lambda _, arrays: arrays[""],
            ),
            Reaction(
                "the logits of an ignored token change nothing",
                moved("logits", np.s_[0, 1, 0]),
                lambda _, arrays: arrays[""],
            ),
        ],
    ),
    Piece(
        "cross_entropy_backward",
        _draw_loss_backward,
        result="d_logits",
        laws=[
            Law(
                "each token's d_logits sum to 0",
                lambda _, arrays: arrays[""].sum(axis=-1),
            ),
            Law(
                "ignored tokens have no gradient",
                lambda inputs, arrays: np.where(
                    (inputs["targets"] == inputs["ignored"])[..., None], arrays[""], 0
                ),
            ),
        ],
        slope=_slope_of_loss,
    ),
]

LARGEST = "logits.max(axis=-1, keepdims=True)"
LOG_PROBS = "log_probs = log_softmax(logits)"
SHARES = "counted / counted.sum()"
LOSS = "np.asarray((losses * share_of_each(targets, ignored)).sum())"
DIFFERENCE = "d_losses[..., None] * (probs - asked)"

# fmt: off
MISTAKES = [
    Mistake("largest logit not subtracted", "the largest logit is not subtracted: exp overflows",
            "logits - logits.max(-1, keepdims=True), before exp", {f"logits - {LARGEST}": "logits"}),
    Mistake("largest of all logits subtracted", "the largest of all logits is subtracted, so whole rows become 0",
            "the largest logit of each token: max(-1, keepdims=True)", {LARGEST: "logits.max()"}),
    Mistake("softmax of logits over the tokens", "softmax runs over the tokens instead of the vocabulary", "axis=-1",
            {LARGEST: "logits.max(axis=-2, keepdims=True)",
             "np.log(np.exp(below).sum(axis=-1,": "np.log(np.exp(below).sum(axis=-2,"}),
    Mistake("softmax taken twice", "softmax is applied to the output of softmax", "take the logits as they are",
            {"below = logits": "logits = softmax(logits, None)\n    below = logits"}),
    Mistake("the largest subtracted in the sum alone",
            "the largest logit is subtracted in the sum, but not from the logit of the target",
            "log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))",
            {"return below - np.log(": "return logits - np.log("}),
    Mistake("1e-9 in the log", "1e-9 is added to the probabilities, which hides losses above 20",
            "shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))",
            {LOG_PROBS: "log_probs = np.log(np.exp(log_softmax(logits)) + 1e-9)"}),
    Mistake("log of a probability that became 0", "the log is taken of softmax, where small probabilities have become 0",
            "shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))",
            {LOG_PROBS: "log_probs = np.log(np.exp(log_softmax(logits)))"}),
    Mistake("loss without log", "the loss is minus the mean probability: the log is left out",
            "-log softmax(logits)[target]", {LOG_PROBS: "log_probs = np.exp(log_softmax(logits))"}),
    Mistake("loss of logits", "the loss is minus the mean logit of the targets: softmax is left out",
            "-log softmax(logits)[target]", {LOG_PROBS: "log_probs = logits"}),
    Mistake("loss in bits", "the log is that of base 2", "np.log", {LOG_PROBS: "log_probs = log_softmax(logits) / np.log(2)"}),
    Mistake("sign of the loss", "the loss is the mean log-probability: the minus is left out", "-log softmax(logits)[target]",
            {"losses = -np.take": "losses = np.take"}),
    Mistake("perplexity", "the perplexity e^loss is returned instead of the loss", "leave np.exp out", {LOSS: f"np.exp({LOSS})"}),
    Mistake("loss summed", "the losses are summed", "the mean over the tokens that count: divide by their number",
            {SHARES: "counted * 1.0"}),
    Mistake("loss divided by all tokens", "the sum is divided by the number of all tokens, the ignored ones included",
            "divide by the number of tokens that count", {SHARES: "counted / counted.size"}),
    Mistake("ignored tokens count", "ignored tokens count like all others", "leave them out of the sum and of the number that divides it",
            {SHARES: "np.full(targets.shape, 1 / targets.size)"}),
    Mistake("-100 ignored, whatever is asked", "the target -100 is left out, not the one that is called ignored",
            "counted = targets != ignored",
            {"np.where(targets == ignored, 0, targets)": "np.where(targets == -100, 0, targets)",
             "counted = targets != ignored": "counted = targets != -100"}),
    Mistake("-100 ignored, -1 as an index",
            "the target -100 is left out, not the one that is called ignored: -1 is taken for the last entry of the vocabulary",
            "counted = targets != ignored",
            {"d_losses = d_loss * share_of_each(targets, ignored)": "d_losses = d_loss * share_of_each(targets, -100)",
             "asked = targets[": "asked = (targets % probs.shape[-1])["}),
    Mistake("ignored taken to be negative", "every target below 0 is left out, and no other, whatever is called ignored",
            "counted = targets != ignored",
            {"np.where(targets == ignored, 0, targets)": "np.where(targets < 0, 0, targets)",
             "counted = targets != ignored": "counted = targets >= 0"}),
    Mistake("mean of the sequences' means",
            "the mean is taken over each sequence and then over the sequences: tokens of short ones weigh more",
            "one sum over all tokens, divided by the number of all that count",
            {SHARES: "counted / counted.sum(axis=1, keepdims=True) / len(counted)"}),
    Mistake("loss: mean over the batch", "the sum is divided by the number of sequences", "divide by the number of tokens that count",
            {SHARES: "counted / len(counted)"}),
    Mistake("target not subtracted", "d_logits is softmax alone: nothing is subtracted at the target", "softmax(logits) - one_hot(targets)",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "probs")}),
    Mistake("sign of d_logits", "d_logits has the wrong sign", "softmax(logits) - one_hot(targets)",
            {DIFFERENCE: DIFFERENCE.replace("probs - asked", "asked - probs")}),
    Mistake("d_loss left out", "the upstream gradient d_loss is left out", "d_loss * (softmax(logits) - one_hot(targets)) / n",
            {"d_losses = d_loss * ": "d_losses = "}),
    Mistake("softmax skipped backward", "d_logits is the gradient of the probabilities: softmax is skipped on the way back",
            "softmax(logits) - one_hot(targets), which contains softmax's backward already",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "-1.0 * asked / probs")}),
    Mistake("through softmax twice", "softmax(logits) - one_hot(targets) goes back through softmax once more",
            "softmax(logits) - one_hot(targets), which contains softmax's backward already",
            {DIFFERENCE: DIFFERENCE.replace("(probs - asked)", "probs * (probs - asked - (probs * (probs - asked)).sum(axis=-1, keepdims=True))")}),
    Mistake("1 subtracted for the targets of all tokens", "1 is subtracted in the column of every target, in the rows of all tokens",
            "each token's own target: one_hot, or rows and targets as two indices",
            {"asked = targets[..., None] == np.arange(probs.shape[-1])":
             "asked = np.isin(np.arange(probs.shape[-1]), targets[targets != ignored])"}),
    Mistake("ignored tokens keep their softmax", "ignored tokens have a gradient, that of softmax, where 0 belongs",
            "0 for ignored tokens", {"d_losses = d_loss * share_of_each(targets, ignored)":
                                     "d_losses = d_loss / np.full(targets.shape, (targets != ignored).sum())"}),
]
# fmt: on
