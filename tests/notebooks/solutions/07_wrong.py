# softmax-with-lse: one maximum for all


def my_softmax_with_lse(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    sees_any = mask.any(axis=-1, keepdims=True)
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max()  # one for all rows
    powers = np.exp(masked - largest)
    total = np.where(sees_any, powers.sum(axis=-1, keepdims=True), 1)
    lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]
    return powers / total, lse
