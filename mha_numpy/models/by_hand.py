"""Params that are not trained: each is set by hand, with the reason next to it."""

import numpy as np

from mha_numpy.checks import check_count
from mha_numpy.models.attention_only import AttentionOnlyLM

SHARPNESS = 20.0  # of a score where a head should look; e^20 leaves nothing for where it should not


def induction_by_hand(vocab_size: int = 32, max_tokens: int = 48) -> AttentionOnlyLM:
    """Return a model that copies what followed the last time, by two heads set by hand.

    Head 0.0 adds to each token which token comes before it. Head 1.0 attends to the token that
    comes after an earlier copy of the present one, and the model predicts that token.

    Parameters
    ----------
    vocab_size, max_tokens : int
        V, and N, the longest sequence.

    Returns
    -------
    AttentionOnlyLM
        Two layers of one head, D = 3 V + N, in `eval` mode.

    Notes
    -----
    The circuit is that of Elhage et al. 2021, *A mathematical framework for transformer
    circuits*, "induction heads". A trained model packs the same parts into a smaller D, where they
    overlap.

    Examples
    --------
    >>> model = induction_by_hand(vocab_size=10, max_tokens=8)
    >>> ids = np.array([[7, 1, 4, 9, 7, 1]])
    >>> model(ids).argmax(axis=-1)[0, -2:]  # after 7 came 1, after 1 came 4
    array([1, 4])
    """
    check_count("vocab_size", vocab_size)
    check_count("max_tokens", max_tokens)
    D = 3 * vocab_size + max_tokens
    model = AttentionOnlyLM(vocab_size, max_tokens, embed_dim=D, num_heads=1, num_layers=2)
    for _, param in model.named_params():
        param[...] = 0
    # four parts of D, that share nothing
    token, before, answer = (slice(i * vocab_size, (i + 1) * vocab_size) for i in range(3))
    place = slice(3 * vocab_size, D)
    # what a head uses of its D columns
    tokens, places = slice(vocab_size), slice(max_tokens)
    each_token, each_place = np.eye(vocab_size), np.eye(max_tokens)
    sharp = SHARPNESS * np.sqrt(D)  # scores are divided by sqrt(d_k), which is sqrt(D) here

    # one 1 for each token, and one for each place
    model.embedding.params["table"][:, token] = each_token
    model.positions.params["table"][:, place] = each_place

    # head 0.0: the query of place t meets the key of place t - 1 ...
    head = model.attentions[0].params
    head["w_q"][place, places] = sharp * np.eye(max_tokens, k=-1)
    head["w_k"][place, places] = each_place
    # ... and its token becomes the one before
    head["w_v"][token, tokens] = each_token
    head["w_o"][tokens, before] = each_token

    # head 1.0: the query of a token meets the key of one that came right after it ...
    head = model.attentions[1].params
    head["w_q"][token, tokens] = sharp * each_token
    head["w_k"][before, tokens] = each_token
    # ... but not of itself: at place 0 head 0.0 sees nothing else, and notes it
    head["w_k"][token, tokens] = -each_token
    # ... and its token becomes the answer
    head["w_v"][token, tokens] = each_token
    head["w_o"][tokens, answer] = each_token

    model.unembedding.params["w"][answer] = SHARPNESS * each_token
    return model.eval()
