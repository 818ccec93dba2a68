from functools import partial

import numpy as np


def multiply_and_divide(d_dropped, keep, p):
    return d_dropped * keep / (1 - p)


def where(d_dropped, keep, p):
    return np.where(keep, d_dropped / (1.0 - p), 0.0)


def float_mask_as_in_the_forward(d_dropped, keep, p):
    dropout_mask = keep.astype(d_dropped.dtype) / (1 - p)
    return dropout_mask * d_dropped


def zeros_then_kept_ones(dout, keep, p):
    dx = np.zeros_like(dout)
    dx[keep] = dout[keep] / (1 - p)
    return dx


def copy_then_drop(d_dropped, keep, p):
    d_weights = d_dropped.copy()
    d_weights[~keep] = 0
    d_weights *= 1 / (1 - p)
    return d_weights


def loops_over_numbers(d_dropped, keep, p):
    B, H, T_q, T_k = d_dropped.shape
    d_weights = np.zeros((B, H, T_q, T_k))
    for b in range(B):
        for h in range(H):
            for i in range(T_q):
                for j in range(T_k):
                    if keep[b, h, i, j]:
                        d_weights[b, h, i, j] = d_dropped[b, h, i, j] / (1 - p)
    return d_weights


def flat_comprehension(d_dropped, keep, p):
    pairs = zip(d_dropped.ravel(), keep.ravel(), strict=True)
    return np.array([g / (1 - p) if kept else 0.0 for g, kept in pairs]).reshape(d_dropped.shape)


def divide_where(d_dropped, keep, p):
    return np.divide(d_dropped, 1 - p, out=np.zeros(d_dropped.shape), where=keep)


def einsum(d_dropped, keep, p):
    return np.einsum("bhij,bhij,->bhij", d_dropped, keep, 1 / (1 - p))


def put_and_place(d_dropped, keep, p):
    d_weights = np.array(d_dropped)
    np.place(d_weights, np.logical_not(keep), 0.0)
    return np.true_divide(d_weights, 1 - p)


def masked_array_filled(d_dropped, keep, p):
    masked = np.ma.masked_array(d_dropped, mask=~keep)
    return (masked / (1 - p)).filled(0.0)


def chain_of_two_steps(d_dropped, keep, p):
    d_kept = d_dropped / (1 - p)  # dropped = kept / (1 - p)
    return d_kept * keep  # kept = weights * keep


def jacobian_of_each_row(d_dropped, keep, p):
    jacobian = np.eye(keep.shape[-1]) * keep[..., None] / (1 - p)
    return (jacobian @ d_dropped[..., None])[..., 0]


def diagonal_matrices(d_dropped, keep, p):
    d_weights = np.empty(d_dropped.shape)
    for at in np.ndindex(d_dropped.shape[:-1]):
        d_weights[at] = d_dropped[at] @ np.diag(keep[at] / (1 - p))
    return d_weights


def in_longdouble(d_dropped, keep, p):
    wide = d_dropped.astype(np.longdouble) * keep / (np.longdouble(1) - p)
    return wide.astype(np.float64)


def recursion_down_to_numbers(d_dropped, keep, p):
    if np.ndim(d_dropped) == 0:
        return d_dropped / (1 - p) if keep else 0.0
    pairs = zip(d_dropped, keep, strict=True)
    return np.array([recursion_down_to_numbers(g, m, p) for g, m in pairs])


def fortran_result_by_choose(d_dropped, keep, p):
    return np.asfortranarray(np.choose(keep, [0.0, d_dropped / (1 - p)]))


def nonzero_cells(d_dropped, keep, p):
    cells = np.nonzero(keep)
    d_weights = np.zeros(keep.shape)
    np.add.at(d_weights, cells, d_dropped[cells])
    return d_weights * (1 - p) ** -1


def transposed_view(d_dropped, keep, p):
    d_weights_T = d_dropped.T * keep.T
    d_weights_T /= 1 - p
    return d_weights_T.T


def directional_derivative(d_dropped, keep, p):
    def forward(weights):
        return weights * keep / (1 - p)

    tiny = 1e-20
    return d_dropped * forward(np.full(keep.shape, 1j * tiny)).imag / tiny  # cell by cell


class Dropout:
    def __init__(self, p, keep):
        self.p, self.keep = p, keep

    def backward(self, d_out):
        d_weights = np.zeros_like(d_out)
        np.copyto(d_weights, d_out / (1 - self.p), where=self.keep)
        return d_weights


def selected(d_dropped, keep, p, otherwise):
    return np.select([keep], [d_dropped / (1 - p)], default=otherwise)


RIGHT = [
    multiply_and_divide,
    where,
    float_mask_as_in_the_forward,
    zeros_then_kept_ones,
    copy_then_drop,
    loops_over_numbers,
    flat_comprehension,
    divide_where,
    einsum,
    put_and_place,
    masked_array_filled,
    chain_of_two_steps,
    jacobian_of_each_row,
    diagonal_matrices,
    in_longdouble,
    recursion_down_to_numbers,
    fortran_result_by_choose,
    nonzero_cells,
    transposed_view,
    directional_derivative,
    partial(selected, otherwise=0.0),
    lambda g, keep, p: Dropout(p, keep).backward(g),
]
