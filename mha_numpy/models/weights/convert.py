"""Params of other libraries into our layers, and ours into theirs."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checks import check_choice
from mha_numpy.dtypes import Array, as_array
from mha_numpy.errors import ConfigError, describe
from mha_numpy.layers import GatedDeltaNet, Layer, MultiHeadAttention
from mha_numpy.layers.layer import check_layer
from mha_numpy.layers.params_file import in_dtype, mismatch
from mha_numpy.models.weights.layout import (
    Layout,
    left_out,
    names_in,
    outline,
    plain_names,
    side_by_side,
    to_ours,
    to_theirs,
)
from mha_numpy.models.weights.layouts import LAYOUTS

AnyLayer = TypeVar("AnyLayer", bound=Layer)


@explained
def from_layout(layer: AnyLayer, arrays: Mapping[str, Array], layout: str) -> AnyLayer:
    """Give a layer the params of another library's layer: all of them or, if one is wrong, none.

    Parameters
    ----------
    layer : Layer
        Of the same sizes and options. Its dtypes stay; gradients and caches are forgotten.
    arrays : dict from their names to arrays
        From PyTorch ``layer.state_dict()``; from Keras
        ``{w.path.split("/", 1)[1]: w.numpy() for w in layer.weights}``.
    layout : str
        A name in `LAYOUTS`: "torch" or "torch-separate" for nn.MultiheadAttention, "torch-layer"
        for Linear, LayerNorm, RMSNorm and Embedding, "torch-encoder-layer",
        "torch-decoder-layer", "keras", "flax", "gpt2-attention", "bert", "gpt2", "llama", which is
        that of Mistral and Qwen3 too, "gemma", "olmo2", "deepseek-v3", "gpt-oss", "qwen3-next",
        "qwen3.5".

    Returns
    -------
    the layer itself

    Notes
    -----
    Another library's arrays are ``stored(concatenate(ours, axis=-1))``, row by row of a table
    (``weights/layouts.py``): transposed, side by side, in turns or split into heads, never
    anything else.

    PyTorch's encoder and decoder layers are post-norm with ReLU unless you say otherwise, and a
    block here is pre-norm with GELU: write
    ``EncoderBlock(D, H, F, norm_first=False, activation="relu")``. If the scores use the
    embedding's table (``tied=True``), `arrays` may contain it a second time, as lm_head.weight.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=4, num_heads=2)
    >>> arrays = {
    ...     "in_proj_weight": np.arange(48.0).reshape(12, 4), "in_proj_bias": np.zeros(12),
    ...     "out_proj.weight": np.eye(4), "out_proj.bias": np.zeros(4),
    ... }
    >>> from_layout(layer, arrays, "torch").params["w_k"]
    array([[16., 20., 24., 28.],
           [17., 21., 25., 29.],
           [18., 22., 26., 30.],
           [19., 23., 27., 31.]])
    """
    found = check_layout(layer, arrays, layout)
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise ConfigError(f"arrays: expected finite numbers; got NaN or inf in {name}")
    params = dict(layer.named_params())
    ours = to_ours(found, LAYOUTS[layout], params, _sizes(layer))
    for name, array in ours.items():
        in_dtype(name, array, params[name].dtype)
    for name, array in ours.items():
        params[name][...] = array
    return layer.forget()


def check_layout(layer: Layer, arrays: Mapping[str, Array], layout: str) -> dict[str, Array]:
    """Raise a ConfigError unless names, shapes and kinds of arrays are those of a layer's layout.

    Return the arrays by the names in the layout's rows. The layer's numbers are not read, and of
    the arrays only those of a table that occurs twice.
    """
    table = _layout_of(layer, layout)
    params = dict(layer.named_params())
    expected = plain_names(to_theirs(params, table, _sizes(layer), outline), table)
    if not isinstance(arrays, Mapping):
        raise ConfigError(f"arrays: expected a dict from names to arrays; got {describe(arrays)}")
    named = {
        str(name): as_array(f"arrays[{name!r}]", array, "a float array", ConfigError)
        for name, array in arrays.items()
    }
    found = _without_copy(plain_names(named, table), table, params)
    if wrong := mismatch(found, expected):
        raise ConfigError(
            f"arrays: expected {len(expected)} with the names and shapes of layout {layout!r}; "
            f"got {wrong}{_hint(found, table, params)}"
        )
    return found


def _without_copy(
    found: dict[str, Array], table: Layout, params: Mapping[str, Array]
) -> dict[str, Array]:
    """Leave out the second copy of an embedding's table, for scores that use it."""
    theirs = {row.ours: row.theirs for row in table.rows}
    scores, tokens = (theirs.get(name, "") for name in ("unembedding.w", "embedding.table"))
    if scores not in found or "unembedding.w" in params:
        return found
    held = found.get(tokens.removeprefix(table.prefix), found[scores])
    if not np.array_equal(held, found[scores]):
        raise ConfigError(
            f"{scores}: expected the numbers of {tokens}, as tie_word_embeddings (here tied=True) "
            "says; got different ones"
        )
    return {name: array for name, array in found.items() if name != scores}


@explained
def to_layout(layer: Layer, layout: str, *, gradients: bool = False) -> dict[str, Array]:
    """Return a layer's params as another library stores them.

    Parameters
    ----------
    layer : Layer
    layout : str
        A name in `LAYOUTS`.
    gradients : bool
        Return the params' gradients instead, to compare them with the other library's.

    Returns
    -------
    dict from their names to arrays
        For PyTorch's ``load_state_dict``, with ``torch.tensor`` around each array; for Keras each
        layer's ``assign``.

    Examples
    --------
    >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2)
    >>> {name: array.shape for name, array in to_layout(layer, "keras").items()}["query/kernel"]
    (8, 2, 4)
    """
    table = _layout_of(layer, layout)
    named = layer.named_grads() if gradients else layer.named_params()
    theirs = to_theirs(dict(named), table, _sizes(layer), side_by_side, gradients=gradients)
    return {name: np.array(array, order="C") for name, array in theirs.items()}


def _layout_of(layer: Layer, layout: str) -> Layout:
    check_layer("layer", layer)
    table = LAYOUTS[check_choice("layout", layout, LAYOUTS)]
    params = dict(layer.named_params())
    if missing := left_out(params, table):
        fitting = (name for name, other in LAYOUTS.items() if not left_out(params, other))
        advice = next((f"; write {name!r}" for name in fitting), "")
        raise ConfigError(
            f"layout: expected one that holds all params of this {type(layer).__name__}; "
            f"{layout!r} has no place for {', '.join(missing[:3])}{advice}"
        )
    return table


def _sizes(layer: Layer) -> dict[str, int]:
    if not isinstance(layer, MultiHeadAttention):
        mixers = [part for part in layer.layers() if isinstance(part, GatedDeltaNet)]
        H_k = mixers[0].num_key_heads if mixers else 1
        return {"H": getattr(layer, "num_heads", 1), "H_k": H_k}
    return {
        "D": layer.embed_dim, "kdim": layer.kdim, "vdim": layer.vdim, "H": layer.num_heads,
        "H_kv": layer.num_kv_heads, "d_k": layer.head_dim, "d_v": layer.value_dim, "1": 1,
    }  # fmt: skip


def _hint(found: Mapping[str, Array], table: Layout, params: Mapping[str, Array]) -> str:
    for name, other in LAYOUTS.items():
        if other is not table and names_in(params, other) == set(found):
            return f"; these are the names of layout {name!r}"
    if ("bias_k" in found) != ("extra_k" in params):
        return f"; make the layer with add_bias_kv={'bias_k' in found}"
    return ""
