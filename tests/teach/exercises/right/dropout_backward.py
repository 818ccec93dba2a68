"""Right gradients of dropout."""

import numpy as np


def divide_where(d_dropped, keep, p):
    return np.divide(d_dropped, 1 - p, out=np.zeros(d_dropped.shape), where=keep)


def masked_array_filled(d_dropped, keep, p):
    masked = np.ma.masked_array(d_dropped, mask=~keep)
    return (masked / (1 - p)).filled(0.0)


def jacobian_of_each_row(d_dropped, keep, p):
    jacobian = np.eye(keep.shape[-1]) * keep[..., None] / (1 - p)
    return (jacobian @ d_dropped[..., None])[..., 0]


def recursion_down_to_numbers(d_dropped, keep, p):
    if np.ndim(d_dropped) == 0:
        return d_dropped / (1 - p) if keep else 0.0
    pairs = zip(d_dropped, keep, strict=True)
    return np.array([recursion_down_to_numbers(g, m, p) for g, m in pairs])


def directional_derivative(d_dropped, keep, p):
    def forward(weights):
        return weights * keep / (1 - p)

    tiny = 1e-20
    return d_dropped * forward(np.full(keep.shape, 1j * tiny)).imag / tiny  # cell by cell


RIGHT = [
    recursion_down_to_numbers,
    divide_where,
    masked_array_filled,
    jacobian_of_each_row,
    directional_derivative,
]
