"""Attention that never stores a row of weights."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.probes import large_scores, normal
from mha_numpy.teach.task import Again, Hints, Inputs, Mistake, Task
from mha_numpy.teach.tasks.attention import MEANS
from mha_numpy.teach.tasks.scores import scores


def online_attention(q: Array, k: Array, v: Array, block: int) -> Array:
    """Compute attention from `block` keys at a time, without ever storing all scores of a query.

    The result is ``softmax(q k^T / sqrt(d_k)) v`` for one head, as if computed at once; no key is
    hidden. Go through the keys once, and never store the scores of more than `block` of them. If
    `block` does not divide T_k, the last block is shorter; if T_k is not larger than `block`, there
    is only one. Large scores must not overflow, whichever block they are in.

    Parameters
    ----------
    q : (T_q, d_k)
    k : (T_k, d_k)
    v : (T_k, d_v)
    block : int
        1 or more.

    Returns
    -------
    heads : (T_q, d_v)
    """
    T_q, T_k = len(q), len(k)
    largest = np.full((T_q, 1), -np.inf)
    total = np.zeros((T_q, 1))
    mixture = np.zeros((T_q, v.shape[-1]))
    for start in range(0, T_k, block):
        keys = slice(start, start + block)
        of_block = scores(q, k[keys])
        before, largest = largest, np.maximum(largest, of_block.max(axis=-1, keepdims=True))
        shrink = np.exp(before - largest)
        powers = np.exp(of_block - largest)
        total = shrink * total + powers.sum(axis=-1, keepdims=True)
        mixture = shrink * mixture + powers @ v[keys]
    return mixture / total


def _draw_blocks(rng: np.random.Generator) -> list[Inputs]:
    """Draw last blocks of one key, of all, of several; a single block, blocks of 1, large scores."""
    probes = []
    for T_q, T_k, d_k, d_v, block in ((5, 7, 4, 3, 3), (5, 10, 5, 5, 5), (3, 4, 5, 2, 6)):
        arrays = normal(rng, q=(T_q, d_k), k=(T_k, d_k), v=(T_k, d_v))
        probes.append(arrays | {"block": block})
    q, k = large_scores(rng, (5, 4), (7, 4))
    probes.append({"q": q, "k": k, "v": rng.normal(size=(7, 3)), "block": 2})
    for T_q, T_k, d_k, d_v, block in ((2, 11, 3, 4, 4), (1, 3, 2, 1, 1)):
        arrays = normal(rng, q=(T_q, d_k), k=(T_k, d_k), v=(T_k, d_v))
        probes.append(arrays | {"block": block})
    return probes


MISTAKES: list[Mistake | Again] = [
    Mistake("old sum not rescaled", "the running sum is not rescaled when the maximum rises",
            "total * np.exp(before - largest)", {"shrink * total": "total"}),
    Mistake("old mixture not rescaled", "the running mixture is not rescaled when the maximum rises",
            "mixture * np.exp(before - largest)", {"shrink * mixture": "mixture"}),
    Mistake("rescaled the wrong way", "sum and mixture are multiplied by e^(new - old maximum), not by e^(old - new)",
            "np.exp(before - largest)",
            {"np.exp(before - largest)": "np.exp(largest - before if start else before - largest)"}),
    Mistake("each block by its own maximum",
            "a block's powers use its own maximum, while the sum refers to the running maximum",
            "np.exp(scores - largest), largest = np.maximum(before, of_block)",
            {"np.exp(of_block - largest)": "np.exp(of_block - of_block.max(axis=-1, keepdims=True))"}),
    Mistake("maximum of the block only",
            "the maximum is that of the block only, so e^(old - new) overflows where a block lies far below",
            "np.maximum(before, of_block)",
            {"np.maximum(largest, of_block.max(axis=-1, keepdims=True))": "of_block.max(axis=-1, keepdims=True)"}),
    Mistake("maximum starts at 0", "the running maximum starts at 0, so in rows of very low scores all powers are 0",
            "start with -np.inf", {"np.full((T_q, 1), -np.inf)": "np.zeros((T_q, 1))"}),
    Mistake("sum starts at 1", "the running sum starts at 1, as if there were one more key with score 0",
            "total = 0, largest = -np.inf",
            {"np.full((T_q, 1), -np.inf)": "np.zeros((T_q, 1))", "total = np.zeros": "total = np.ones"}),
    Mistake("last short block dropped", "the keys after the last whole block are dropped", "range(0, T_k, block)",
            {"range(0, T_k, block)": "range(0, T_k - T_k % block, block)"}),
    Mistake("normalised in each block", "each block is normalised separately, and the blocks are added",
            "normalise once, at the end",
            {"np.exp(of_block - largest)": "softmax(of_block, None)", "np.exp(before - largest)": "1.0",
             "return mixture / total": "return mixture"}),
    Mistake("blocks averaged", "each block is normalised separately, and the blocks are averaged",
            "normalise once, at the end",
            {"np.exp(of_block - largest)": "softmax(of_block, None)", "np.exp(before - largest)": "1.0"}),
    Mistake("not normalised at the end", "the mixture is not divided by the sum", "mixture / total",
            {"return mixture / total": "return mixture"}),
    Again("scale 1/sqrt(T_k)", {"scores(q, k[keys])": "scores(q, k[keys]) * np.sqrt(len(k[keys]) / T_k)"}),
    Again("k and v swapped", {"T_q, T_k = len(q), len(k)": "k, v = v, k\n    T_q, T_k = len(q), len(k)"}),
    Again("no maximum subtracted", {"before, largest = largest, np.maximum(largest, of_block.max(axis=-1, keepdims=True))": "before = largest = np.zeros((T_q, 1))"}),
]  # fmt: skip

TASK = Task(
    online_attention,
    place=250,
    difficulty=4,
    minutes=40,
    needs=("attention", "softmax-with-lse"),
    hints=Hints(
        where="Ask what you must keep of a block of keys for each query: docs/kernels.md, the "
        'table by hand. Notebook 26, "Online softmax".',
        question="Take one query with the scores 0, 1, 5, and blocks of two keys. After the first "
        "block you have a sum of exp(s - 1). The second block brings a maximum of 5: what factor "
        "turns your sum into one of exp(s - 5)? What else do you have to multiply by it?",
        mistake="old mixture not rescaled",
        fix="factor = np.exp(largest_before - largest); total = total * factor + "
        "powers.sum(axis=-1, keepdims=True); head = head * factor + powers @ v_block\n"
        "the first largest_before is -inf; at the end:\n"
        "head / total",
    ),
    draw=_draw_blocks,
    laws=[MEANS],
    mistakes=MISTAKES,
)
