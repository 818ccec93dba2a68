"""What the names of arguments suggest: a first guess, which calls confirm or refute."""

import re
import tomllib
from functools import cache
from pathlib import Path
from unicodedata import combining, normalize

KINDS = frozenset((  # words that say little after another one
    "t", "i", "n", "new", "seq", "sequence", "input", "inputs", "tensor", "array", "mat", "vec",
    "vecs", "vector", "vectors", "tokens", "state", "states", "emb", "embs", "embeddings", "items",
    "data",
))  # fmt: skip


def _pattern(forms: str) -> re.Pattern[str]:
    """Return the pattern of a role's names, which names.toml has as columns of words."""
    columns = [[column.split() for column in form.split("+")] for form in forms.split(";")]
    return re.compile("|".join("".join(map(_column, each)) for each in columns))


def _column(words: list[str]) -> str:
    is_optional = words[0] == "?"
    return f"(?:{'|'.join(words[is_optional:])})" + "?" * is_optional


PATTERNS = {
    role: _pattern(forms)
    for role, forms in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
}


@cache
def roles_by_name(name: str) -> tuple[str, ...]:
    """Return the roles whose names are like this one.

    Examples
    --------
    >>> roles_by_name("num_heads"), roles_by_name("W_Q"), roles_by_name("encoder_outputs")
    (('H',), ('w_q',), ('memory',))
    """
    plain = "".join(c for c in normalize("NFKD", name.rsplit("/", 1)[-1]) if not combining(c))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain).lower().split("_")  # without accents
    words = [word for word in words if word]
    is_kind = bool(words) and words[-1] in KINDS  # query_seq and x_t are a query and x
    for part in ("".join(words), "".join(words[:-1]) if is_kind else "", *words[::-1]):
        roles = tuple(role for role, pattern in PATTERNS.items() if pattern.fullmatch(part))
        if roles:
            return roles
    return ()


def is_mask(name: str) -> bool:
    """Return whether a name says that an argument is a mask."""
    return bool({"mask", "padding"} & {*roles_by_name(name)})
