"""Cuts: a layer or a model without some of its heads, for a while."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from mha_numpy.checks import check_shape
from mha_numpy.dtypes import Array, as_float_array
from mha_numpy.errors import ConfigError
from mha_numpy.layers import Layer, MultiHeadAttention
from mha_numpy.models.analysis.layers import check_counted, check_heads, check_layers


@contextmanager
def cut_heads(
    layer: MultiHeadAttention, heads: int | Sequence[int], *, means: Array | None = None
) -> Iterator[None]:
    """Cut heads while a `with` block runs; afterwards the layer is as it was.

    A head that is cut writes 0, by its gate, or with `means` the same vector for every token. A
    cut by 0 also removes the constant part that later layers rely on for any tokens; a cut by the
    mean removes only the part that depends on these tokens.

    Parameters
    ----------
    layer : MultiHeadAttention
    heads : int or ints
        Numbers from 0 to H - 1.
    means : (H, d_v) float array, optional
        From `mean_heads`: the mean output of each head.

    Notes
    -----
    The mean of head h, times its rows of w_o, is added to b_o. Sources: cut by 0: Michel et al.
    2019, *Are sixteen heads really better than one?*, section 3; by the mean: Wang et al. 2022,
    *Interpretability in the wild*, section 2.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> x = np.random.default_rng(0).normal(size=(3, 5, 8))
    >>> whole, means = layer(x), mean_heads(layer)
    >>> with cut_heads(layer, [0, 1]):
    ...     without = layer(x)
    >>> with cut_heads(layer, [0, 1], means=means):
    ...     on_average = layer(x)
    >>> bool((without == 0).all()), np.allclose(on_average, whole.mean(axis=(0, 1)))
    (True, True)
    >>> bool((layer(x) == whole).all())
    True
    """
    H, params = layer.num_heads, layer.params
    cut = check_heads(heads, layer)
    gate_before, b_o_before = layer.head_gate, params.get("b_o")

    w_o = params["w_o"]
    gate = np.ones(H, w_o.dtype) if gate_before is None else gate_before.copy()
    gate[..., cut] = 0
    if means is not None:
        if layer.gated:
            raise ConfigError(
                "means: expected none for a layer with an output gate, which lets each token keep "
                "a different share of the mean"
            )
        means = as_float_array("means", means)
        check_shape("means", means, "H d_v", {"H": H, "d_v": layer.value_dim}, to_match="the layer")
        is_cut = np.isin(np.arange(H), cut)[:, None]
        from_means = np.where(is_cut, means, 0).reshape(-1) @ w_o  # (D,)
        b_o = from_means if b_o_before is None else b_o_before + from_means
    layer.head_gate = gate
    try:
        if means is not None:
            params["b_o"] = b_o.astype(w_o.dtype, copy=False)
        yield
    finally:
        layer.head_gate = gate_before
        params.pop("b_o", None)
        if b_o_before is not None:
            params["b_o"] = b_o_before


@contextmanager
def cut_model(
    model: Layer,
    heads: Mapping[str, int | Sequence[int]],
    *,
    means: Mapping[str, Array] | None = None,
) -> Iterator[None]:
    """Cut heads of several layers while a `with` block runs, as `cut_heads` does in each.

    Both dicts have names of `attention_layers`; `means` has them for all layers that are cut.

    Examples
    --------
    >>> from mha_numpy.models import AttentionOnlyLM
    >>> model, ids = AttentionOnlyLM(vocab_size=8, max_tokens=4, embed_dim=16), np.array([[1, 2]])
    >>> with cut_model(model, {"attentions.0": range(4), "attentions.1": range(4)}):
    ...     without = model(ids)
    >>> np.allclose(without, model.unembedding(model.embedding(ids)))
    True
    """
    layers = check_layers(model, heads)
    if means is not None and (missing := [name for name in heads if name not in means]):
        raise ConfigError(f"means: expected one for each layer that is cut; got none for {missing}")
    with ExitStack() as cuts:
        for name, layer in layers.items():
            its_means = None if means is None else means[name]
            cuts.enter_context(cut_heads(layer, heads[name], means=its_means))
        yield


def mean_heads(layer: MultiHeadAttention, counted: Array | None = None) -> Array:
    """Return the mean output of each head in the last forward.

    Parameters
    ----------
    layer : MultiHeadAttention
    counted : (B, T_q) bool array, optional
        Which tokens count; default all.

    Returns
    -------
    (H, d_v) array, before the gate and w_o

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> _ = layer(np.ones((3, 5, 8)))
    >>> mean_heads(layer).shape
    (2, 4)
    """
    heads = layer.forward_cache.attention.heads  # (B, H, T_q, d_v)
    B, _, T_q, _ = heads.shape
    counted = check_counted(counted, "B T_q", {"B": B, "T_q": T_q}, "the last forward")
    return heads.swapaxes(1, 2)[counted].mean(axis=0)
