# attention: softmax over queries


def my_attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores = scores - scores.max(axis=0)
    powers = np.exp(scores)
    return powers / powers.sum(axis=0) @ v  # over the queries
