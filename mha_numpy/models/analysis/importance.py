"""How much heads matter, by a gradient, and tokens, by what heads take from them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from mha_numpy.dtypes import Array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.layers.layer import in_eval_mode
from mha_numpy.models.analysis.layers import attention_layers


def gate_gradients(model: Layer, run: Callable[[], Any]) -> dict[str, Array]:
    """Return the gradient of each head's gate for each sequence.

    ``d_gate_bh = sum_id d_gated_bhid heads_bhid``: each sequence b has a separate gate for each
    head h, and all gates are 1.

    Parameters
    ----------
    model : Layer
        Its gradients are forgotten; in `run` it is in `eval` mode.
    run : function without arguments
        It runs the model forward, and backward from any scalar: a loss, or the output for one
        class. It may do so for several batches, one after the other.

    Returns
    -------
    dict from the name of each attention layer to a (B, H) array
        B sequences of all batches together. If `run` differentiates a mean over a batch, each row
        is the share of that sequence in the mean.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> x = np.random.default_rng(0).normal(size=(3, 5, 8))
    >>> found = gate_gradients(layer, lambda: layer.backward(2 * layer(x)))  # of the sum of out^2
    >>> found[""].shape  # the layer itself has no name
    (3, 2)
    """
    with ExitStack() as gates:
        found = {
            name: gates.enter_context(_gated_by_sequence(layer))
            for name, layer in attention_layers(model).items()
        }
        try:
            with in_eval_mode(model):
                run()
        finally:
            model.zero_grads()
    for name, gradients in found.items():
        if not gradients:
            raise ConfigError(
                f"run: expected a forward and a backward of the whole model; got no backward of "
                f"its layer {name!r}"
            )
    return {name: np.concatenate(gradients) for name, gradients in found.items()}


def head_importance(
    model: Layer,
    run: Callable[[], Any],
    *,
    each_sequence: bool = True,
    normalize: bool = False,
) -> dict[str, Array]:
    """Return how much a scalar depends on each head, by the gradient of its gate.

    ``importance_h = sum_b |d_gate_bh|``: a head that helps one sequence and hurts another matters
    twice.

    Parameters
    ----------
    model, run
        As for `gate_gradients`.
    each_sequence : bool
        False: ``|sum_b d_gate_bh|``, where one sequence's help and another's harm cancel.
    normalize : bool
        Divide the numbers of each layer by their length, the root of the sum of their squares, as
        Michel et al. do. This compares heads within their layer, and all layers count equally.

    Returns
    -------
    dict from the name of each attention layer to an (H,) array
        In the unit of the scalar: how much it would change to first order without the head, if all
        its changes had the same sign.

    Notes
    -----
    Cutting a head is not a small change: compare with `ablation_scores`. Source: Michel et al.
    2019, *Are sixteen heads really better than one?*, eq. 2; `normalize`: section 4.1.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> from mha_numpy.models.train import Batch, loss_and_gradients
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16)
    >>> ids = np.array([[1, 2, 3, 4], [5, 4, 3, 2]])
    >>> found = head_importance(model, lambda: loss_and_gradients(model, Batch((ids,), ids)))
    >>> {name: importance.shape for name, importance in found.items()}
    {'attentions.0': (4,), 'attentions.1': (4,)}
    """
    found = gate_gradients(model, run)
    importance = {
        name: np.abs(d_gate).sum(axis=0) if each_sequence else np.abs(d_gate.sum(axis=0))
        for name, d_gate in found.items()
    }
    if normalize:
        importance = {name: one / (np.linalg.norm(one) or 1) for name, one in importance.items()}
    return importance


@contextmanager
def _gated_by_sequence(layer: MultiHeadAttention) -> Iterator[list[Array]]:
    """Gate the heads of each sequence by ones; yield a list for the gates' (B, H) gradients."""
    found: list[Array] = []
    before = layer.head_gate

    def forward(query: Array, *inputs: Any, **options: Any) -> Any:
        ones = np.ones((len(query), layer.num_heads), layer.params["w_o"].dtype)
        layer.head_gate = ones if before is None else ones * before
        return type(layer).forward(layer, query, *inputs, **options)

    def backward(d_out: Array) -> Any:
        d_inputs = type(layer).backward(layer, d_out)
        found.append(layer.d_options["head_gate"])
        return d_inputs

    vars(layer).update(forward=forward, backward=backward)
    try:
        yield found
    finally:
        del layer.forward, layer.backward  # the class has its own
        layer.head_gate = before


def weights_times_norm(layer: MultiHeadAttention) -> Array:
    """Return the weights of the last forward, each times the length of its value.

    ``|weights_ij * (v_j w_o^h)|``: a head may give a token a large weight and take almost nothing
    from it, because its value is short.

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
