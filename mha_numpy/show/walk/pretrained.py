"""One attention layer of a model from elsewhere, with its inputs while it reads a text."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.checks import check_integer
from mha_numpy.core import softmax_forward
from mha_numpy.errors import ConfigError, describe, did_you_mean
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.layers.params_file import PathLike
from mha_numpy.models import Bert, from_pretrained
from mha_numpy.models.pretrained import PACKAGES, find_model
from mha_numpy.models.text import BLANKS
from mha_numpy.models.train.recipes import RECIPES
from mha_numpy.show.walk.result import Setting
from mha_numpy.show.walk.trained import LIKELIEST, SHOWN, about, what_comes_next

NOTHING_IS_SAID = (
    "This model predicts no word; it gives each token a vector.\n"
    "A weight shows where a head reads, not why."
)


def pretrained_setting(
    source: PathLike, text: str | None, *, layer: int | None = None, seed: int = 0
) -> Setting:
    """Let a model from a folder or a Python package read a text, and return one of its layers.

    Params and inputs are float64; the model reads the text in float32. The last layer is the
    default, and the seed draws the upstream gradient.

    Examples
    --------
    >>> setting = pretrained_setting("minilm", "A cat sat.", layer=0)  # doctest: +SKIP
    >>> setting.tokens, setting.inputs["x_q"].shape  # doctest: +SKIP
    (['[CLS]', 'a', 'cat', 'sat', '.', '[SEP]'], (1, 6, 384))
    """
    _check_name(str(source))
    if text is None or not text.strip():
        raise ConfigError(f"text: expected a sentence; got {describe(text)}")
    folder = find_model(source)
    model = from_pretrained(folder)
    L = len(model.blocks)
    number = L - 1 if layer is None else check_integer("layer", layer)
    if not 0 <= number < L:
        raise ConfigError(f"layer: expected 0 to {L - 1}, as {source} has {L} layers; got {layer}")
    ids, tokens = _read(model, folder, text)
    out = model(ids)
    block = model.blocks[number]
    attention = block.attention.layer
    if not isinstance(attention, MultiHeadAttention):
        raise ConfigError(
            f"model: expected multi-head attention in layer {number}, which a walk can show; "
            f"got {type(attention).__name__}"
        )
    x = attention.forward_cache.project_q.x
    whose = "Trained by others" if str(source) in PACKAGES else "Params from a folder"
    whose = f"{whose} ({_title(folder) or source})"
    place = f"blocks.{number}.attention, number {number} of its layers 0 to {L - 1}"
    return Setting(
        layer=attention.astype(np.float64),
        inputs={"x_q": x.astype(np.float64)},
        tokens=tokens,
        source_tokens=tokens,
        is_causal=block.is_causal,
        window=block.window,
        softcap=block.softcap,
        scale=block.scale,
        model=str(source),
        **about(whose, place, seed),
        said=(NOTHING_IS_SAID,) if isinstance(model, Bert) else _next_token(model, out[0, -1]),
    )


def _check_name(source: str) -> None:
    """Raise a ConfigError for a word that is neither a model's name nor a folder's."""
    if source not in PACKAGES and not {"/", os.sep} & set(source) and not Path(source).is_dir():
        known = [*RECIPES, *PACKAGES]
        advice = did_you_mean(source, known)
        raise ConfigError(
            f"model: expected one of {', '.join(known)}, or a folder with config.json, "
            f"tokenizer.json and model.safetensors; got {source!r}{advice and f'; {advice}'}"
        )


def _read(model: Any, folder: Path, text: str) -> tuple[Any, list[str]]:
    """Return the numbers of a text's tokens, (1, T), and their names."""
    if model.tokenizer is None:
        raise ConfigError(f"model: expected tokenizer.json in {folder}; got none")
    found = model.tokenizer(text)
    ids, names = found.ids, found.names[0]
    if not 0 < len(names) <= model.max_tokens:
        raise ConfigError(f"text: expected 1 to {model.max_tokens} tokens; got {len(names)}")
    return ids, [_shown(model, name) for name in names]


def _shown(model: Any, name: str) -> str:
    """Return a token with blanks that can be seen; those of BERT are words without any."""
    return name if isinstance(model, Bert) else name.translate(BLANKS).translate(SHOWN)


def _next_token(model: Any, logits: Any) -> tuple[Any, ...]:
    probs, _ = softmax_forward(logits)
    told = {}
    for i in probs.argsort()[::-1][:LIKELIEST]:
        name = model.tokenizer.rules.id_to_token(int(i))
        told[f"number {i}" if name is None else _shown(model, name)] = float(probs[i])
    return what_comes_next(told, "token")


def _title(folder: Path) -> str:
    """Return what a model's README calls it, "" where it does not say."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
    titles = (line[2:].strip() for line in text.splitlines() if line.startswith("# "))
    return next(titles, "")
