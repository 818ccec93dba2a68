"""walk(): run one layer forward and backward on real input, and keep everything."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.checking import gradcheck
from mha_numpy.checking.tracing import trace
from mha_numpy.checks import check_count
from mha_numpy.core import (
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from mha_numpy.errors import ConfigError, describe
from mha_numpy.show.walk.example import example_setting
from mha_numpy.show.walk.result import Setting, Walk
from mha_numpy.show.walk.untrained import random_setting

DTYPES = ("float16", "float32", "float64")


def walk(
    text: str | None = None,
    *,
    model: str | Path | None = None,
    params: str | Path | None = None,
    layer: int | None = None,
    file: str | Path | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    dim: int | None = None,
    causal: bool = False,
    cross: str | None = None,
    dtype: str = "float64",
    seed: int = 0,
) -> Walk:
    """Run multi-head attention on a sentence, forward and backward, and check every gradient.

    Without a text it takes the example, "The cat ate fish. It purred.": its features have names,
    and its two heads were set by hand. With a text of yours, the params are random, or those of a
    model that has learned.

    Parameters
    ----------
    text : str, optional
        The sentence; its tokens get vectors from `seed`, or from the trained model.
    model : str or path, optional
        A trained model: one of its attention layers is shown, with what flows into it when the
        model reads the text, and what the model says. It goes with `params`, `layer`, `dtype` and
        `seed` alone. "reverse", "induction", "numbers" and "text" are shipped; "minilm", or a
        folder with another pretrained model, is read by `mha_numpy.models.from_pretrained`.
    params : path, optional
        The params of a shipped model, as ``mha-numpy train NAME --save DIR`` has written them to
        ``DIR/params.npz``; default: those that are shipped.
    layer : int, optional
        Which of the L layers of a model that is not shipped: 0 to L - 1; default the last.
    file : path, optional
        Instead of `text`: a .npy or .npz file with a (T, D) or (B, T, D) array of yours.
    heads, kv_heads : int
        Query heads, default 4, and key/value heads if fewer.
    dim : int, optional
        D; default 16, or what the file has.
    causal : bool
        Let each token see only itself and those before it.
    cross : str, optional
        Another sentence that keys and values come from.
    dtype : {"float64", "float32", "float16"}
        Of the two passes that are shown; gradients are checked in float64.
    seed : int
        Seeds the upstream gradient; without `model` the vectors and the params, too.

    Returns
    -------
    Walk

    Examples
    --------
    >>> seen = walk("to be or not to be", heads=2, dim=8)
    >>> seen.weights.shape, bool(seen.report)
    ((1, 2, 6, 6), True)
    >>> walk("3 1 4 1 5 9 2 6 5 3 5 8", model="reverse").said
    ('the model says: 8 5 3 5 6 2 9 5 1 4 1 3',)
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype: expected one of {', '.join(DTYPES)}; got {describe(dtype)}")
    check_count("seed", seed, least=0)
    random: dict[str, Any] = {
        "file": file, "heads": heads, "kv_heads": kv_heads, "dim": dim, "causal": causal,
        "cross": cross,
    }  # fmt: skip
    if model is None:
        if params is not None:
            raise ConfigError("params: expected model=, the model that they belong to; got none")
        if layer is not None:
            raise ConfigError("layer: expected model=, the model that it is of; got none")
        if text is None and file is None:
            _expect_none(" without a text: the example has its own layer and inputs", **random)
            return _go(example_setting(seed), dtype)
        if text is not None and file is not None:
            raise ConfigError("text: expected a sentence or --input FILE, not both; got both")
        return _go(random_setting(text, seed=seed, **random), dtype)
    from mha_numpy.models.train.recipes import RECIPES, load_trained
    from mha_numpy.show.walk.pretrained import pretrained_setting
    from mha_numpy.show.walk.trained import trained_setting

    name = str(model)
    _expect_none(f" with model={name!r}, which has its own layer and inputs", **random)
    if name not in RECIPES:
        _expect_none(f" with model={name!r}, which has its own", params=params)
        return _go(pretrained_setting(model, text, layer=layer, seed=seed), dtype)
    _expect_none(f" with model={name!r}, which shows one layer", layer=layer)
    return _go(trained_setting(load_trained(name, params=params), text, seed=seed), dtype)


def _expect_none(why: str, **options: Any) -> None:
    """Raise a ConfigError that names the first option that is given."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise ConfigError(f"{name}: expected none{why}")


def _go(setting: Setting, dtype: str) -> Walk:
    """Check the gradients of a layer, and run it forward and backward under a trace."""
    seed = setting.seed
    forward = partial(multi_head_attention_forward, is_causal=setting.is_causal, **setting.options)
    params: Any = setting.params
    x_q = setting.inputs["x_q"]
    is_small = max(x_q.shape[1:]) <= 64  # else each forward takes long: check fewer numbers
    report = gradcheck(
        forward, multi_head_attention_backward,
        {**setting.inputs, "params": params}, rng=seed,
        max_full=256 if is_small else 16, samples=64 if is_small else 8,
        directions=4 if is_small else 2,
    )  # fmt: skip

    narrow = [None if array is None else array.astype(dtype) for array in params]
    inputs: Any = {name: x.astype(dtype) for name, x in setting.inputs.items()}
    d_out = setting.d_out
    if d_out is None:
        d_out = np.random.default_rng(seed).normal(size=x_q.shape)
    with trace() as recorded:
        _, cache = forward(**inputs, params=type(params)(*narrow))
        multi_head_attention_backward(d_out.astype(dtype), cache)
    attention = cache.attention
    return Walk(
        **{**vars(setting), "d_out": d_out}, trace=recorded, weights=attention.weights,
        visible=attention.inputs.visible, report=report,
    )  # fmt: skip
