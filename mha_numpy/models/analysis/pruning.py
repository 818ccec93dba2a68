"""Pruning: heads that are cut for good take their params with them."""

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.models.analysis.layers import check_heads, check_layers


def prune_heads(layer: MultiHeadAttention, heads: int | Sequence[int]) -> MultiHeadAttention:
    """Return a smaller layer without some of its heads, which computes as if their gates were 0.

    Head h reads its own columns of w_q, w_k and w_v, and writes through its own rows of w_o:
    ``out = sum_h heads_h w_o^h + b_o``. So every param that belongs only to removed heads can go.

    Parameters
    ----------
    layer : MultiHeadAttention
        It stays as it is.
    heads : int or ints
        The heads to cut, from 0 to H - 1. With grouped heads each group has to keep the same
        number, or none; then its keys and values go too.

    Returns
    -------
    MultiHeadAttention, with copies of the params that stay, and without gradients

    Notes
    -----
    A mask or bias with an axis H loses the same heads. Source: Michel et al. 2019, *Are sixteen
    heads really better than one?*, section 4.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=4)
    >>> smaller = prune_heads(layer, [0, 2])
    >>> smaller
    MultiHeadAttention(embed_dim=8, num_heads=2, head_dim=2, 148 parameters)
    >>> x = np.random.default_rng(0).normal(size=(3, 5, 8))
    >>> np.allclose(smaller(x), layer(x, head_gate=np.array([0.0, 1.0, 0.0, 1.0])))
    True
    """
    H, H_kv = layer.num_heads, layer.num_kv_heads
    stays = ~np.isin(np.arange(H), check_heads(heads, layer))  # (H,)
    in_group = stays.reshape(H_kv, H // H_kv).sum(axis=1)  # (H_kv,): how many heads stay
    group_stays = in_group > 0
    if not stays.any():
        raise ConfigError(
            f"heads: expected one of the {H} heads to stay; got all; `cut_heads` switches a whole "
            "layer off, or leave it out of the model"
        )
    if len(set(in_group[group_stays])) > 1:
        raise ConfigError(
            f"heads: expected each group of {H // H_kv} heads to keep the same number, or none; "
            f"got {heads}, after which the {H_kv} groups keep {', '.join(map(str, in_group))}; cut "
            "the same number of each group, or whole groups"
        )

    if layer.qk_norm is not None and layer.qk_norm.place == "projection":
        raise ConfigError(
            "layer: expected a norm of each head, or none; a norm of the whole projection changes "
            "with every head that goes"
        )

    # the columns of w_q, w_k, w_v and the rows of w_o that belong to a head that stays
    rows = np.repeat(stays, layer.value_dim)
    columns = {
        "q": np.repeat(stays, layer.head_dim),
        "k": np.repeat(group_stays, layer.head_dim),
        "v": np.repeat(group_stays, layer.value_dim),
        "o": np.ones(layer.embed_dim, bool),
        "gate": stays if layer.gated == "heads" else rows,
        "sink": stays,
    }

    pruned = copy.copy(layer)
    pruned._cache, pruned.grads, pruned.uses = None, {}, {}
    pruned.d_options = {}
    pruned.num_heads, pruned.num_kv_heads = int(stays.sum()), int(group_stays.sum())
    pruned.params = {
        name: param.copy() if name.startswith("gain_")  # all heads have the same
        else np.compress(columns[name.rpartition("_")[2]], param, axis=-1)
        for name, param in layer.params.items()
    }  # fmt: skip
    pruned.params["w_o"] = np.compress(rows, layer.params["w_o"], axis=0)
    if layer.head_gate is not None:
        pruned.head_gate = np.compress(stays, layer.head_gate, axis=-1)
    return pruned


def prune_model(model: Layer, heads: Mapping[str, int | Sequence[int]]) -> None:
    """Prune layers of a model in place, all of them or none: afterwards it has fewer params.

    Parameters
    ----------
    model : Layer
        Its gradients are forgotten. An optimizer or a KV cache made for its old params has to be
        made again.
    heads : dict from names of layers to numbers of heads
        Names as in `attention_layers`; the heads to cut, as in `prune_heads`. ``curve.first(n)`` of
        a `pruning_curve` returns such a dict.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> model = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16)
    >>> before = model.num_parameters
    >>> prune_model(model, {"attentions.0": [0, 3], "attentions.1": 2})
    >>> before - model.num_parameters  # three of eight heads: 3 * 4 * 16 * 4
    768
    """
    layers = check_layers(model, heads)
    pruned = {name: prune_heads(layer, heads[name]) for name, layer in layers.items()}
    for name, layer in layers.items():
        vars(layer).update(vars(pruned[name]))  # all references to the layer see the smaller one
    model.zero_grads()
