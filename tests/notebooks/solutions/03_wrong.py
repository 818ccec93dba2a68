def my_softmax(scores, mask):
    masked = np.where(mask, scores, -np.inf)
    largest = masked.max()  # one for all rows
    powers = np.exp(masked - largest)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / total, (largest + np.log(total))[..., 0]
