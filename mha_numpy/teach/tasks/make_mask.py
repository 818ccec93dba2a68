"""One mask for three rules."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.teach.task import Hints, Inputs, Law, Mistake, Task


def make_mask(lengths: Array, T_q: int, T_k: int, q_offset: int, left: int) -> Array:
    """Say which keys each query of a decoder may attend to.

    Key j is at position j, and query i at position ``i + q_offset``. A query may attend to a key on
    three conditions: the key is at the query's own position or before it; it is at most `left`
    positions before it; it is not padding. Some queries may have no such key.

    Use only NumPy, without `causal_mask`, `window_mask` and `padding_mask`.

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
    query = np.arange(T_q)[:, None] + q_offset  # (T_q, 1)
    key = np.arange(T_k)  # (T_k,)
    length = np.asarray(lengths)[:, None, None, None]  # (B, 1, 1, 1)
    past, near, token = is_past(key, query), is_near(key, query, left), is_token(key, length)
    return past & near & token


def is_past(key: Array, query: Array) -> Array:
    """Return which keys are at a query's own position or before it."""
    return key <= query


def is_near(key: Array, query: Array, left: int) -> Array:
    """Return which keys are at most `left` positions before a query."""
    return key >= query - left


def is_token(key: Array, length: Array) -> Array:
    """Return which keys are not padding."""
    return key < length


def _draw_masks(rng: np.random.Generator) -> list[Inputs]:
    """Return lengths with and without padding, queries that start later, and some by chance.

    A mask has no numbers to tell mistakes apart by, so there are more probes.
    """
    by_chance = []
    for _ in range(8):
        T_q = int(rng.integers(3, 8))
        T_k = int(rng.integers(T_q, 10))
        lengths, (offset, left) = rng.integers(1, T_k + 1, 3), rng.integers(0, 5, 2).tolist()
        sizes = {"T_q": T_q, "T_k": T_k, "q_offset": offset, "left": left}
        by_chance.append({"lengths": lengths, **sizes})
    return by_chance + [
        {"lengths": np.array(n), "T_q": T_q, "T_k": T_k, "q_offset": offset, "left": left}
        for n, T_q, T_k, offset, left in (
            ([4, 6, 2], 6, 6, 0, 9), ([5, 7], 4, 7, 2, 1), ([3, 8], 3, 8, 5, 3), ([0, 3], 5, 3, 0, 1),
            ([2], 1, 4, 3, 0),
        )
    ]  # fmt: skip


def _future(inputs: Inputs, mask: Array) -> Array:
    """Return where a query sees a key after its own position."""
    key, query = np.arange(inputs["T_k"]), np.arange(inputs["T_q"]) + inputs["q_offset"]
    return (mask & (key > query[:, None])).astype(float)


def _padding(inputs: Inputs, mask: Array) -> Array:
    """Return where a query sees a key after the end of its sequence."""
    key = np.arange(inputs["T_k"])
    return (mask & (key >= np.asarray(inputs["lengths"])[:, None, None, None])).astype(float)


MISTAKES = [
    Mistake("causal, strict", "a query's own position is left out: it sees only the keys before it", "key <= query + q_offset",
            {"key <= query": "key < query"}),
    Mistake("causal, leaks one key", "a query sees one key of the future", "key <= query + q_offset",
            {"key <= query": "key <= query + 1"}),
    Mistake("causal, wrong triangle", "queries see the future instead of the past", "key <= query, not >=",
            {"key <= query": "key >= query"}),
    Mistake("causal forgotten", "queries see the future", "combine the mask with key <= query + q_offset",
            {"key <= query": "key >= 0 * query"}),
    Mistake("aligned at the bottom right", "the last query is aligned with the last key, whatever q_offset says",
            "query i is at position i + q_offset",
            {"np.arange(T_q)[:, None] + q_offset": "np.arange(T_q)[:, None] + T_k - T_q"}),
    Mistake("q_offset ignored", "q_offset is not used", "query i is at position i + q_offset",
            {"np.arange(T_q)[:, None] + q_offset": "np.arange(T_q)[:, None]"}),
    Mistake("q_offset subtracted", "q_offset is subtracted instead of added",
            "query i is at position i + q_offset",
            {"np.arange(T_q)[:, None] + q_offset": "np.arange(T_q)[:, None] - q_offset"}),
    Mistake("q_offset missing in causality", "q_offset moves the window, but not where the future begins",
            "key <= i + q_offset", {"is_past(key, query)": "is_past(key, query - q_offset)"}),
    Mistake("q_offset missing in the window", "q_offset moves where the future begins, but not the window",
            "key >= i + q_offset - left", {"is_near(key, query, left)": "is_near(key, query - q_offset, left)"}),
    Mistake("window one too wide", "the window reaches one key too far back", "key >= query - left",
            {"key >= query - left": "key >= query - left - 1"}),
    Mistake("window one too narrow", "the farthest key of the window is left out: the key exactly `left` positions back should be visible too", "key >= query - left",
            {"key >= query - left": "key > query - left"}),
    Mistake("window forgotten", "the window is not applied", "combine the mask with key >= query - left",
            {"key >= query - left": "key >= 0 * query"}),
    Mistake("padding one too many", "the first key of padding is visible: counted from 0, the last token of a sequence is key length - 1", "key < length",
            {"key < length": "key <= length"}),
    Mistake("padding forgotten", "padding is visible", "combine the mask with key < length",
            {"key < length": "key >= 0 * length"}),
    Mistake("padding inverted", "only padding is visible", "key < length, not >=",
            {"key < length": "key >= length"}),
    Mistake("padding of the queries", "the lengths hide padding queries instead of padding keys",
            "key < length, not query < length", {"is_token(key, length)": "is_token(query, length)"}),
    Mistake("one length for all", "the first sequence's length is used for all", "lengths[:, None, None, None]",
            {"np.asarray(lengths)": "np.full(len(lengths), lengths[0])"}),
    Mistake("masks joined by or", "the masks are combined with OR, so a cell is visible as soon as one mask allows it", "combine the masks with &",
            {"return past & near & token": "return past & near | token"}),
    Mistake("no axis for the heads",
            "the mask is (B, T_q, T_k), so its batch axis is aligned with the heads of the scores (B, H, T_q, T_k)",
            "lengths[:, None, None, None] makes the axis of size 1",
            {"return past & near & token": "return (past & near & token)[:, 0]"}),
    Mistake("mask inverted", "the mask is inverted: True is read as blocked",
            "True = may attend; np.where(mask, scores, -np.inf)",
            {"return past & near & token": "return ~(past & near & token)"}),
    Mistake("q_offset at the keys too", "q_offset is added to the positions of the keys as well",
            "key j is at position j",
            {"key = np.arange(T_k)": "key = np.arange(T_k) + q_offset"}),
    Mistake("window from the end", "the window is counted back from the end of the sequence instead of from the query",
            "key >= query - left",
            {"is_near(key, query, left)": "is_near(key, length - 1, left)"}),
    Mistake("q_offset subtracted in causality", "q_offset has the wrong sign in where the future begins",
            "key <= query + q_offset",
            {"is_past(key, query)": "is_past(key, query - 2 * q_offset)"}),
    Mistake("padding in front", "the padding is taken to be in front: the last keys are visible, not the first",
            "key < length",
            {"key < length": "key >= len(key) - length"}),
    Mistake("key 0 hidden", "key 0 is hidden from everybody",
            "key >= query - left",
            {"key >= query - left": "(key >= query - left) & (key > 0)"}),
]  # fmt: skip

TASK = Task(
    make_mask,
    place=60,
    id="masks",
    difficulty=2,
    minutes=15,
    hints=Hints(
        where="Lay the positions of the queries along one axis, those of the keys along another, "
        'and the lengths along a third: notebook 08, "How a shape meets the scores" and "Causal '
        'with more keys than queries".',
        question="Take T_q = 2, T_k = 5, q_offset = 3, left = 1, no padding. At which position is "
        "each query, and which two keys does it see?",
        mistake="causal, strict",
        fix="query = np.arange(T_q)[:, None] + q_offset; key = np.arange(T_k); (key <= "
        "query) & (key >= query - left) & (key < lengths[:, None, None, None])",
    ),
    draw=_draw_masks,
    laws=[
        Law("no query sees the future", lambda inputs, arrays: _future(inputs, arrays[""])),
        Law("no query sees padding", lambda inputs, arrays: _padding(inputs, arrays[""])),
    ],
    mistakes=MISTAKES,
)
