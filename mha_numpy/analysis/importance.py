"""How much heads matter by a gradient, and how much tokens matter by what is taken from them."""

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.nn import Layer, MultiHeadAttention
from mha_numpy.train import Batch, loss_and_gradients


def head_importance(model: Layer, batch: Batch) -> dict[str, Array]:
    """Return how much the loss depends on each head, by the gradient of its gate.

    ``importance_h = sum_b |d loss / d gate_bh|``, where each sequence b has a gate of its own and
    all gates are 1: a head that helps one sequence and hurts another matters twice.

    Parameters
    ----------
    model : Layer
        Its gradients are forgotten.
    batch : Batch

    Returns
    -------
    dict from the dotted name of each attention layer to an (H,) array
        In nats for each asked token: how much the loss would change to first order without the
        head, if all its changes had the same sign.

    Notes
    -----
    One backward gives the importance of all heads. It holds to first order, for small changes, and
    cutting a head is not a small change: compare with `cut_heads`. Source: Michel et al. 2019, *Are
    sixteen heads really better than one?*, eq. 2, without their norm for each layer.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16)
    >>> ids = np.array([[1, 2, 3, 4], [5, 4, 3, 2]])
    >>> {name: found.shape for name, found in head_importance(model, Batch((ids,), ids)).items()}
    {'attentions.0': (4,), 'attentions.1': (4,)}
    """
    layers = {
        name: layer for name, layer in model.named_layers() if isinstance(layer, MultiHeadAttention)
    }
    gates_before = {name: layer.head_gate for name, layer in layers.items()}
    was_training = model.training
    try:
        for layer in layers.values():
            before = 1 if layer.head_gate is None else layer.head_gate
            ones = np.ones((len(batch.inputs[0]), layer.num_heads), layer.params["w_o"].dtype)
            layer.head_gate = ones * before
        loss_and_gradients(model.eval(), batch)
        gradients = {
            name: np.asarray(layer.d_head_gate) for name, layer in layers.items()
        }  # (B, H)
        return {name: np.abs(d_gate).sum(axis=0) for name, d_gate in gradients.items()}
    finally:
        for name, layer in layers.items():
            layer.head_gate = gates_before[name]
        model.train(was_training).zero_grads()


def weights_times_norm(layer: MultiHeadAttention) -> Array:
    """Return the weights of the last forward, each times the length of its value.

    ``|weights_ij * (v_j w_o^h)|``: a head may give a token much weight and take next to nothing
    from it, because its value is short.

    Parameters
    ----------
    layer : MultiHeadAttention

    Returns
    -------
    (B, H, T_q, T_k) array

    Raises
    ------
    MhaError
        There was no forward before it.

    Notes
    -----
    Source: Kobayashi et al. 2020, *Attention is not only a weight: analyzing transformers with
    vector norms*, eq. 5.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> _ = layer(np.ones((3, 5, 8)))
    >>> weights_times_norm(layer).shape
    (3, 2, 5, 5)
    """
    v = layer.forward_cache.attention.inputs.v  # (B, H_kv, T_k, d_v)
    v = np.repeat(v, layer.num_heads // layer.num_kv_heads, axis=1)  # (B, H, T_k, d_v)
    w_o = layer.params["w_o"].reshape(layer.num_heads, layer.value_dim, -1)  # (H, d_v, D)
    norms = np.linalg.norm(v @ w_o, axis=-1)  # (B, H, T_k)
    return layer.weights * norms[:, :, None, :]
