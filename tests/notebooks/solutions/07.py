def my_softmax_with_lse(scores, mask):
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    sees_any = mask.any(axis=-1, keepdims=True)
    masked = np.where(mask, scores, -np.inf)
    largest = np.where(sees_any, masked.max(axis=-1, keepdims=True), 0)
    powers = np.exp(masked - largest)
    total = np.where(sees_any, powers.sum(axis=-1, keepdims=True), 1)
    lse = np.where(sees_any, largest + np.log(total), -np.inf)[..., 0]
    return powers / total, lse
