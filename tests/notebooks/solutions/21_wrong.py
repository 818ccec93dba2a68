# cross-entropy-backward: ignored tokens keep their softmax


def my_cross_entropy_backward(d_loss, logits, targets, ignored):
    probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)
    counted = targets != ignored
    one_hot = targets[..., None] == np.arange(logits.shape[-1])
    return d_loss * (probs - one_hot) / counted.sum()  # for padding too
