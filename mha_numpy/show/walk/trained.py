"""One attention layer of a trained model, with what flows into it when the model reads a text."""

from collections.abc import Mapping
from typing import Any

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

LIKELIEST = 3  # words that are told with their probabilities
WRITTEN = 80  # characters
TEMPERATURE = 0.8  # of what is written
SHOWN = str.maketrans({" ": "\u2423", "\n": "\u21b5"})  # blanks that can be seen


def trained_setting(trained: Trained, text: str | None, *, seed: int = 0) -> Setting:
    """Let a trained model read a text, and return the layer that tells most about it.

    Parameters
    ----------
    trained : Trained
    text : str
        Induction: words, each different one a token. Numbers: an English number in words.
        Reverse: digits. Text: the beginning of a text.
    seed : int
        Draws what is written after a text.

    Returns
    -------
    Setting

    Raises
    ------
    ConfigError
        The model cannot read this text; the message says what it can.

    Examples
    --------
    >>> from mha_numpy.models.train.recipes import load_trained
    >>> setting = trained_setting(load_trained("induction"), "a b c d a b c")
    >>> print(setting.said[0])
    the model says: d comes next
    """
    if text is None or not text.strip():
        raise ConfigError(f"text: expected {EXPECTED[trained.name]}; got {describe(text)}")
    layer, place, told = READERS[trained.name](trained, text, seed)
    cache = layer.forward_cache
    inputs = {"x_q": cache.project_q.x}  # (B, T_q, D)
    if cache.inputs.is_given[0]:
        inputs["x_k"] = cache.project_k.x
    if cache.inputs.is_given[1]:
        inputs["x_v"] = cache.project_v.x
    return Setting(
        layer=layer,
        inputs=inputs,
        seed=seed,
        model=trained.name,
        about=(
            f"Trained ({trained.origin}): the params and the inputs are those of {place} while the "
            f"model reads this text. Only the upstream gradient is random (seed {seed})."
        ),
        note=f"Trained ({trained.origin}): {place}.",
        **told,
    )


def _read_induction(
    trained: Trained, text: str, seed: int
) -> tuple[MultiHeadAttention, str, dict[str, Any]]:
    """Read words, and say which comes next."""
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
    told = dict(zip(known, probs, strict=False))
    if len(known) < V:
        told["another word"] = probs[len(known) :].sum()
    said = what_comes_next(told, "word")
    place = "attentions.1, the second of its two attention layers, where the heads copy"
    return trained.model.attentions[1], place, _alike(words, said, is_causal=True)


def what_comes_next(probabilities: Mapping[str, float], kind: str) -> tuple[str, Table]:
    """Say which of the words or tokens, whichever `kind` they are, are the likeliest."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])[:LIKELIEST]
    rows = [[word, f"{probability:.3f}"] for word, probability in ranked]
    return (
        f"the model says: {ranked[0][0]} comes next",
        Table("WHAT COMES NEXT, the likeliest", [kind, "probability"], rows),
    )


def _read_numbers(
    trained: Trained, text: str, seed: int
) -> tuple[MultiHeadAttention, str, dict[str, Any]]:
    """Read an English number, write it in German, and look back at what was read in each step."""
    task, model = trained.task, trained.model
    source = task.read(text)
    written = translate(model, source)
    model(source, np.array([[START, *written[:-1]]]))
    german = task.words(written, GERMAN)
    told = {
        "tokens": german, "source_tokens": task.words(source[0]),
        "is_cross": True, "is_causal": False,
        "query_name": "the word that this step writes", "key_name": "the words that are read",
        "said": (f"the model says: {' '.join(word for word in german if word != '<end>')}",),
    }  # fmt: skip
    place = "decoder.0.cross_attention, where the decoder looks at the English words"
    return model.decoder[0].cross_attention.layer, place, told


def _read_reverse(
    trained: Trained, text: str, seed: int
) -> tuple[MultiHeadAttention, str, dict[str, Any]]:
    """Read digits, and say them backwards."""
    digits, T = list("".join(text.split())), trained.task.num_tokens
    if len(digits) != T or not set(digits) <= set("0123456789"):
        raise ConfigError(f"text: expected {T} digits, {EXPECTED['reverse']}; got {describe(text)}")
    said = trained.model(np.array([digits], int)).argmax(axis=-1)[0]
    told = {
        "tokens": [str(digit) for digit in said], "source_tokens": digits,
        "is_cross": False, "is_causal": False,
        "query_name": "the digit that is said here", "key_name": "the digits that are read",
        "said": (f"the model says: {' '.join(map(str, said))}",),
    }  # fmt: skip
    return trained.model.attentions[0], "attentions.0, its only attention layer", told


def _read_text(
    trained: Trained, text: str, seed: int
) -> tuple[MultiHeadAttention, str, dict[str, Any]]:
    """Read characters, and write what may follow."""
    task, model = trained.task, trained.model
    ids = task.encode(text)[None]
    if ids.shape[1] > model.max_tokens:
        raise ConfigError(
            f"text: expected at most {model.max_tokens} characters; got {ids.shape[1]}"
        )
    written = generate(model, ids, WRITTEN, temperature=TEMPERATURE, rng=seed)[0, ids.shape[1] :]
    model(ids)
    said = (
        f"the model writes, drawn with seed {seed} at temperature {TEMPERATURE}:\n"
        f"{text}|{task.decode(written)}",
    )
    place = f"blocks.{len(model.blocks) - 1}.attention, in the last of its blocks"
    shown = [character.translate(SHOWN) for character in text]
    return model.blocks[-1].attention.layer, place, _alike(shown, said, is_causal=True)


def _alike(tokens: list[str], said: tuple[str | Table, ...], *, is_causal: bool) -> dict[str, Any]:
    """Return what is told of self-attention: queries and keys are the same tokens."""
    return {
        "tokens": tokens, "source_tokens": tokens, "is_cross": False, "is_causal": is_causal,
        "said": said,
    }  # fmt: skip


READERS = {
    "reverse": _read_reverse, "induction": _read_induction, "numbers": _read_numbers,
    "text": _read_text,
}  # fmt: skip

EXPECTED = {
    "reverse": "such as '3 1 4 1 5 9 2 6 5 3 5 8'",
    "induction": "words, such as 'a b c d a b c'",
    "numbers": "an English number in words, such as 'three hundred forty-two'",
    "text": "the beginning of a text, such as 'The whale '",
}
