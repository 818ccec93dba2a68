"""Cross-entropy from logits."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Reaction, Task, moved


def cross_entropy(logits: Array, targets: Array, ignored: int) -> Array:
    """Return the mean cross-entropy between softmax(logits) and the targets.

    ``loss = mean over tokens of -log softmax(logits)[target]``, with the natural logarithm. Tokens
    whose target is `ignored` count neither in the sum nor in the number that you divide it by.
    Logits may be in the thousands.

    Parameters
    ----------
    logits : (B, T, V)
    targets : (B, T) int
        The right entry of the vocabulary for each token, 0 to V - 1, or `ignored`.
    ignored : int
        For example -100 or -1, or the id of padding. At least one target differs from it.

    Returns
    -------
    loss : a number
    """
    log_probs = log_softmax(logits)
    entries = np.where(targets == ignored, 0, targets)
    losses = -np.take_along_axis(log_probs, entries[..., None], axis=-1)[..., 0]
    return np.asarray((losses * share_of_each(targets, ignored)).sum())


def log_softmax(logits: Array) -> Array:
    """Return the log of softmax along the last axis."""
    below = logits - logits.max(axis=-1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=-1, keepdims=True))


def share_of_each(targets: Array, ignored: int) -> Array:
    """Return the share of each token (B, T) in the mean: 0 where its target is ignored."""
    counted = targets != ignored
    return counted / counted.sum()


def draw_loss(rng: np.random.Generator) -> list[Inputs]:
    """Draw logits, the last ones large; the ignored target is -100, -1, or an id of padding."""
    probes: list[Inputs] = []
    for (B, T, V), ignored in (
        ((2, 3, 5), -100),
        ((3, 4, 4), 0),
        ((2, 3, 6), -1),
        ((2, 4, 3), 2),
        ((4, 2, 3), 1),
    ):
        counted = [target for target in range(V) if target != ignored]
        logits, targets = 2 * rng.normal(size=(B, T, V)), rng.choice(counted, (B, T))
        targets[0, 1:3] = targets[1, 0] = ignored
        probes.append({"logits": logits, "targets": targets, "ignored": ignored})
    large, apart = probes[2]["logits"], probes[3]["logits"]
    large += 1000
    large[0, 0, probes[2]["targets"][0, 0]] = 3.0  # its probability is too small for a float
    apart[1, 1] -= 2000
    targets = rng.integers(0, 4, (1, 5))  # none of them is ignored
    return [*probes, {"logits": rng.normal(size=(1, 5, 4)), "targets": targets, "ignored": -100}]


LARGEST = "logits.max(axis=-1, keepdims=True)"

LOG_PROBS = "log_probs = log_softmax(logits)"

SHARES = "counted / counted.sum()"

LOSS = "np.asarray((losses * share_of_each(targets, ignored)).sum())"

MISTAKES = [
    Mistake("largest logit not subtracted", "the largest logit is not subtracted, so exp overflows",
            "logits - logits.max(-1, keepdims=True), before exp", {f"logits - {LARGEST}": "logits"}),
    Mistake("largest of all logits subtracted", "the largest of all logits is subtracted, so whole rows become 0",
            "the largest logit of each token: max(-1, keepdims=True)", {LARGEST: "logits.max()"}),
    Mistake("softmax of logits over the tokens", "softmax runs over the tokens instead of the vocabulary", "axis=-1",
            {LARGEST: "logits.max(axis=-2, keepdims=True)",
             "np.log(np.exp(below).sum(axis=-1,": "np.log(np.exp(below).sum(axis=-2,"}),
    Mistake("softmax taken twice", "softmax is applied to the output of softmax", "take the logits as they are",
            {"below = logits": "logits = softmax(logits, None)\n    below = logits"}),
    Mistake("largest logit subtracted only in the sum",
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
    Mistake("loss in bits", "the log has base 2", "np.log", {LOG_PROBS: "log_probs = log_softmax(logits) / np.log(2)"}),
    Mistake("sign of the loss", "the loss is the mean log-probability: the minus is left out", "-log softmax(logits)[target]",
            {"losses = -np.take": "losses = np.take"}),
    Mistake("perplexity", "the perplexity e^loss is returned instead of the loss", "leave np.exp out", {LOSS: f"np.exp({LOSS})"}),
    Mistake("loss summed", "the losses are summed instead of averaged", "the mean over the tokens that count: divide by their number",
            {SHARES: "counted * 1.0"}),
    Mistake("loss divided by all tokens", "the sum is divided by the number of all tokens, including the ignored ones",
            "divide by the number of tokens that count", {SHARES: "counted / counted.size"}),
    Mistake("ignored tokens count", "ignored tokens count like all others", "leave them out of the sum and of the number that you divide it by",
            {SHARES: "np.full(targets.shape, 1 / targets.size)"}),
    Mistake("always -100 ignored", "tokens with the target -100 are left out, not those with the target `ignored`",
            "counted = targets != ignored",
            {"np.where(targets == ignored, 0, targets)": "np.where(targets == -100, 0, targets)",
             "counted = targets != ignored": "counted = targets != -100"}),
    Mistake("anything negative ignored", "tokens are left out if their target is below 0, whatever `ignored` is",
            "counted = targets != ignored",
            {"np.where(targets == ignored, 0, targets)": "np.where(targets < 0, 0, targets)",
             "counted = targets != ignored": "counted = targets >= 0"}),
    Mistake("mean of the sequences' means",
            "the mean is taken over each sequence and then over the sequences, so tokens of short ones weigh more",
            "one sum over all tokens, divided by the number of tokens that count",
            {SHARES: "counted / counted.sum(axis=1, keepdims=True) / len(counted)"}),
    Mistake("loss: mean over the batch", "the sum is divided by the number of sequences", "divide by the number of tokens that count",
            {SHARES: "counted / len(counted)"}),
    Mistake("log of the mean probability", "the loss is minus the log of the mean probability",
            "the mean of -log, not -log of the mean",
            {"(losses * share_of_each(targets, ignored)).sum()": "-np.log((np.exp(-losses) * share_of_each(targets, ignored)).sum())"}),
    Mistake("target 0 ignored too", "tokens with the target 0 are left out, although 0 is an entry like any other",
            "targets != ignored",
            {"counted = targets != ignored": "counted = (targets != ignored) & (targets > 0)"}),
]  # fmt: skip

TASK = Task(
    cross_entropy,
    place=410,
    difficulty=3,
    minutes=20,
    needs=("softmax",),
    hints=Hints(
        where="Compute log and softmax in one step: write log(exp(a) / sum of exp(b)) as a "
        "difference. Then ask over which tokens the mean runs. Notebook 07 is about large scores.",
        question="The logits are (1000, 3), and the target is the second entry. What is the loss? "
        "What is softmax here, and what is its log?",
        mistake="log of a probability that became 0",
        fix="shifted = logits - logits.max(axis=-1, keepdims=True); log_probs = shifted - np.log("
        "np.exp(shifted).sum(axis=-1, keepdims=True)); counted = targets != ignored; "
        "-log_probs[counted, targets[counted]].mean()",
    ),
    draw=draw_loss,
    laws=[Law("no loss is negative", lambda _, arrays: np.minimum(arrays[""], 0))],
    reactions=[
        Reaction(
            "adding one number to all logits of a token changes nothing",
            moved("logits", np.s_[0, 0]),
        ),
        Reaction(
            "changing the logits of an ignored token changes nothing",
            moved("logits", np.s_[0, 1, 0]),
        ),
    ],
    mistakes=MISTAKES,
)
