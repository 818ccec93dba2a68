"""Right ways to make a causal mask with a window and padding."""

from functools import partial, reduce

import numpy as np


def by_comparing_aranges(lengths, T_q, T_k, q_offset, left):
    query = np.arange(T_q)[:, None] + q_offset
    key = np.arange(T_k)[None, :]
    mask = (key <= query) & (key >= query - left)
    return mask & (key < lengths[:, None, None, None])


def by_distance(lengths, T_q, T_k, q_offset, left):
    distance = np.arange(q_offset, q_offset + T_q).reshape(-1, 1) - np.arange(T_k)
    near = (0 <= distance) & (distance <= left)  # noqa: SIM300
    is_token = np.arange(T_k) < np.reshape(lengths, (-1, 1, 1, 1))
    return np.logical_and(near, is_token)


def by_scalar_loops(lengths, T_q, T_k, q_offset, left):
    B = len(lengths)
    mask = np.zeros((B, 1, T_q, T_k), dtype=bool)
    for b in range(B):
        for i in range(T_q):
            for j in range(T_k):
                position = i + q_offset
                if j <= position and position - j <= left and j < lengths[b]:
                    mask[b, 0, i, j] = True
    return mask


def by_chained_comparison(lengths, T_q, T_k, q_offset, left):
    mask = np.empty((lengths.size, 1, T_q, T_k), dtype=np.bool_)
    for b, _, i, j in np.ndindex(mask.shape):
        p = i + q_offset
        mask[b, 0, i, j] = p - left <= j <= p and j < lengths[b]
    return mask


def by_slices(lengths, T_q, T_k, q_offset, left):
    mask = np.zeros((len(lengths), 1, T_q, T_k), bool)
    for b, n in enumerate(lengths):
        for i in range(T_q):
            p = i + q_offset
            mask[b, 0, i, max(p - left, 0) : max(min(p + 1, n), 0)] = True
    return mask


def by_tri(lengths, T_q, T_k, q_offset, left):
    causal = np.tri(T_q, T_k, q_offset, dtype=bool)
    too_far = np.tri(T_q, T_k, q_offset - left - 1, dtype=bool)
    is_token = np.arange(T_k)[None] < lengths[:, None]
    return (causal & ~too_far)[None, None] & is_token[:, None, None]


def by_tril_and_triu(lengths, T_q, T_k, q_offset, left):
    ones = np.ones((len(lengths), 1, T_q, T_k), dtype=bool)
    band = np.triu(np.tril(ones, k=q_offset), k=q_offset - left)
    padding = np.arange(T_k) >= lengths.reshape(-1, 1, 1, 1)
    band[np.broadcast_to(padding, band.shape)] = False
    return band


def by_adding_eyes(lengths, T_q, T_k, q_offset, left):
    diagonals = (np.eye(T_q, T_k, k=q_offset - back, dtype=int) for back in range(left + 1))
    near = sum(diagonals).astype(bool)
    return np.stack([near & (np.arange(T_k) < n) for n in lengths])[:, None]


def by_cumsum(lengths, T_q, T_k, q_offset, left):
    key_number = np.cumsum(np.ones((T_q, T_k), dtype=int), axis=1)  # from 1
    query_number = np.cumsum(np.ones((T_q, T_k), dtype=int), axis=0) + q_offset
    near = (key_number <= query_number) & (key_number >= query_number - left)
    return near & (key_number <= lengths[:, None, None, None])


def by_cumsum_of_ends(lengths, T_q, T_k, q_offset, left):
    last = np.minimum(np.arange(T_q) + q_offset + 1, lengths[:, None]).clip(0, T_k)
    first = (np.arange(T_q) + q_offset - left).clip(0, T_k)
    ends = np.zeros((len(lengths), T_q, T_k + 1), dtype=int)
    for b, i in np.ndindex(last.shape):
        if first[i] < last[b, i]:
            ends[b, i, first[i]] += 1
            ends[b, i, last[b, i]] -= 1
    return ends.cumsum(axis=-1)[:, None, :, :T_k] == 1


def by_first_and_last(lengths, T_q, T_k, q_offset, left):
    position = np.arange(T_q) + q_offset
    last = np.minimum(position, lengths[:, None] - 1)[:, None, :, None]
    first = (position - left)[None, None, :, None]
    key = np.arange(T_k)
    return (first <= key) & (key <= last)


def by_outer_comparisons(lengths, T_q, T_k, q_offset, left):
    query, key = np.arange(T_q) + q_offset, np.arange(T_k)
    causal = np.greater_equal.outer(query, key)
    near = np.less_equal.outer(query - left, key)
    is_token = np.greater.outer(lengths, key)
    return np.einsum("qk,qk,bk->bqk", causal, near, is_token)[:, None]


def by_ogrid(lengths, T_q, T_k, q_offset, left):
    _, _, i, j = np.ogrid[0:1, 0:1, 0:T_q, 0:T_k]
    i = i + q_offset
    n = lengths[..., np.newaxis, np.newaxis, np.newaxis]
    return np.logical_and.reduce(np.broadcast_arrays(j <= i, i - j <= left, j < n))


def by_indices(lengths, T_q, T_k, q_offset, left):
    b, _, i, j = np.indices((len(lengths), 1, T_q, T_k))
    return (j <= i + q_offset) * (j >= i + q_offset - left) * (j < lengths[b])


def by_meshgrid(lengths, T_q, T_k, q_offset, left):
    n, i, j = np.meshgrid(lengths, np.arange(T_q) + q_offset, np.arange(T_k), indexing="ij")
    return np.expand_dims((i >= j) & (i <= j + left) & (n > j), axis=1)


def by_fromfunction(lengths, T_q, T_k, q_offset, left):
    def visible(b, h, i, j):
        return (j <= i + q_offset) & (j >= i + q_offset - left) & (j < lengths[b] + h)

    return np.fromfunction(visible, (len(lengths), 1, T_q, T_k), dtype=int)


def by_list_comprehensions(lengths, T_q, T_k, q_offset, left):
    return np.array(
        [
            [
                [
                    [i + q_offset - left <= j <= i + q_offset and j < int(n) for j in range(T_k)]
                    for i in range(T_q)
                ]
            ]
            for n in lengths
        ]
    )


def by_sets(lengths, T_q, T_k, q_offset, left):
    rows = [set(range(i + q_offset - left, i + q_offset + 1)) for i in range(T_q)]
    mask = np.zeros((len(lengths), 1, T_q, T_k), dtype=bool)
    for b, n in enumerate(lengths):
        for i, row in enumerate(rows):
            mask[b, 0, i, sorted(row & set(range(n)))] = True
    return mask


def by_isin(lengths, T_q, T_k, q_offset, left):
    rows = [
        np.isin(np.arange(T_k), np.arange(i + q_offset - left, i + q_offset + 1))
        for i in range(T_q)
    ]
    near = np.stack(rows)
    is_token = np.stack([np.arange(T_k) < n for n in lengths])
    return near & is_token[:, None, None, :]


def by_taking_away(lengths, T_q, T_k, q_offset, left):
    mask = np.full((len(lengths), 1, T_q, T_k), True)
    for b in range(len(lengths)):
        mask[b, :, :, lengths[b] :] = False
    for i in range(T_q):
        mask[:, :, i, max(i + q_offset + 1, 0) :] = False
        mask[..., i, : max(i + q_offset - left, 0)] = False
    return mask


def by_vectorize(lengths, T_q, T_k, q_offset, left):
    def sees(n, i, j):
        return j < n and j <= i + q_offset and j >= i + q_offset - left

    return np.vectorize(sees, otypes=[bool])(
        lengths[:, None, None, None], np.arange(T_q)[:, None], np.arange(T_k)
    )


def by_integers(lengths, T_q, T_k, q_offset, left):
    future = np.triu(np.ones((T_q, T_k)), q_offset + 1)
    far = np.tril(np.ones((T_q, T_k)), q_offset - left - 1)
    padding = np.array([[0] * n + [1] * (T_k - n) for n in np.minimum(lengths, T_k)])
    return future + far + padding.reshape(len(lengths), 1, 1, T_k) == 0


def by_helper_functions(lengths, T_q, T_k, q_offset, left):
    def causal():
        return np.arange(T_k) <= (np.arange(T_q) + q_offset)[:, np.newaxis]

    def window():
        return np.arange(T_k) >= (np.arange(T_q) + q_offset - left)[:, np.newaxis]

    def padding():
        return (np.arange(T_k) < np.asarray(lengths)[:, np.newaxis])[:, np.newaxis, np.newaxis]

    return reduce(np.logical_and, [causal(), window(), padding()])


def by_shifting_a_row(lengths, T_q, T_k, q_offset, left):
    row = np.zeros(T_q + T_k + left + abs(q_offset) + 1, dtype=bool)
    middle = T_q + abs(q_offset)
    row[middle : middle + left + 1] = True  # how far back: 0 to left, from the right
    near = np.empty((T_q, T_k), dtype=bool)
    for i in range(T_q):
        for j in range(T_k):
            place = middle + i + q_offset - j
            near[i, j] = 0 <= place < len(row) and row[place]
    return near & (np.arange(T_k) < lengths[:, None])[:, None, None]


def by_recursion_over_sequences(lengths, T_q, T_k, q_offset, left):
    if len(lengths) == 0:
        return np.zeros((0, 1, T_q, T_k), dtype=bool)
    query, key = np.ix_(np.arange(T_q) + q_offset, np.arange(T_k))
    one = (key <= query) & (query <= key + left) & (key < lengths[0])
    others = by_recursion_over_sequences(lengths[1:], T_q, T_k, q_offset, left)
    return np.concatenate([one[None, None], others])


def in_fortran_order(lengths, T_q, T_k, q_offset, left):
    mask = np.ones((len(lengths), 1, T_q, T_k), dtype=bool, order="F")
    key, query = np.arange(T_k), np.arange(T_q)[:, None] + q_offset
    mask &= key <= query
    mask &= ~(key < query - left)
    mask &= key < lengths[:, None, None, None]
    return mask


def as_view(lengths, T_q, T_k, q_offset, left):
    key = np.arange(T_k)[:, None]
    query = np.arange(q_offset, q_offset + T_q)
    by_key = ((key <= query) & (key >= query - left))[..., None] & (key[..., None] < lengths)
    return by_key.T[:, None]  # from (T_k, T_q, B)


class MaskMaker:
    def __init__(self, *rules):
        self.rules = rules

    def __call__(self, lengths, T_q, T_k, q_offset, left):
        n = lengths.reshape(len(lengths), 1, 1, 1)
        i, j = np.arange(T_q)[:, None] + q_offset, np.arange(T_k)
        mask = np.ones((len(lengths), 1, T_q, T_k), dtype=bool)
        for rule in self.rules:
            mask = mask & rule(i, j, n, left)
        return mask


def _mask(compare, lengths, T_q, T_k, q_offset, left):
    back = np.arange(T_q)[:, None] + q_offset - np.arange(T_k)
    return (
        compare(0, back) & compare(back, left)
        & compare(np.arange(1, T_k + 1), lengths[:, None, None, None])
    )  # fmt: skip


by_class = MaskMaker(
    lambda i, j, n, left: j <= i,
    lambda i, j, n, left: i - j <= left,
    lambda i, j, n, left: j < n,
)
by_partial = partial(_mask, np.less_equal)

RIGHT = [
    by_comparing_aranges, by_distance, by_scalar_loops, by_chained_comparison, by_slices, by_tri,
    by_tril_and_triu, by_adding_eyes, by_cumsum, by_cumsum_of_ends, by_first_and_last,
    by_outer_comparisons, by_ogrid, by_indices, by_meshgrid, by_fromfunction,
    by_list_comprehensions, by_sets, by_isin, by_taking_away, by_vectorize, by_integers,
    by_helper_functions, by_shifting_a_row, by_recursion_over_sequences, in_fortran_order, as_view,
    by_class, by_partial,
]  # fmt: skip
