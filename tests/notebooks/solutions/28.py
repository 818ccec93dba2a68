def my_softmax(scores, mask):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)
