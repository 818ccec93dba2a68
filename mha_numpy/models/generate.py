"""Writing with a trained model, one token after another."""

import inspect
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from mha_numpy.calls import explained
from mha_numpy.checks import check_count, check_function, check_number, check_shape, check_type
from mha_numpy.core import KVCache, softmax_forward
from mha_numpy.dtypes import Array, as_float_array, as_integer_array
from mha_numpy.errors import ConfigError, ShapeError, describe
from mha_numpy.layers import Layer
from mha_numpy.layers.layer import in_eval_mode, make_rng
from mha_numpy.models.transformer_lm import TransformerLM
from mha_numpy.models.translator import END, START, Translator, padding_of


@explained
def generate(
    model: TransformerLM,
    ids: Array,
    steps: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    rng: int | np.random.Generator | None = None,
    new_kv_cache: Callable[[], KVCache] | None = None,
) -> Array:
    """Continue a text: draw each next token from the probabilities of the model.

    Parameters
    ----------
    model : TransformerLM
        Or an AttentionOnlyLM, or another layer with `max_tokens` and `new_kv_caches`, whose
        forward takes `kv_caches`.
    ids : (B, T) int array
        The beginnings, T >= 1.
    steps : int
        Number of tokens to write.
    temperature : float
        Logits are divided by it: below 1 likely tokens become likelier. 0 is greedy: always the
        likeliest token.
    top_k : int, optional
        Draw only from the k likeliest tokens.
    top_p : float, optional
        Draw only from the likeliest tokens that together have at least this probability.
    stop : int or list of int, optional
        Tokens that end a text. The same token then fills the rest of its row, and writing ends when
        every row has one.
    rng : int or numpy Generator, optional
        Draws; the same seed draws the same. Default: fresh randomness.
    new_kv_cache : function, optional
        Returns an empty KV cache for one block, such as ``lambda: RollingKVCache(window=60)``.
        Default: what ``model.new_kv_caches()`` makes. A block of the delta rule keeps its state.

    Returns
    -------
    (B, T + steps) int array
        The beginnings and the written tokens; fewer steps if `stop` ended all rows.

    Notes
    -----
    The model writes without dropout. A KV cache keeps the keys and values of earlier tokens, so a
    step costs one token. When the model's positions are used up, it continues from the last tokens
    of the text, half the number of its positions; with a `RollingKVCache` they never are. Sources:
    top-k: Fan et al. 2018; top-p: Holtzman et al. 2020, *The curious case of neural text
    degeneration*, section 3.1.

    Examples
    --------
    >>> model = TransformerLM(vocab_size=10, max_tokens=8, embed_dim=16, num_heads=2).eval()
    >>> generate(model, np.array([[1, 2, 3]]), 4).shape
    (1, 7)
    """
    if (
        not isinstance(model, Layer)
        or "kv_caches" not in inspect.signature(model.forward).parameters
    ):
        name = f"one of {type(model).__name__}" if isinstance(model, Layer) else describe(model)
        raise ConfigError(
            "model: expected a language model that writes with kv_caches, such as TransformerLM; "
            f"got {name}"
        )
    ids = as_integer_array("ids", ids, "an integer array (B, T)")
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ShapeError(f"ids: expected (B, T) with T >= 1; got {ids.shape}")
    check_count("steps", steps, least=0)
    expected = "a token or a list of tokens"
    stops = as_integer_array("stop", np.zeros(0, int) if stop is None else stop, expected)
    if stops.ndim > 1:
        raise ConfigError(f"stop: expected {expected}; got {describe(stop)}")
    rng = make_rng(rng)
    if new_kv_cache is not None:
        check_function("new_kv_cache", new_kv_cache)
    kv_caches: list[KVCache] = []
    kept = model.max_tokens  # of a text that is too long
    has_ended = np.zeros((len(ids), 1), bool)
    with in_eval_mode(model):
        for _ in range(steps):
            if not kv_caches or kv_caches[0].place(1) == model.max_tokens:
                kv_caches = model.new_kv_caches()
                if new_kv_cache is not None:
                    kv_caches = [new_kv_cache() if type(c) is KVCache else c for c in kv_caches]
                new = ids[:, -kept:]
                kept = (model.max_tokens + 1) // 2
            while new.shape[1] > (at_once := kv_caches[0].at_once or new.shape[1]):
                model(new[:, :at_once], kv_caches=kv_caches)
                new = new[:, at_once:]
            logits = model(new, kv_caches=kv_caches)[:, -1]  # (B, V)
            chosen = choose(logits, temperature=temperature, top_k=top_k, top_p=top_p, rng=rng)
            new = np.where(has_ended, ids[:, -1:], chosen[:, None])  # (B, 1)
            ids = np.concatenate([ids, new], axis=1)
            has_ended |= np.isin(new, stops)
            if stops.size and has_ended.all():
                break
    return ids


@explained
def choose(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    rng: int | np.random.Generator | None = None,
) -> Array:
    """Choose a token for each row of logits: (B, V) -> (B,).

    Parameters
    ----------
    logits : (B, V) float array
        A token whose logit is -inf is never chosen.
    temperature, top_k, top_p, rng
        As for `generate`.

    Examples
    --------
    >>> logits = np.log([[0.1, 0.6, 0.3]])
    >>> choose(logits, temperature=0), choose(logits, top_k=1), choose(logits, top_p=0.5)
    (array([1]), array([1]), array([1]))
    """
    logits = as_float_array("logits", logits)
    check_shape("logits", logits, "B V", {})
    _check_scores("logits", logits)
    temperature, rng = check_number("temperature", temperature, least=0), make_rng(rng)
    if top_k is not None:
        check_count("top_k", top_k)
    if top_p is not None and not 0 < check_number("top_p", top_p) <= 1:
        raise ConfigError(f"top_p: expected 0 < p <= 1; got {top_p}")
    if temperature == 0:
        return logits.argmax(axis=-1)

    order = np.argsort(-logits, axis=-1, kind="stable")  # (B, V), likeliest first
    ordered = np.take_along_axis(logits, order, -1).astype(np.float64)
    with np.errstate(over="ignore"):  # beyond float64 a probability is 0
        probs, _ = softmax_forward((ordered - ordered[:, :1]) / temperature)
    before = probs.cumsum(axis=-1) - probs  # of all that are likelier
    kept = probs > 0
    if top_k is not None:
        kept[:, top_k:] = False
    if top_p is not None:
        kept &= before < top_p
    probs = np.where(kept, probs, 0)
    point = rng.random((len(probs), 1)) * probs.sum(axis=-1, keepdims=True)
    place = (probs.cumsum(axis=-1) <= point).sum(axis=-1, keepdims=True)
    last = kept.sum(axis=-1, keepdims=True) - 1  # where rounding would go beyond
    return np.take_along_axis(order, np.minimum(place, last), -1)[:, 0]


def _check_scores(name: str, logits: Array) -> None:
    """Raise an error unless each row (B, V) has numbers, -inf for tokens that may not be chosen."""
    if logits.shape[-1] == 0:
        raise ShapeError(f"{name}: expected (B, V) with V >= 1; got {logits.shape}")
    largest = logits.max(axis=-1)  # (B,): NaN where there is one
    if not np.isfinite(largest).all():
        row = int(np.flatnonzero(~np.isfinite(largest))[0])
        got = "-inf for all tokens" if largest[row] == -np.inf else f"{largest[row]}"
        raise ConfigError(
            f"{name}: expected finite numbers, or -inf for tokens that are ruled out; "
            f"got {got} in row {row}"
        )


@explained
def translate(
    model: Translator, source: Array, *, max_tokens: int | None = None, beams: int = 1
) -> Array:
    """Write the target of one source: the likeliest one that a beam search finds.

    Parameters
    ----------
    model : Translator
    source : (1, T_k) int array
    max_tokens : int, optional
        The longest target, including its end; default all of the model's positions.
    beams : int
        How many beginnings to keep after each step: 1 is greedy.

    Returns
    -------
    (T_q,) int array
        The target, including its end if it came in time.

    Notes
    -----
    The model writes without dropout. The search compares sums of log-probabilities; a target that
    has ended takes no further part in it. A KV cache follows each beam, so a step costs one
    token. Source: Sutskever et al. 2014, *Sequence to sequence learning*, section 3.2.

    Examples
    --------
    >>> model = Translator(10, 12, max_tokens=8, embed_dim=16, num_heads=2).eval()
    >>> bool(1 <= len(translate(model, np.array([[3, 4, 5]]), beams=3)) <= 8)
    True
    """
    check_type("model", model, Translator, "mha_numpy.models")
    source = as_integer_array("source", source, "an integer array (1, T_k)")
    if source.ndim != 2 or source.shape[0] != 1:
        raise ShapeError(f"source: expected (1, T_k), one sequence; got {source.shape}")
    check_count("beams", beams)
    limit = model.max_tokens
    longest = limit if max_tokens is None else min(check_count("max_tokens", max_tokens), limit)
    with in_eval_mode(model):
        return _search(model, source, longest, beams)


def _search(model: Translator, source: Array, longest: int, beams: int) -> Array:
    memory, mask, kv_caches = model.encode(source), padding_of(source), model.new_kv_caches()
    written = np.full((1, 1), START)  # (beams, 1 + steps)
    sums = np.zeros(1)  # of log-probabilities, for each beam
    best, best_sum = written[0], -np.inf
    for _ in range(longest):
        memories = np.repeat(memory, len(written), axis=0)
        logits = model.decode(memories, mask, written[:, -1:], kv_caches=kv_caches)[:, -1]
        _check_scores("logits", logits)
        _, cache = softmax_forward(logits)
        totals = sums[:, None] + logits - cache.lse[:, None]  # (beams, V)
        chosen = np.argsort(-totals, axis=None, kind="stable")[:beams]
        beam, token = np.unravel_index(chosen, totals.shape)
        written = np.concatenate([written[beam], token[:, None]], axis=1)
        sums = totals[beam, token]
        has_ended = token == END
        if has_ended.any() and sums[has_ended].max() > best_sum:
            first = int(np.flatnonzero(has_ended)[0])  # the likeliest, as they are in order
            best, best_sum = written[first], sums[first]
        written, sums = written[~has_ended], sums[~has_ended]
        for kv_cache in chain(*kv_caches):
            kv_cache.select(beam[~has_ended])
        if len(written) == 0 or sums.max() <= best_sum:
            break  # every further token makes it less likely
    return best[1:] if best_sum > -np.inf else written[0, 1:]
