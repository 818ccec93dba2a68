"""One attention layer of a trained model, with its inputs while the model reads a text."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from mha_numpy.core import softmax_forward
from mha_numpy.errors import ConfigError, describe
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models import generate, translate
from mha_numpy.models.train.recipes import Trained
from mha_numpy.models.train.tasks.numbers import GERMAN
from mha_numpy.models.translator import START
from mha_numpy.show.walk.result import Setting
from mha_numpy.show.walk.tokens import tokenize
from mha_numpy.tables import Table

LIKELIEST = 3  # words shown with their probabilities
WRITTEN = 80  # characters
TEMPERATURE = 0.8  # of what is written
DIGITS = "such as '3 1 4 1 5 9 2 6 5 3 5 8'"
SHOWN = str.maketrans({" ": "\u2423", "\n": "\u21b5"})  # blanks that can be seen

Read: TypeAlias = tuple[MultiHeadAttention, str, dict[str, Any]]  # a layer, its place, what is told


def trained_setting(trained: Trained, text: str | None, *, seed: int = 0) -> Setting:
    """Let a trained model read a text, and return the layer that shows most about it.

    Each model reads its own kind of text; the seed draws what a text model writes.

    Examples
    --------
    >>> from mha_numpy.models.train.recipes import load_trained
    >>> setting = trained_setting(load_trained("induction"), "a b c d a b c")
    >>> print(setting.said[0])
    the model says: d comes next
    """
    reader, expected = READERS[trained.name]
    if text is None or not text.strip():
        raise ConfigError(f"text: expected {expected}; got {describe(text)}")
    layer, place, told = reader(trained, text, seed)
    cache = layer.forward_cache
    inputs = {"x_q": cache.project_q.x}  # (B, T_q, D)
    if cache.inputs.is_given[0]:
        inputs["x_k"] = cache.project_k.x
    if cache.inputs.is_given[1]:
        inputs["x_v"] = cache.project_v.x
    return Setting(
        layer=layer,
        inputs=inputs,
        model=trained.name,
        **about(f"Trained ({trained.origin})", place, seed),
        **told,
    )


def about(whose: str, place: str, seed: int) -> dict[str, Any]:
    """Return what a Setting says of a model's layer, in full and in a line."""
    read = f"{whose}: you see {place}, while the model reads this text."
    random = f"Only the upstream gradient is random (seed {seed})."
    return {"seed": seed, "about": f"{read} {random}", "note": f"{whose}: {place}."}


def _read_induction(trained: Trained, text: str, seed: int) -> Read:
    words = tokenize(text)
    known = list(dict.fromkeys(words))
    V, T = trained.task.vocab_size, trained.task.num_tokens
    if len(known) > V or len(words) > T:
        raise ConfigError(
            f"text: expected at most {T} words, {V} of them different; "
            f"got {len(words)}, {len(known)} of them different"
        )
    ids = np.array([[known.index(word) for word in words]])
    probs, _ = softmax_forward(trained.model(ids)[0, -1])
    likely = dict(zip(known, probs, strict=False))
    if len(known) < V:
        likely["another word"] = probs[len(known) :].sum()
    said = what_comes_next(likely, "word")
    place = "the second of its two attention layers, where the heads copy"
    told = {"tokens": words, "source_tokens": words, "is_causal": True, "said": said}
    return trained.model.attentions[1], place, told


def what_comes_next(probabilities: Mapping[str, float], kind: str) -> tuple[str, Table]:
    """Say which of the words or tokens, whichever `kind` they are, are the likeliest."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])[:LIKELIEST]
    rows = [[word, f"{probability:.3f}"] for word, probability in ranked]
    return (
        f"the model says: {ranked[0][0]} comes next",
        Table("WHAT COMES NEXT, the likeliest", [kind, "probability"], rows),
    )


def _read_numbers(trained: Trained, text: str, seed: int) -> Read:
    """Read an English number, write it in German, and look back at what was read in each step."""
    task, model = trained.task, trained.model
    source = task.read(text)
    written = translate(model, source)
    model(source, np.array([[START, *written[:-1]]]))
    german = task.words(written, GERMAN)
    told = {
        "tokens": german, "source_tokens": task.words(source[0]),
        "is_cross": True,
        "query_name": "the word that this step writes", "key_name": "the words that it reads",
        "said": (f"the model says: {' '.join(word for word in german if word != '<end>')}",),
    }  # fmt: skip
    place = "the decoder's cross-attention, where it looks at the English words"
    return model.decoder[0].cross_attention.layer, place, told


def _read_captions(trained: Trained, text: str, seed: int) -> Read:
    """Draw a scene of which the caption is right, and look back at it in each step."""
    task, model = trained.task, trained.model
    batch = task.batch_of(task.read(text, rng=seed))
    said = " ".join(task.words(model(*batch.inputs)[0].argmax(axis=-1)))
    told = {
        "tokens": task.words(batch.targets[0]),
        "source_tokens": [f"{i + 1}.{j + 1}" for i, j in np.ndindex(model.across, model.across)],
        "is_cross": True,
        "query_name": "the word that this step writes",
        "key_name": "patches of the picture, by row and column",
        "said": (f"the model says: {said}",),
    }
    place = "the decoder's cross-attention, where it looks at the picture"
    return model.decoder[0].cross_attention.layer, place, told


def _read_reverse(trained: Trained, text: str, seed: int) -> Read:
    digits, T = list("".join(text.split())), trained.task.num_tokens
    if len(digits) != T or not set(digits) <= set("0123456789"):
        raise ConfigError(f"text: expected {T} digits, {DIGITS}; got {describe(text)}")
    said = trained.model(np.array([digits], int)).argmax(axis=-1)[0]
    told = {
        "tokens": [str(digit) for digit in said], "source_tokens": digits,
        "query_name": "the digit that the model says here", "key_name": "the digits that it reads",
        "said": (f"the model says: {' '.join(map(str, said))}",),
    }  # fmt: skip
    return trained.model.attentions[0], "its only attention layer", told


def _read_text(trained: Trained, text: str, seed: int) -> Read:
    task, model = trained.task, trained.model
    ids = task.encode(text)[None]
    if ids.shape[1] > model.max_tokens:
        raise ConfigError(
            f"text: expected at most {model.max_tokens} characters; got {ids.shape[1]}"
        )
    written = generate(model, ids, WRITTEN, temperature=TEMPERATURE, rng=seed)[0, ids.shape[1] :]
    model(ids)
    said = (
        f"the model writes (drawn with seed {seed} at temperature {TEMPERATURE}):\n"
        f"{text}|{task.decode(written)}",
    )
    place = "the attention in the last of its blocks"
    shown = [character.translate(SHOWN) for character in text]
    told = {"tokens": shown, "source_tokens": shown, "is_causal": True, "said": said}
    return model.blocks[-1].attention.layer, place, told


READERS = {
    "reverse": (_read_reverse, DIGITS),
    "induction": (_read_induction, "words, such as 'a b c d a b c'"),
    "numbers": (_read_numbers, "an English number in words, such as 'three hundred forty-two'"),
    "captions": (_read_captions, "a caption, such as 'red square left of blue circle'"),
    "text": (_read_text, "the beginning of a text, such as 'The whale '"),
}
