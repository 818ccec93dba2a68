"""The walk as a page to play with: every array is recomputed after each edit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import (
    causal_mask,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from mha_numpy.errors import ConfigError
from mha_numpy.show.walk.result import Walk

if TYPE_CHECKING:
    from mha_numpy.show.page import Stepper
    from mha_numpy.show.page.document import Page

READABLE = "For numbers that you can read, run mha-numpy walk --html page.html"
MARK = b'<meta name="generator" content="mha-numpy">'  # of every page of ours


def page_of(seen: Walk) -> "Stepper":
    """Return the page of a walk.

    Examples
    --------
    >>> from mha_numpy.show.walk import walk
    >>> page_of(walk("to be or not to be", heads=2, dim=4))
    Stepper(steps=53)
    """
    from mha_numpy.show.page.widget import stepper  # takes a second

    try:
        return stepper(
            record(seen), tokens=seen.tokens, source_tokens=seen.source_tokens,
            features=seen.features, training=True, meaning=seen.meaning,
            note=seen.page_note if seen.is_trained or seen.meaning else f"{seen.note} {READABLE}",
        )  # fmt: skip
    except ConfigError as error:  # too long, or too large
        raise ConfigError(str(error).replace("trace: ", "html: ")) from error


def record(seen: Walk) -> Trace:
    """Run the layer with a mask and head gates that change nothing, for the page to change.

    Numbers are rounded to float32, which halves the page, and computed with in float64.
    """
    params = type(seen.params)(*map(_rounded, seen.params))
    shape = (len(seen.tokens), len(seen.source_tokens))
    mask = causal_mask(*shape) if seen.is_causal else np.ones(shape, bool)
    with trace() as recorded:
        _, cache = multi_head_attention_forward(
            **{name: _rounded(x) for name, x in seen.inputs.items()},
            params=params,
            **seen.options,
            mask=mask,
            head_gate=np.ones(seen.layer.num_heads),
        )
        multi_head_attention_backward(_rounded(seen.d_out), cache)
    return recorded


def _rounded(array: Any) -> Any:
    """Return float64 numbers that float32 holds; None stays."""
    return None if array is None else array.astype(np.float32).astype(np.float64)


def save_page(page: "Page", path: Path, *, option: str = "html") -> None:
    """Write a page, or raise a ConfigError that names the option that asked for it."""
    try:
        page.to_html(path)
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {path}: {error.strerror}") from error


def check_page(path: Path, *, force: bool, option: str = "html") -> None:
    """Raise a ConfigError if the path has a file that is not a page of ours."""
    if force or not path.exists():
        return
    try:
        start = path.read_bytes()[:1000] if path.is_file() else b""
    except OSError:
        start = b""
    if MARK not in start:
        raise ConfigError(f"{option}: {path} exists and is not such a page; --force overwrites it")
