from functools import partial
from typing import NamedTuple

import numpy as np


def compact_formula(d_out, x, gain, eps):
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    normal = (x - mean) / np.sqrt(var + eps)
    d_normal = d_out * gain
    d_x = (
        d_normal
        - d_normal.mean(axis=-1, keepdims=True)
        - normal * (d_normal * normal).mean(axis=-1, keepdims=True)
    ) / np.sqrt(var + eps)
    leading = tuple(range(x.ndim - 1))
    return d_x, (d_out * normal).sum(axis=leading), d_out.sum(axis=leading)


def sums_and_one_division(dout, x, gamma, eps):
    shape, D = x.shape, x.shape[-1]
    dout, x = dout.reshape(-1, D), x.reshape(-1, D)
    inv_std = 1 / np.sqrt(np.var(x, axis=1) + eps)[:, None]
    xhat = (x - np.mean(x, axis=1)[:, None]) * inv_std
    dxhat = dout * gamma
    dx = (D * dxhat - dxhat.sum(1)[:, None] - xhat * (dxhat * xhat).sum(1)[:, None]) * inv_std / D
    return dx.reshape(shape), np.sum(dout * xhat, axis=0), np.sum(dout, axis=0)


def chain_of_small_steps(dout, x, gamma, eps):
    shape = x.shape
    x = x.reshape(-1, shape[-1]).T  # (D, N), as batch norm has it
    dout = dout.reshape(-1, shape[-1]).T
    D = x.shape[0]
    mu = 1.0 / D * np.sum(x, axis=0)
    xmu = x - mu
    sq = xmu**2
    var = 1.0 / D * np.sum(sq, axis=0)
    sqrtvar = np.sqrt(var + eps)
    ivar = 1.0 / sqrtvar
    xhat = xmu * ivar

    dbeta = np.sum(dout, axis=1)
    dgamma = np.sum(dout * xhat, axis=1)
    dxhat = dout * gamma[:, None]
    divar = np.sum(dxhat * xmu, axis=0)
    dxmu1 = dxhat * ivar
    dsqrtvar = -1.0 / (sqrtvar**2) * divar
    dvar = 0.5 * 1.0 / np.sqrt(var + eps) * dsqrtvar
    dsq = 1.0 / D * np.ones(x.shape) * dvar
    dxmu2 = 2 * xmu * dsq
    dx1 = dxmu1 + dxmu2
    dmu = -1 * np.sum(dx1, axis=0)
    dx2 = 1.0 / D * np.ones(x.shape) * dmu
    return (dx1 + dx2).T.reshape(shape), dgamma, dbeta


def through_mean_and_variance(d_out, x, gain, eps):
    D = x.shape[-1]
    centred = x - x.mean(-1, keepdims=True)
    var = (centred**2).mean(-1, keepdims=True)
    d_normal = d_out * gain
    d_var = (d_normal * centred).sum(-1, keepdims=True) * -0.5 * (var + eps) ** -1.5
    d_mean = -d_normal.sum(-1, keepdims=True) * (var + eps) ** -0.5
    d_mean = d_mean + d_var * (-2 * centred).mean(-1, keepdims=True)  # which is 0
    d_x = d_normal * (var + eps) ** -0.5 + d_var * 2 * centred / D + d_mean / D
    leading = tuple(range(d_out.ndim - 1))
    d_gain = (d_out * centred * (var + eps) ** -0.5).sum(leading)
    return {"d_x": d_x, "d_gain": d_gain, "d_bias": d_out.sum(leading)}


def jacobian_of_each_token(d_out, x, gain, eps):
    D = x.shape[-1]
    d_x, d_gain, d_bias = np.zeros_like(x), np.zeros_like(gain), np.zeros_like(gain)
    for at in np.ndindex(x.shape[:-1]):
        centred = x[at] - x[at].mean()
        std = np.sqrt(centred @ centred / D + eps)
        normal = centred / std
        jacobian = (np.eye(D) - 1 / D - np.outer(normal, normal) / D) / std
        d_x[at] = jacobian @ (gain * d_out[at])
        d_gain += d_out[at] * normal
        d_bias += d_out[at]
    return d_x, d_gain, d_bias


def all_jacobians_at_once(d_out, x, gain, eps):
    D = x.shape[-1]
    centre = np.eye(D) - np.full((D, D), 1 / D)
    centred = x @ centre
    std = np.sqrt((centred**2).sum(-1) / D + eps)[..., None, None]
    outer = centred[..., :, None] * centred[..., None, :]
    jacobian = (np.diag(gain) @ centre) / std - gain[:, None] * outer / (D * std**3)  # out by x
    d_x = np.einsum("...o,...oi->...i", d_out, jacobian)
    normal = centred / std[..., 0]
    d_gain = np.einsum("ni,ni->i", d_out.reshape(-1, D), normal.reshape(-1, D))
    return d_x, d_gain, d_out.reshape(-1, D).sum(axis=0)


def loops_over_numbers(d_out, x, gain, eps):
    D = x.shape[-1]
    d_x, d_gain, d_bias = np.zeros(x.shape), np.zeros(D), np.zeros(D)
    for at in np.ndindex(x.shape[:-1]):
        row, g = x[at].tolist(), d_out[at].tolist()
        mean = sum(row) / D
        var = sum((value - mean) ** 2 for value in row) / D
        normal = [(value - mean) / (var + eps) ** 0.5 for value in row]
        d_normal = [g[n] * gain[n] for n in range(D)]
        total = sum(d_normal)
        dot = sum(d_normal[n] * normal[n] for n in range(D))
        for n in range(D):
            d_gain[n] += g[n] * normal[n]
            d_bias[n] += g[n]
            d_x[(*at, n)] = (d_normal[n] - total / D - normal[n] * dot / D) / (var + eps) ** 0.5
    return d_x, d_gain, d_bias


def einsum(d_out, x, gain, eps):
    D = x.shape[-1]
    rows, d_rows = x.reshape(-1, D), d_out.reshape(-1, D)
    centred = rows - np.einsum("ni->n", rows)[:, None] / D
    r = 1 / np.sqrt(np.einsum("ni,ni->n", centred, centred) / D + eps)
    normal = np.einsum("ni,n->ni", centred, r)
    g = np.einsum("ni,i->ni", d_rows, gain)
    g = g - np.einsum("ni->n", g)[:, None] / D
    g = g - normal * np.einsum("ni,ni->n", g, normal)[:, None] / D
    d_x = np.einsum("ni,n->ni", g, r).reshape(x.shape)
    return d_x, np.einsum("ni,ni->i", d_rows, normal), np.einsum("ni->i", d_rows)


def mean_of_squares_less_square_of_mean(d_out, x, gain, eps):
    m, m2 = np.mean(x, axis=-1, keepdims=True), np.mean(x * x, axis=-1, keepdims=True)
    s = (m2 - m * m + eps) ** -0.5  # out = (x - m) s gain + bias
    g = d_out * gain
    d_s = np.sum(g * (x - m), axis=-1, keepdims=True)
    d_var = d_s * -0.5 * s**3
    d_m = -np.sum(g * s, axis=-1, keepdims=True) - 2 * m * d_var
    d_x = g * s + d_m / x.shape[-1] + d_var * 2 * x / x.shape[-1]
    tokens = tuple(range(x.ndim))[:-1]
    return d_x, np.sum(d_out * (x - m) * s, axis=tokens), np.sum(d_out, axis=tokens)


def tokens_in_place(d_out, x, gain, eps):
    rows, grads = x.reshape(-1, x.shape[-1]), d_out.reshape(-1, x.shape[-1])
    d_x = np.empty(rows.shape)
    d_gain, d_bias = 0, 0
    for n, (row, g) in enumerate(zip(rows, grads, strict=True)):
        std = np.sqrt(np.var(row) + eps)
        normal = (row - np.mean(row)) / std
        d_gain = d_gain + g * normal
        d_bias = d_bias + g
        d_normal = g * gain
        d_normal -= np.mean(d_normal)
        d_normal -= normal * np.mean(d_normal * normal)
        d_x[n] = d_normal / std
    return d_x.reshape(x.shape), d_gain, d_bias


def complex_step(d_out, x, gain, eps):
    tiny = 1e-40

    def forward(x, gain, bias):
        centred = x - x.mean(-1, keepdims=True)
        var = (centred * centred).mean(-1, keepdims=True)
        return centred / np.sqrt(var + eps) * gain + bias

    bias, d_x, d_gain, d_bias = np.zeros_like(gain), np.zeros_like(x), [], []
    for n, unit in enumerate(1j * tiny * np.eye(len(gain))):
        d_x[..., n] = (d_out * forward(x + unit, gain, bias).imag).sum(-1) / tiny
        d_gain.append((d_out * forward(x, gain + unit, bias).imag).sum() / tiny)
        d_bias.append((d_out * forward(x, gain, bias + unit).imag).sum() / tiny)
    return d_x, np.array(d_gain), np.array(d_bias)


class Value:
    def __init__(self, data, pulls=()):
        self.data, self.pulls, self.grad = np.asarray(data), pulls, 0.0

    def __add__(self, other):
        return Value(self.data + other.data, [(self, lambda g: g), (other, lambda g: g)])

    def __mul__(self, other):
        a, b = self.data, other.data
        return Value(a * b, [(self, lambda g: g * b), (other, lambda g: g * a)])

    def __pow__(self, n):
        return Value(self.data**n, [(self, lambda g: g * n * self.data ** (n - 1))])

    def mean(self):
        data, share = self.data.mean(-1, keepdims=True), np.ones(self.data.shape)
        return Value(data, [(self, lambda g: g * share / self.data.shape[-1])])

    def pull(self, grad):
        extra = grad.ndim - self.data.ndim
        grad = grad.sum(axis=tuple(range(extra)))
        if self.data.shape[-1] == 1:
            grad = grad.sum(axis=-1, keepdims=True)
        self.grad = self.grad + grad
        for parent, pull in self.pulls:
            parent.pull(pull(grad))


def tape(d_out, x, gain, eps):
    x, gain, bias = Value(x), Value(gain), Value(np.zeros(gain.shape))
    centred = x + Value([-1.0]) * x.mean()
    std = ((centred**2).mean() + Value([eps])) ** 0.5
    (centred * std**-1 * gain + bias).pull(d_out)
    return x.grad, gain.grad, bias.grad


def in_longdouble(d_out, x, gain, eps):
    d_out, x, gain = (a.astype(np.longdouble) for a in (d_out, x, gain))
    std = np.sqrt(x.var(-1, keepdims=True) + eps)
    normal = (x - x.mean(-1, keepdims=True)) / std
    g = d_out * gain
    d_x = (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)) / std
    leading = tuple(range(x.ndim - 1))
    grads = d_x, (d_out * normal).sum(leading), d_out.sum(leading)
    return tuple(grad.astype(np.float64) for grad in grads)


class NormGrads(NamedTuple):
    d_x: np.ndarray
    d_gain: np.ndarray
    d_bias: np.ndarray


def features_first_views(d_out, x, gain, eps):
    x, g = np.moveaxis(x, -1, 0), np.moveaxis(d_out, -1, 0)  # (D, ...)
    normal = (x - x.mean(axis=0)) / (x.var(axis=0) + eps) ** 0.5
    d_normal = (g.T * gain).T
    d_x = d_normal - d_normal.mean(axis=0) - normal * (d_normal * normal).mean(axis=0)
    d_x = d_x / (x.var(axis=0) + eps) ** 0.5
    both = np.stack([(g * normal).reshape(len(gain), -1).sum(1), g.reshape(len(gain), -1).sum(1)])
    return NormGrads(np.moveaxis(d_x, 0, -1), both[0], both[1])


def two_projections(d_out, x, gain, eps):
    D = x.shape[-1]

    def centre(a):
        return a - np.sum(a, axis=-1, keepdims=True) / D

    c = centre(x)
    squares = np.sum(c * c, axis=-1, keepdims=True) + D * eps
    d_c = centre(d_out * gain)
    d_x = np.sqrt(D / squares) * (d_c - c * np.sum(c * d_c, axis=-1, keepdims=True) / squares)
    normal = c * np.sqrt(D / squares)
    ones = np.ones(x[..., 0].size)
    return [d_x, ones @ (d_out * normal).reshape(-1, D), ones @ d_out.reshape(-1, D)]


def add_at_and_reduceat(d_out, x, gain, eps):
    D = x.shape[-1]
    starts = np.arange(0, x.size, D)

    def row_means(a):
        return np.repeat(np.add.reduceat(a.ravel(), starts), D) / D

    flat, g = x.ravel() - row_means(x), (d_out * gain).ravel()
    std = np.sqrt(row_means(flat**2) + eps)
    normal = flat / std
    d_x = (g - row_means(g) - normal * row_means(g * normal)) / std
    d_gain, d_bias = np.zeros(D), np.zeros(D)
    feature = np.resize(np.arange(D), x.size)
    np.add.at(d_gain, feature, d_out.ravel() * normal)
    np.add.at(d_bias, feature, d_out.ravel())
    return d_x.reshape(x.shape), d_gain, d_bias


def comprehensions(d_out, x, gain, eps):
    def one_token(g, row):
        std = (row.var() + eps) ** 0.5
        normal = (row - row.mean()) / std
        d_normal = g * gain
        along = np.average(d_normal) + normal * np.average(d_normal * normal)
        return (d_normal - along) / std, g * normal, g

    pairs = zip(d_out.reshape(-1, len(gain)), x.reshape(-1, len(gain)), strict=True)
    d_x, d_gain, d_bias = map(np.array, zip(*[one_token(*pair) for pair in pairs], strict=True))
    return d_x.reshape(x.shape), d_gain.sum(0), d_bias.sum(0)


class LayerNorm:
    def __init__(self, order):
        self.order = order

    def __call__(self, d_out, x, gain, eps):
        self.forward(x, eps)
        d_gain = self.over_tokens(d_out * self.normal)
        d_x = self.normalize_backward(d_out * gain)
        return np.array(d_x, order=self.order), d_gain, self.over_tokens(d_out)

    def forward(self, x, eps):
        self.rstd = 1 / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)
        self.normal = (x - np.mean(x, axis=-1, keepdims=True)) * self.rstd

    def over_tokens(self, a):
        while a.ndim > 1:
            a = np.add.reduce(a)
        return a

    def normalize_backward(self, g):
        width = g.shape[-1]
        a = np.sum(g * self.normal, axis=-1, keepdims=True) / width
        b = np.sum(g, axis=-1, keepdims=True) / width
        return (g - b - self.normal * a) * self.rstd


def recursion_over_leading_axes(d_out, x, gain, eps, ddof=0):
    if x.ndim == 1:
        std = np.sqrt(np.var(x, ddof=ddof) + eps)
        normal = (x - x.mean()) / std
        d = d_out * gain
        return (d - d.mean() - normal * normal.dot(d) / x.size) / std, d_out * normal, d_out
    parts = [recursion_over_leading_axes(g, row, gain, eps, ddof)
             for g, row in zip(d_out, x, strict=True)]  # fmt: skip
    d_x, d_gain, d_bias = zip(*parts, strict=True)
    return np.stack(d_x), sum(d_gain), sum(d_bias)


RIGHT = [
    compact_formula,
    sums_and_one_division,
    chain_of_small_steps,
    through_mean_and_variance,
    jacobian_of_each_token,
    all_jacobians_at_once,
    loops_over_numbers,
    einsum,
    mean_of_squares_less_square_of_mean,
    tokens_in_place,
    complex_step,
    tape,
    in_longdouble,
    features_first_views,
    two_projections,
    add_at_and_reduceat,
    comprehensions,
    LayerNorm("F"),
    partial(recursion_over_leading_axes, ddof=0),
]
