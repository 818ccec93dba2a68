"""A row of a datasheet: a setting or a fact, in words."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mha_numpy.identifying.family import USUAL
from mha_numpy.identifying.reporting.examples import Example

ROLES = {
    "query": "queries", "key": "keys", "value": "values", "x": "tokens of queries, keys and values",
    "x_q": "tokens of the queries", "x_k": "tokens of the keys", "x_v": "tokens of the values",
    "wide_q": "queries of all heads", "wide_k": "keys of all heads",
    "wide_v": "values of all heads",
    "memory": "tokens of keys and values", "key_value": "tokens of keys and values",
    "packed": "queries, keys and values in one", "mask": "mask", "more_mask": "another mask",
    "bias": "bias, added to the scores", "lengths": "lengths of the sequences",
    "is_causal": "switches causality", "window": "window", "scale": "scale", "softcap": "softcap",
    "H": "number of query heads", "G": "number of key/value heads",
    "R": "query heads per key/value head",
    "D": "width of the model", "d": "width of a head", "T": "number of tokens",
    "S": "number of keys",
    "B": "number of sequences",
    "g_q": "gain of the queries", "g_k": "gain of the keys",
    "w_q": "params of the queries", "w_k": "params of the keys", "w_v": "params of the values",
    "w_qkv": "params of queries, keys and values in one",
    "w_kv": "params of keys and values in one",
    "w_o": "params of the output projection", "w_a": "params of additive scores",
    "w_c": "params of the output and its query in one",
    "w_g": "params of the gate of the output", "b_g": "bias of the gate",
    "w_qk": "params of additive scores, for a query and a key in one",
    "q_lengths": "lengths of the queries",
    "b_q": "bias of the queries", "b_k": "bias of the keys",
    "b_v": "bias of the values", "b_qkv": "biases of queries, keys and values in one",
    "b_kv": "biases of keys and values in one", "b_o": "bias of the output",
    "params": "params by name", "config": "settings",
    "cache": "keys and values of earlier tokens",
    "pages": "pages of each sequence",
    "positions": "positions", "k_positions": "positions of the keys",
    "segments": "sequences that the keys belong to",
    "q_segments": "sequences that the queries belong to",
    "cos": "cosines of the rotation", "sin": "sines of the rotation",
    "cos_sin": "cosines and sines of the rotation", "base": "base of the rotation",
    "offset": "position of the first query", "slopes": "slopes of ALiBi, one for each head",
    "rotary": "width that is rotated", "sink": "sinks, one more score per head",
    "function": "a function, here one that changes nothing",
    "softmax": "a function, here the softmax over the last axis",
    "bias_table": "table of biases by distance",
    "more_bias": "another bias, added to the scores", "head_gate": "multiplier of each head",
    "cache_k": "keys of earlier tokens", "cache_v": "values of earlier tokens",
    "block": "size of blocks",
    "eps": "a small number", "rate": "dropout rate", "dropout_mask": "multiplier of each weight",
    "rng": "source of randomness", "training": "training or not", "flag": "a switch",
    "result": "filled with the output", "d_out": "gradient of the output",
}  # fmt: skip
EXPECTED = {  # of facts, what is usual
    "large_scores": "fine", "uneven_scores": "fine", "sums": "float64", "float32": "float32",
    "float16": "float16", "cache": "as all at once", "inputs": "unchanged",
    "blind": "",  # each library has its own
}  # fmt: skip


class Row(NamedTuple):
    """One finding."""

    name: str
    says: str
    kind: str  # "usual", "convention" or "mistake"
    setting: str = ""
    value: Any = None
    argument: str = ""  # that it is about
    instead: str = ""  # what to write, for a mistake
    line: int = 0  # of the source, 0 if unknown
    code: str = ""
    edit: str = ""  # what to write in this line
    example: Example | None = None


@cache
def _meanings() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("meanings.toml").read_text("utf-8"))


def known_settings() -> list[str]:
    """Return the names of everything that a row may be about."""
    return [*_meanings(), "gradients", "time"]


def make_row(setting: str, value: Any, argument: str = "") -> Row:
    """Return the row of a setting or a fact.

    Examples
    --------
    >>> make_row("scale", "1/d")[:3]
    ('scale', "1 / d, which is 1 / sqrt(d) applied twice, or muP's scale", 'convention')
    """
    table = _meanings()[setting]
    text = table.get(str(value))
    if text is None:
        shown = _shown(value)
        if isinstance(value, tuple) and "each" in table:
            text = table["each"].format(", ".join(shown))
        else:
            text = "none" if value is None else table.get("any", "{}").format(*shown)
    text = text.replace("{}", argument or "an argument")
    says, _, instead = text.removeprefix("!").partition(" -> ")
    kind = "usual" if value == (USUAL | EXPECTED).get(setting) else "convention"
    kind = "mistake" if text.startswith("!") else kind
    return Row(table["row"], says, kind, setting, value, argument, instead)


def _shown(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, tuple) else (value,)
    return tuple(
        "all" if part is None else part if isinstance(part, str) else f"{part:g}" for part in parts
    )
