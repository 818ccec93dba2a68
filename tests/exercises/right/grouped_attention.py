"""Right ways to attend where several query heads share a key/value head."""

import math
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided


def _softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def by_repeat(q, k, v):
    G = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return _softmax(scores) @ v


def by_five_axes(q, k, v):
    B, H, T_q, d_k = q.shape
    H_kv = k.shape[1]
    q = q.reshape(B, H_kv, H // H_kv, T_q, d_k)
    scores = q @ k[:, :, None].swapaxes(-1, -2) / math.sqrt(d_k)
    return (_softmax(scores) @ v[:, :, None]).reshape(B, H, T_q, -1)


def by_einsum_over_groups(q, k, v):
    B, H, T_q, d_k = q.shape
    grouped = q.reshape(B, k.shape[1], -1, T_q, d_k)
    scores = np.einsum("bngqd,bnkd->bngqk", grouped, k) * d_k**-0.5
    heads = np.einsum("bngqk,bnkd->bngqd", _softmax(scores), v)
    return heads.reshape(B, H, T_q, v.shape[-1])


def by_index(q, k, v):
    H, H_kv = q.shape[1], k.shape[1]
    shared = np.arange(H) // (H // H_kv)
    scores = q @ k[:, shared].transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    return _softmax(scores) @ v[:, shared]


def by_take(q, k, v):
    shared = np.linspace(0, k.shape[1], q.shape[1], endpoint=False).astype(int)
    k, v = k.take(shared, axis=1), v.take(shared, axis=1)
    return np.einsum(
        "bhqk,bhkd->bhqd",
        _softmax(np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])),
        v,
    )


def by_loop_over_heads(q, k, v):
    B, H, T_q, d_k = q.shape
    G = H // k.shape[1]
    heads = np.zeros((B, H, T_q, v.shape[-1]))
    for b in range(B):
        for h in range(H):
            scores = np.dot(q[b, h], k[b, h // G].T) / np.sqrt(d_k)
            heads[b, h] = np.dot(_softmax(scores), v[b, h // G])
    return heads


def by_loop_over_groups(q, k, v):
    G = q.shape[1] // k.shape[1]
    heads = []
    for n in range(k.shape[1]):
        of_group = q[:, n * G : (n + 1) * G]
        scores = of_group @ k[:, n : n + 1].swapaxes(2, 3) / np.sqrt(q.shape[-1])
        heads.append(_softmax(scores) @ v[:, n : n + 1])
    return np.concatenate(heads, axis=1)


def by_one_product_per_group(q, k, v):
    B, H, T_q, d_k = q.shape
    all_queries = q.reshape(B, k.shape[1], -1, d_k)  # the group's queries below each other
    heads = _softmax(all_queries @ k.swapaxes(-1, -2) / np.sqrt(d_k)) @ v
    return heads.reshape(B, H, T_q, v.shape[-1])


def by_scalar_loops(q, k, v):
    B, H, T_q, d_k = q.shape
    _, H_kv, T_k, d_v = v.shape
    heads = np.zeros((B, H, T_q, d_v))
    for b, h, i in np.ndindex(B, H, T_q):
        n = h * H_kv // H
        scores = np.zeros(T_k)
        for j in range(T_k):
            for m in range(d_k):
                scores[j] += q[b, h, i, m] * k[b, n, j, m] / math.sqrt(d_k)
        largest = max(scores)
        total = sum(math.exp(s - largest) for s in scores)
        for j in range(T_k):
            for m in range(d_v):
                heads[b, h, i, m] += math.exp(scores[j] - largest) / total * v[b, n, j, m]
    return heads


def by_list_comprehensions(q, k, v):
    G, root = q.shape[1] // k.shape[1], np.sqrt(q.shape[3])
    return np.stack(
        [
            np.stack(
                [_softmax(query @ ks[h // G].T / root) @ vs[h // G] for h, query in enumerate(qs)]
            )
            for qs, ks, vs in zip(q, k, v, strict=True)
        ]
    )


def by_split(q, k, v):
    H_kv = k.shape[1]
    groups = zip(*(np.split(x, H_kv, axis=1) for x in (q, k, v)), strict=True)
    heads = [
        _softmax(q_g @ np.moveaxis(k_g, -1, -2) / q.shape[-1] ** 0.5) @ v_g
        for q_g, k_g, v_g in groups
    ]
    return np.hstack(heads)


def by_broadcast_to(q, k, v):
    B, H_kv, T_k, d_k = k.shape
    G = q.shape[1] // H_kv

    def share(x):
        shape = (B, H_kv, G, T_k, x.shape[-1])
        return np.broadcast_to(x[:, :, np.newaxis], shape).reshape(B, H_kv * G, T_k, -1)

    q = q / np.sqrt(d_k)
    return _softmax(q @ share(k).swapaxes(-2, -1)) @ share(v)


def by_strides(q, k, v):
    B, H, T_q, d_k = q.shape
    H_kv = k.shape[1]

    def share(x):
        of_b, of_h, of_t, of_i = x.strides
        shape = (B, H_kv, H // H_kv, *x.shape[2:])
        return as_strided(x, shape, (of_b, of_h, 0, of_t, of_i))

    q = q.reshape(B, H_kv, H // H_kv, T_q, d_k)
    scores = np.matmul(q, share(k).transpose(0, 1, 2, 4, 3)) / np.sqrt(d_k)
    return np.matmul(_softmax(scores), share(v)).reshape(B, H, T_q, -1)


def by_broadcasting(q, k, v):
    G = q.shape[1] // k.shape[1]
    k, v = k.repeat(G, 1), v.repeat(G, 1)
    scores = (q[:, :, :, None] * k[:, :, None]).sum(-1) / np.sqrt(q.shape[-1])
    return (_softmax(scores)[..., None] * v[:, :, None]).sum(-2)


def by_kron(q, k, v):
    H, H_kv = q.shape[1], k.shape[1]
    reads = np.kron(np.eye(H_kv), np.ones((H // H_kv, 1)))  # (H, H_kv)
    k, v = np.einsum("hn,bnkd->bhkd", reads, k), np.einsum("hn,bnkd->bhkd", reads, v)
    return _softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v


def by_tensordot(q, k, v):
    B, H, T_q, d_k = q.shape
    heads = np.empty((B, H, T_q, v.shape[-1]))
    for b, h in np.ndindex(B, H):
        n = h // (H // k.shape[1])
        scores = np.tensordot(q[b, h], k[b, n], axes=(-1, -1)) / np.sqrt(d_k)
        heads[b, h] = np.tensordot(_softmax(scores), v[b, n], axes=1)
    return heads


def by_stack_and_reshape(q, k, v):
    G = q.shape[1] // k.shape[1]
    k, v = (np.stack([x] * G, axis=2).reshape(len(x), -1, *x.shape[2:]) for x in (k, v))
    return _softmax(q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]))) @ v


def by_tile_behind_the_head(q, k, v):
    B, H, _, d_k = q.shape
    H_kv, T_k = k.shape[1:3]
    k = np.tile(k, (1, 1, H // H_kv, 1)).reshape(B, H, T_k, d_k)
    v = np.tile(v, (1, 1, H // H_kv, 1)).reshape(B, H, T_k, -1)
    return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d_k)) @ v


def by_gathering_query_heads(q, k, v):
    H, H_kv = q.shape[1], k.shape[1]
    heads = np.empty((*q.shape[:3], v.shape[3]))
    of_head = np.arange(H) * H_kv // H
    for n in range(H_kv):
        chosen = of_head == n
        scores = q[:, chosen] @ k[:, [n]].swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        heads[:, chosen] = _softmax(scores) @ v[:, [n]]
    return heads


def by_every_gth_head(q, k, v):
    G = q.shape[1] // k.shape[1]
    heads = np.empty(q.shape[:3] + v.shape[3:])
    for g in range(G):  # one query head of each group at a time
        scores = q[:, g::G] @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
        heads[:, g::G] = _softmax(scores) @ v
    return heads


def by_normalising_last(q, k, v):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    powers = np.exp2((scores - scores.max(-1, keepdims=True)) / math.log(2))
    return powers @ v / powers.sum(-1, keepdims=True)


def by_logsumexp(q, k, v):
    B, H, T_q, d_k = q.shape
    q = q.reshape(B, k.shape[1], -1, T_q, d_k)
    scores = np.einsum("bngqd,bnkd->bngqk", q, k) / np.sqrt(d_k)
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return np.einsum("bngqk,bnkd->bngqd", weights, v).reshape(B, H, T_q, -1)


def by_vectorize(q, k, v):
    B, H, T_q, d_k = q.shape
    attend = np.vectorize(
        lambda q, k, v: _softmax(q @ k.T / np.sqrt(q.shape[1])) @ v,
        signature="(q,d),(k,d),(k,e)->(q,e)",
    )
    q = q.reshape(B, k.shape[1], -1, T_q, d_k)
    return attend(q, k[:, :, None], v[:, :, None]).reshape(B, H, T_q, -1)


def by_longdouble(q, k, v):
    G = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.longdouble) for x in (q, k, v))
    k, v = np.repeat(k, G, axis=1), np.repeat(v, G, axis=1)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(np.longdouble(q.shape[-1]))
    return np.einsum("bhqk,bhkd->bhqd", _softmax(scores), v).astype(np.float64)


def by_recursion_over_groups(q, k, v):
    H_kv = k.shape[1]
    if H_kv > 1:
        G = q.shape[1] // H_kv
        first = by_recursion_over_groups(q[:, :G], k[:, :1], v[:, :1])
        others = by_recursion_over_groups(q[:, G:], k[:, 1:], v[:, 1:])
        return np.concatenate([first, others], axis=1)
    return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def as_view_with_heads_last(q, k, v):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("bhqd,bhkd->hbqk", q, k) / np.sqrt(q.shape[-1])
    return np.einsum("hbqk,bhkd->dqbh", _softmax(scores), v).transpose(2, 3, 1, 0)


def in_fortran_order(q, k, v):
    return np.asfortranarray(by_index(q, k, v))


class GroupedAttention:
    def __call__(self, q, k, v):
        self.G = q.shape[1] // k.shape[1]
        return self.attend(q, self.share(k), self.share(v))

    def share(self, x):
        return x[:, np.repeat(np.arange(x.shape[1]), self.G)]

    def attend(self, q, k, v):
        return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def _attend(softmax, q, k, v):
    heads = np.empty_like(q, shape=(*q.shape[:-1], v.shape[-1]))
    for h in range(q.shape[1]):
        n = h // (q.shape[1] // k.shape[1])
        heads[:, h] = softmax(q[:, h] @ k[:, n].swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v[:, n]
    return heads


by_class = GroupedAttention()
by_partial = partial(_attend, _softmax)

RIGHT = [
    by_repeat, by_five_axes, by_einsum_over_groups, by_index, by_take, by_loop_over_heads,
    by_loop_over_groups, by_one_product_per_group, by_scalar_loops, by_list_comprehensions,
    by_split, by_broadcast_to, by_strides, by_broadcasting, by_kron, by_tensordot,
    by_stack_and_reshape, by_tile_behind_the_head, by_gathering_query_heads, by_every_gth_head,
    by_normalising_last, by_logsumexp, by_vectorize, by_longdouble, by_recursion_over_groups,
    as_view_with_heads_last, in_fortran_order, by_class, by_partial,
]  # fmt: skip
