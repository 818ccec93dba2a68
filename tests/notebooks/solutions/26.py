def my_online_attention(q, k, v, block):
    total, head = 0.0, 0.0
    largest = np.full((len(q), 1), -np.inf)
    for start in range(0, len(k), block):
        scores = q @ k[start : start + block].T / np.sqrt(q.shape[-1])
        before = largest
        largest = np.maximum(before, scores.max(axis=-1, keepdims=True))
        factor, powers = np.exp(before - largest), np.exp(scores - largest)
        total = total * factor + powers.sum(axis=-1, keepdims=True)
        head = head * factor + powers @ v[start : start + block]
    return head / total
