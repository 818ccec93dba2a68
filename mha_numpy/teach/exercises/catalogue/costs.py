"""Costs: params, operations and bytes, counted before anything runs."""

from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "cost-table",
    title="What a layer costs, before it runs",
    difficulty=2,
    minutes=15,
    needs=("multi-head", "grouped-attention"),
    hints=Hints(
        where="Write down the shapes of the four params, of q, k, v, and of the weights, and mark "
        "where H_kv stands instead of H: notebook 25, the first sections; notebook 17 for the KV "
        "cache.",
        question="Multiply a (2, 3) matrix by a (3, 5) matrix: how many numbers come out, and how "
        "many multiplications and additions does each take? And if the two matrices are x and w_k?",
        mistake="H for H_kv in the KV cache",
        fix="attention_params = 2 * D * H * d + 2 * D * H_kv * d; projection_flops = 2 * B * T * "
        "attention_params; score_flops = 2 * (2 * B * H * T * T * d); weights_bytes = B * H * T * "
        "T * itemsize; kv_cache_bytes = 2 * B * H_kv * T * d * itemsize",
    ),
)
def cost_table(B: int, T: int, D: int, H: int, H_kv: int, d: int, itemsize: int) -> dict[str, int]:
    """Count what one layer of self-attention costs in a forward pass.

    A multiplication and the addition that follows it are two floating-point operations. Hidden
    cells count like all others; biases and softmax do not count.

    Parameters
    ----------
    B, T : int
        Sequences, and tokens of each.
    D : int
        Width of a token; H*d need not be D.
    H, H_kv, d : int
        Query heads, key and value heads, and the width of a head.
    itemsize : int
        Bytes of a number.

    Returns
    -------
    table : dict of int
        ``attention_params``: the numbers in w_q (D, H*d), w_k and w_v (D, H_kv*d), w_o (H*d, D).
        ``projection_flops``: operations of the products with these four, for all tokens.
        ``score_flops``: operations of ``q k^T`` and of ``weights v`` together, for the batch.
        ``weights_bytes``: bytes of the attention weights of all sequences and heads.
        ``kv_cache_bytes``: bytes of the keys and values of all tokens.
    """
    raise NotImplementedError
