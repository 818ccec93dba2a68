# one-query: scale missing


def my_one_query(q, k, v):
    scores = k @ q
    powers = np.exp(scores - scores.max())
    return powers / powers.sum() @ v
