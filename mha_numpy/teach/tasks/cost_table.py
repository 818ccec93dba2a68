"""What a layer costs, before it runs."""

import numpy as np

from mha_numpy.teach.task import Hints, Inputs, Mistake, Task


def cost_table(
    B: int, T: int, D: int, H: int, H_kv: int, d: int, itemsize: int
) -> dict[str, np.int64]:
    """Count what one layer of self-attention costs in a forward pass.

    A multiplication and the addition that follows it are two floating-point operations. Hidden
    cells count like all others; biases and softmax do not count.

    Parameters
    ----------
    B, T : int
        Sequences, and tokens in each.
    D : int
        Width of a token; H*d need not be D.
    H, H_kv, d : int
        Query heads, key and value heads, and the width of a head.
    itemsize : int
        Bytes per number.

    Returns
    -------
    table : dict of int
        ``attention_params``: the numbers in w_q (D, H*d), w_k and w_v (D, H_kv*d), w_o (H*d, D).
        ``projection_flops``: operations of the products with these four, for all tokens.
        ``score_flops``: operations of ``q k^T`` and of ``weights v`` together, for the batch.
        ``weights_bytes``: bytes of the attention weights of all sequences and heads.
        ``kv_cache_bytes``: bytes of the keys and values of all tokens.
    """
    params = count_params(D, H, H_kv, d)
    counts = {
        "attention_params": params,
        "projection_flops": projection_flops(B, T, params),
        "score_flops": score_flops(B, T, H, d),
        "weights_bytes": weights_bytes(B, T, H, itemsize),
        "kv_cache_bytes": kv_cache_bytes(B, T, H_kv, d, itemsize),
    }
    return {name: np.int64(count) for name, count in counts.items()}


def count_params(D: int, H: int, H_kv: int, d: int) -> int:
    """Count the numbers in w_q, w_k and w_v, and w_o."""
    return D * H * d + 2 * D * H_kv * d + H * d * D


def projection_flops(B: int, T: int, params: int) -> int:
    """Count a multiplication and an addition for each param and token."""
    tokens = B * T
    return 2 * tokens * params


def score_flops(B: int, T: int, H: int, d: int) -> int:
    """Count the operations of q k^T and of weights v."""
    cells = H * T * T
    products = 2
    return 2 * products * B * cells * d


def weights_bytes(B: int, T: int, H: int, itemsize: int) -> int:
    """Count the bytes of all weights."""
    numbers = B * H * (T * T)
    return numbers * itemsize


def kv_cache_bytes(B: int, T: int, H_kv: int, d: int, itemsize: int) -> int:
    """Count the bytes of the keys and values of all tokens."""
    numbers = 2 * B * H_kv * T * d
    return itemsize * numbers


def _draw_costs(_: np.random.Generator) -> list[Inputs]:
    """Return sizes with H*d other than D, and with H*d = D."""
    names = ("B", "T", "D", "H", "H_kv", "d", "itemsize")
    sizes = ((5, 7, 20, 9, 3, 6, 4), (2, 10, 32, 8, 4, 4, 2), (1, 3, 12, 5, 1, 7, 8))
    return [dict(zip(names, size, strict=True)) for size in sizes]


COUNTED = ["projection_flops", "score_flops", "weights_bytes", "kv_cache_bytes"]

MISTAKES = [
    Mistake("always 4 D^2", "attention_params is 4 D^2, which holds only where H d = D and H_kv = H",
            "2 D H d + 2 D H_kv d", {"D * H * d + 2 * D * H_kv * d + H * d * D": "4 * D * D"}),
    Mistake("H for H_kv in the params", "w_k and w_v are counted with H heads, not H_kv", "2 D H d + 2 D H_kv d",
            {"2 * D * H_kv * d": "2 * D * H * d"}),
    Mistake("w_o not counted", "w_o is not counted", "2 D H d + 2 D H_kv d", {" + H * d * D": ""}),
    Mistake("biases counted", "the biases are counted too", "2 D H d + 2 D H_kv d",
            {"return D * H * d": "return H * d + 2 * H_kv * d + D + D * H * d"}),
    Mistake("a multiply-add counted once", "a multiplication and its addition are counted as one operation",
            "2 for each multiply-add", {"2 * tokens": "tokens", "2 * products": "products"}),
    Mistake("B left out", "the batch size is left out of everything",
            "projections, scores, weights and KV cache grow with B",
            {f'"{name}": {name}(B': f'"{name}": {name}(1' for name in COUNTED}),
    *(Mistake(f"B left out of {name}", f"the batch size is left out of {name}", "it grows with B",
              {f'"{name}": {name}(B': f'"{name}": {name}(1'}) for name in COUNTED),
    Mistake("T left out of projection_flops", "projection_flops counts a single token", "every token is projected: times T",
            {"tokens = B * T": "tokens = B"}),
    Mistake("only q k^T counted", "score_flops counts only q k^T, without weights v",
            "two products, each 2 B H T^2 d", {"products = 2": "products = 1"}),
    Mistake("T for T^2 in score_flops", "score_flops grows with T instead of T^2",
            "every query has a score for every key: T^2", {"* T * T\n": "* T\n"}),
    Mistake("T for T^2 in weights_bytes", "weights_bytes grows with T instead of T^2",
            "every query has a score for every key: T^2", {"(T * T)": "T"}),
    Mistake("H left out of score_flops", "the number of heads is left out of score_flops",
            "every query head has T^2 scores", {"cells = H *": "cells = 1 *"}),
    Mistake("H left out of weights_bytes", "the number of heads is left out of weights_bytes",
            "every query head has T^2 scores", {"numbers = B * H *": "numbers = B *"}),
    Mistake("H_kv for H in score_flops", "score_flops counts H_kv heads, but grouping saves no scores",
            "every query head has T^2 scores", {"T, H, d)": "T, H_kv, d)"}),
    Mistake("H_kv for H in weights_bytes", "weights_bytes counts H_kv heads, but grouping saves no scores",
            "every query head has T^2 scores", {"T, H, itemsize)": "T, H_kv, itemsize)"}),
    Mistake("H for H_kv in the KV cache", "kv_cache_bytes counts H heads, not the H_kv that are kept",
            "2 B H_kv T d numbers", {"T, H_kv, d, itemsize)": "T, H, d, itemsize)"}),
    Mistake("only the keys in the KV cache", "kv_cache_bytes counts only the keys, without the values",
            "2 B H_kv T d numbers", {"numbers = 2 *": "numbers = 1 *"}),
    Mistake("numbers for bytes", "weights_bytes and kv_cache_bytes count numbers instead of bytes: itemsize is left out",
            "times itemsize", {"numbers * itemsize": "numbers", "itemsize * numbers": "numbers"}),
]  # fmt: skip

TASK = Task(
    cost_table,
    place=320,
    difficulty=2,
    minutes=15,
    needs=("multi-head", "grouped-attention"),
    hints=Hints(
        where="Write down the shapes of the four params, of q, k, v, and of the weights, and mark "
        "every place where H_kv appears instead of H: notebook 25, the first sections; notebook "
        "17 for the KV cache.",
        question="Multiply a (2, 3) matrix by a (3, 5) matrix: how many numbers come out, and how "
        "many multiplications and additions does each take? What changes if the two matrices are "
        "x and w_k?",
        mistake="H for H_kv in the KV cache",
        fix="attention_params = 2 * D * H * d + 2 * D * H_kv * d; projection_flops = 2 * B * T * "
        "attention_params; score_flops = 2 * (2 * B * H * T * T * d); weights_bytes = B * H * T * "
        "T * itemsize; kv_cache_bytes = 2 * B * H_kv * T * d * itemsize",
    ),
    returns="dict[str, int]",
    draw=_draw_costs,
    mistakes=MISTAKES,
)
