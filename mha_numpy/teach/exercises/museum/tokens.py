"""Museum: tokens that count too little. Each has one bug that really shipped."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import exhibit
from mha_numpy.teach.task import Hints


@exhibit(
    "museum-token-twice",
    title="Find the bug: the same token twice",
    difficulty=1,
    minutes=5,
    hints=Hints(
        where="Look at what NumPy does with an index that contains one id twice.",
        question="Type into Python: a = np.zeros(3); a[[1, 1]] += 5. How often was 5 added?",
        mistake="the last of equal tokens counts",
        fix="np.add.at(d_table, ids, d_out)",
    ),
)
def embedding_backward(d_out: Array, ids: Array, V: int) -> Array:
    """Repair an embedding's backward, which returns the gradient of its table.

    HIPS autograd, which differentiates NumPy programs, did this on the way back through an index
    until issue #39 (2015), and so did PyTorch in 2017 (#1528). A test whose indices all
    differ does not find the bug.
    """
    d_table = np.zeros((V, d_out.shape[-1]))
    d_table[ids] += d_out
    return d_table


@exhibit(
    "museum-mean-of-means",
    title="Find the bug: a mean of means",
    difficulty=2,
    minutes=10,
    hints=Hints(
        where="Compare how much a token counts in a long sequence and in a short one.",
        question="The losses are (1, 1, 1, 1) in one sequence and (5) in the other. What is the "
        "mean over the five tokens, and what is returned here?",
        mistake="mean of the sequences' means",
        fix="total += losses[counted[i]].sum()\nand at the end:\nreturn total / counted.sum()",
    ),
)
def cross_entropy(logits: Array, targets: Array, ignored: int) -> Array:
    """Repair cross-entropy, which goes through a batch one sequence at a time.

    If a batch is too large for the memory, its gradients are summed over several passes.
    transformers (issue #24725, fixed in 2024), torchtune (#1875) and many others took the mean of
    each pass, and then the mean of these means. The losses were slightly wrong, but only if
    sequences had different lengths, and it went unnoticed for years.
    """
    counted = targets != ignored
    total = 0.0
    for i in range(len(logits)):
        shifted = logits[i] - logits[i].max(axis=-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        token = np.arange(len(shifted))
        losses = -log_probs[token, np.where(counted[i], targets[i], 0)]
        total += losses[counted[i]].mean()
    return np.asarray(total / len(logits))
