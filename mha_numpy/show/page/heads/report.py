"""head_report(): what each head of a model does on some texts, and what is lost without it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mha_numpy.errors import ConfigError
from mha_numpy.layers.layer import in_eval_mode
from mha_numpy.models import Bert
from mha_numpy.models.analysis import attention_layers
from mha_numpy.models.text import BLANKS, Tokens
from mha_numpy.show.page.document import Page, document
from mha_numpy.show.page.heads.describe import describe_texts, describe_worth
from mha_numpy.show.page.heads.measures import measure_for
from mha_numpy.show.page.heads.words import FAMILIES
from mha_numpy.show.pictures.labels import check_text, printable
from mha_numpy.show.template import fill, read
from mha_numpy.tables import CELL

SCRIPTS = (
    "view/element.js", "view/paint.js", "heads/grid.js", "heads/sentence.js", "view/matrix.js",
    "view/curve.js", "heads/cuts.js", "heads/report.js",
)  # fmt: skip
STYLES = ("page.css", "heads/heads.css")

NOTE = "Trust this notebook to open each head. Until then, what each one looks at:"

LEAST_TOKENS, MAX_TOKENS = 2, 64  # of a text
MAX_WEIGHTS = 1_500_000  # of all heads and texts: a page of some 4 MB


@dataclass(frozen=True)
class HeadReport(Page):
    """A page about the heads of a model; a notebook shows it by itself."""

    shows: ClassVar[str] = "The heads of a model"

    heads: int
    texts: int
    data: dict[str, Any] = field(repr=False)  # what the page shows, ready for JSON


def head_report(model: Any, texts: str | Sequence[str] | Tokens, *, note: str = "") -> HeadReport:
    """Make a page about what each head of a model does on some texts.

    It shows the weights of all heads, as arcs between the words and as matrices, by themselves and
    times the norms of the values; which of a few families each head belongs to; what changes
    without it; and what is left as more and more heads are cut.

    Parameters
    ----------
    model : Bert, or a causal language model
        Such as `from_pretrained` returns it. Its gradients are forgotten.
    texts : str, strings or Tokens
        What the model reads: words if it has a `tokenizer`.
    note : str
        What the page says about the params: what is random, what is trained.

    Returns
    -------
    HeadReport
        A notebook shows it; ``to_html(path)`` writes it. It needs no network.

    Notes
    -----
    It takes about three forwards for each head. What is lost without a head is, for a Bert, how far
    the `SentenceBert` vectors of the texts turn, and for a language model by how much the loss
    grows; the page explains both. Sources: as of `weights_times_norm`, `head_importance`,
    `cut_heads` and `pruning_curve`.

    Examples
    --------
    >>> import numpy as np
    >>> from mha_numpy.models import induction_by_hand
    >>> from mha_numpy.models.text import Tokens
    >>> model, ids = induction_by_hand(vocab_size=10, max_tokens=8), np.array([[7, 1, 4, 9, 7, 1]])
    >>> head_report(model, Tokens(ids, ids > 0, [list("714971")]), note="Set by hand.")
    HeadReport(heads=2, texts=1)
    """
    measure_by = measure_for(model)
    tokens, labels, names = _read_texts(model, texts)
    heads = [layer.num_heads for layer in attention_layers(model).values()]
    _check_sizes(model, sum(heads), tokens)
    try:
        with in_eval_mode(model):
            described = describe_texts(model, tokens, labels)
            measure = measure_by(model, tokens)
            worth = describe_worth(measure)
    finally:
        model.zero_grads()
    count = sum(heads)
    data: dict[str, Any] = {
        "title": f"What {count} heads look at" if count > 1 else "What one head looks at",
        "note": check_text("note", note), "heads": heads, "isCausal": not isinstance(model, Bert),
        "families": FAMILIES,
        "texts": [{"name": name, **text} for name, text in zip(names, described, strict=True)],
        "worth": worth,
    }  # fmt: skip
    return _report_of(data)


def stored_report(path: Path | str) -> HeadReport:
    """Make the page of a report whose ``data`` were saved as JSON: it needs no model.

    Parameters
    ----------
    path : path

    Returns
    -------
    HeadReport
    """
    return _report_of(json.loads(Path(path).read_text(encoding="utf-8")))


def _report_of(data: dict[str, Any]) -> HeadReport:
    page = document(
        data["title"], fill(read("heads/heads.html"), {"top": read("top.html")}), data,
        styles=STYLES, scripts=SCRIPTS, start="startReport(data);",
    )  # fmt: skip
    return HeadReport(page, _table_of(data), sum(data["heads"]), len(data["texts"]), data)


def _read_texts(
    model: Any, texts: str | Sequence[str] | Tokens
) -> tuple[Tokens, list[list[str]], list[str]]:
    """Return tokens, what each is called, and the beginning of each text."""
    if isinstance(texts, Tokens):
        labels = [[printable(name) for name in names] for names in texts.names]
        return texts, labels, [printable(" ".join(words), 60) for words in labels]
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ConfigError(
            "model: expected one with a tokenizer, of a folder with a tokenizer.json; got none: "
            "hand over Tokens instead of texts"
        )
    tokens = tokenizer(texts)
    labels = [
        [_label(tokenizer.text([i]), name) for i, name in zip(ids, names, strict=False)]
        for ids, names in zip(tokens.ids, tokens.names, strict=True)
    ]
    given = [texts] if isinstance(texts, str) else texts
    return tokens, labels, [printable(text, 60) for text in given]


def _label(text: str, name: str) -> str:
    """Return a token's text, or its name where the text is empty or a part of a letter."""
    is_whole = text.strip() and "\ufffd" not in text
    return printable((text if is_whole else name).translate(BLANKS).strip() or name)


def _check_sizes(model: Any, num_heads: int, tokens: Tokens) -> None:
    lengths = tokens.mask.sum(axis=1)
    if not len(lengths):
        raise ConfigError("texts: expected at least one; got none")
    longest = min(MAX_TOKENS, getattr(model, "max_tokens", MAX_TOKENS))
    for b, length in enumerate(lengths):
        if not LEAST_TOKENS <= length <= longest:
            raise ConfigError(
                f"texts: expected {LEAST_TOKENS} to {longest} tokens in each; got {length} in "
                f"text {b}: take a {'longer' if length < LEAST_TOKENS else 'shorter'} one"
            )
        if length != len(tokens.names[b]):
            raise ConfigError(
                f"texts: expected a name for each of the {length} tokens of text {b}; got "
                f"{len(tokens.names[b])}"
            )
    weights = num_heads * int((lengths**2).sum())
    if weights > MAX_WEIGHTS:
        raise ConfigError(
            f"texts: expected at most {MAX_WEIGHTS:,} weights for one page; got {weights:,}: take "
            "fewer texts, or shorter ones"
        )


def _table_of(data: dict[str, Any]) -> str:
    """Return what each head looks at in the first text: a row for each layer."""
    rows = []
    for number, families in enumerate(data["texts"][0]["families"]):
        cells = [f'<td style="{CELL}">{FAMILIES[family][0]}</td>' for family in families]
        rows.append(f'<tr><th style="{CELL}">layer {number}</th>{"".join(cells)}</tr>')
    return (
        '<table style="border-collapse:collapse;background:transparent">'
        f'<caption style="text-align:left">{NOTE}</caption>'
        f"{''.join(rows)}</table>"
    )
