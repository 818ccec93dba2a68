"""Right ways to compute GELU by tanh."""

import math

import numpy as np


def number_by_number(x):
    c = math.sqrt(2 / math.pi)
    numbers = [v * 0.5 * (1 + math.tanh(c * (v + 0.044715 * v**3))) for v in x.ravel().tolist()]
    return np.array(numbers).reshape(x.shape)


def as_gpt2_has_it(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * np.power(x, 3))))


def by_sigmoid_of_twice(x):
    y = (8 / np.pi) ** 0.5 * x * (1 + 0.044715 * x * x)  # tanh(a) = 2 sigmoid(2a) - 1
    small = np.exp(-np.abs(y))
    return x * np.where(y >= 0, 1, small) / (1 + small)


RIGHT = [
    number_by_number,
    as_gpt2_has_it,
    by_sigmoid_of_twice,
]
