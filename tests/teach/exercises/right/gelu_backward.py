"""Right gradients of GELU by tanh."""

import math

import numpy as np


def number_by_number(d_out, x):
    c, d_x = math.sqrt(2 / math.pi), np.empty(x.shape)
    for at in np.ndindex(x.shape):
        v = x[at]
        th = math.tanh(c * (v + 0.044715 * v**3))
        sech2 = 1 - th * th
        d_x[at] = d_out[at] * (0.5 + 0.5 * th + 0.5 * v * sech2 * c * (1 + 0.134145 * v * v))
    return d_x


def step_by_step(d_out, x):
    cube = x**3
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * cube)
    th = np.tanh(inner)
    d_th = d_out * x / 2
    d_inner = d_th / np.cosh(np.minimum(np.abs(inner), 300)) ** 2
    d_sum = d_inner * np.sqrt(2 / np.pi)
    d_cube = d_sum * 0.044715
    return d_out * (1 + th) / 2 + d_sum + d_cube * 3 * x**2


def complex_step(d_out, x):
    z = x + 1e-30j
    out = z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2
    return d_out * out.imag / 1e-30


def by_sigmoid(d_out, x):
    y = (8 / np.pi) ** 0.5 * (x + 0.044715 * x**3)
    s = 1 / (1 + np.exp(-np.clip(y, -700, 700)))
    return d_out * s * (1 + x * (1 - s) * (8 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x**2))


RIGHT = [
    number_by_number,
    step_by_step,
    complex_step,
    by_sigmoid,
]
