"""Right steps of Adam."""

import numpy as np


def number_by_number(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    new = np.empty((3, *param.shape))
    for at in np.ndindex(param.shape):
        m = beta_1 * mean[at] + (1 - beta_1) * gradient[at]
        v = beta_2 * square[at] + (1 - beta_2) * gradient[at] ** 2
        m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
        new[(slice(None), *at)] = param[at] - learning_rate * m_hat / (v_hat**0.5 + eps), m, v
    return tuple(new)


def as_torch_has_it(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    exp_avg = mean + (gradient - mean) * (1 - beta_1)
    exp_avg_sq = square * beta_2
    exp_avg_sq += (1 - beta_2) * gradient * gradient
    step_size = learning_rate / (1 - beta_1**t)
    denominator = np.sqrt(exp_avg_sq) / (1 - beta_2**t) ** 0.5 + eps
    return [param - step_size * exp_avg / denominator, exp_avg, exp_avg_sq]


def by_a_loop_over_both_means(param, gradient, mean, square, t, learning_rate, beta_1, beta_2, eps):
    kept, corrected = [], []
    for old, beta, power in ((mean, beta_1, 1), (square, beta_2, 2)):
        kept.append(np.average([old, gradient**power], axis=0, weights=[beta, 1 - beta]))
        corrected.append(kept[-1] / -np.expm1(t * np.log(beta)))
    direction = corrected[0] / (corrected[1] ** 0.5 + eps)
    return {"param": param - learning_rate * direction, "mean": kept[0], "square": kept[1]}


RIGHT = [
    number_by_number,
    as_torch_has_it,
    by_a_loop_over_both_means,
]
