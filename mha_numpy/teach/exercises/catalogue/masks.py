"""Masks: who may attend to whom."""

from mha_numpy.dtypes import Array
from mha_numpy.teach.exercises.exercise import Hints, exercise


@exercise(
    "masks",
    title="One mask for three rules",
    difficulty=2,
    minutes=15,
    hints=Hints(
        where="Lay the positions of queries along one axis, those of keys along another, and "
        'lengths along a third: notebook 08, "How a shape meets the scores" and "Causal with more '
        'keys than queries".',
        question="Take T_q = 2, T_k = 5, q_offset = 3, left = 1, no padding. At which position "
        "does each query stand, and which two keys does it see?",
        mistake="causal, strict",
        fix="query = np.arange(T_q)[:, None] + q_offset; key = np.arange(T_k); (key <= "
        "query) & (key >= query - left) & (key < lengths[:, None, None, None])",
    ),
)
def make_mask(lengths: Array, T_q: int, T_k: int, q_offset: int, left: int) -> Array:
    """Say which keys each query of a decoder may attend to.

    Key j stands at position j, query i at position ``i + q_offset``. A query may attend to a key if
    all three hold: the key stands at the query's own position or before it; it stands at most
    `left` positions before it; it is not padding. For some queries there may be no such key.

    Use NumPy alone, without `causal_mask`, `window_mask` and `padding_mask`.

    Parameters
    ----------
    lengths : (B,) int
        Real tokens of each sequence, 0 to `T_k`; the keys after them are padding.
    T_q, T_k : int
        Number of queries and of keys.
    q_offset : int
        Position of the first query.
    left : int
        0 or more.

    Returns
    -------
    mask : (B, 1, T_q, T_k) bool
        True = may attend. The axis of size 1 stands for all heads.
    """
    raise NotImplementedError


@exercise(
    "masked-attention",
    title="Attention with everything in it",
    difficulty=3,
    minutes=30,
    needs=("masks", "softmax", "grouped-attention"),
    hints=Hints(
        where="Look at the order of the steps: docs/attention.md, Forward. Then ask what each does "
        "to a hidden score of -inf, and what -inf - -inf is.",
        question="A cell is hidden, and softcap is 2. Which score does it have if the cap comes "
        "after the mask, and which if it comes before? And what is the largest score of a row that "
        "sees nothing?",
        mistake="softcap after the mask",
        fix="where there is a softcap:\n"
        "scores = softcap * np.tanh(scores / softcap)\n"
        "then, before the softmax of the exercise of that name:\n"
        "scores = np.where(mask, scores, -np.inf)",
    ),
)
def masked_attention(q: Array, k: Array, v: Array, mask: Array, softcap: float | None) -> Array:
    """Attend under a mask, with fewer key/value heads than query heads, and with a softcap.

    The scores are ``q k^T / sqrt(d_k)``. With a `softcap` c, a number, they become
    ``c * tanh(scores / c)``; None leaves them as they are. The weights of a query are the softmax
    of its scores over the keys that the mask lets it see; hidden keys have weight 0. Each query
    returns the mean of the values under its weights, and 0 if it sees nothing.

    Query head h reads key/value head ``h // G``, where ``G = H // H_kv``. Scores may be large:
    nothing may become NaN.

    Parameters
    ----------
    q : (B, H, T_q, d_k)
    k : (B, H_kv, T_k, d_k)
    v : (B, H_kv, T_k, d_v)
        H_kv divides H.
    mask : (B, 1, T_q, T_k) bool
        True = may attend; the same for all heads.
    softcap : float or None

    Returns
    -------
    heads : (B, H, T_q, d_v)
    """
    raise NotImplementedError
