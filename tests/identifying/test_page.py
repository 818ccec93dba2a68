"""The datasheet as a page and as text: mistakes first, everything escaped, nothing too wide."""

import re
from html.parser import HTMLParser

import pytest

from mha_numpy.identifying.facts.options import UNCLEAR
from mha_numpy.identifying.reporting.datasheet import Named
from mha_numpy.identifying.reporting.page import to_page
from mha_numpy.identifying.reporting.report import headline, sections, to_text, usual, verdict
from mha_numpy.identifying.reporting.rows import Row, make_row
from mha_numpy.identifying.reporting.sheet import Datasheet

VOID = {"meta", "br", "path"}  # "path" closes itself
HOSTILE = (
    "</style><script>alert(1)</script>",
    "\"'><img src=x>",
    "<!--",
    "{{style}}",
    "a\x1b[31m\0\u202e",
)
ROWS = (
    make_row("rotation", "halves"),
    make_row("base", 500.0),
    make_row("scale", "1/sqrt(D)")._replace(line=14, code="s = q @ k.T / np.sqrt(D)"),
    make_row("causal", ""),
    make_row("mask", "true = visible", "pad"),
    make_row("softmax_axis", "keys"),
    make_row("blind", "nan", "pad"),
    make_row("large_scores", "fine"),
    make_row("uneven_scores", "fine"),
    make_row("inputs", "unchanged"),
    Row("gradients", "d_q, d_k: right", "usual", "gradients", ["d_q", "d_k"]),
)
ARGUMENTS = (
    Named("x", "tokens of queries, keys and values", "(B, T, D)"),
    Named("pad", "mask", "(B, T_k)", "bool"),
)
SHEET = Datasheet(
    "attend", "torch", True, "", ARGUMENTS, (Named("result", "output", "(B, T, D)"),), ROWS
)


class Elements(HTMLParser):
    """The elements of a page; an error if one of them is not closed in its turn."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, tuple(name for name, _ in attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, tuple(name for name, _ in attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title"):
            self.text.append(data)


def named(text):
    """Return a datasheet in which strangers chose every text that they can choose."""
    row = make_row("scale", "1/d^2", text)._replace(line=1, code=text)
    rows = (row, make_row("mask", "true = visible", text), make_row("inputs", "changed", text))
    return Datasheet(
        text, "jax", True, "", (Named(text, "mask", "", text),), (Named(text, "output"),), rows
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_names_can_do_no_harm(text):
    harmless, hostile = Elements(to_page(named("x"))), Elements(to_page(named(text)))
    assert harmless.seen == hostile.seen
    assert not {"script", "img"} & {tag for tag, _ in hostile.seen}
    kept = text.replace("\x1b", "\ufffd").replace("\0", "\ufffd").replace("\u202e", "\ufffd")
    assert sum(kept in each for each in hostile.text) >= 6
    assert not {"\x1b", "\0", "\u202e"} & set(to_page(named(text)) + to_text(named(text)))


def test_a_page_asks_nobody_and_runs_nothing():
    page = to_page(SHEET)
    assert not re.search(r"https?:|//\w|url\(|@import|<script|<link|\son\w+=", page)
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "light-dark(" in page


def test_the_order_of_a_page():
    text = "\n".join(Elements(to_page(SHEET)).text)
    order = [
        "attend", "PyTorch", "Self-attention with rotary positions",
        "One thing looks like a mistake: scale.", "with the width of the whole model", "14",
        "s = q @ k.T / np.sqrt(D)", "use the width of a single head", "Arguments", "(B, T_k)",
        "width of the model", "Returns", "Conventions", "mask (pad)", "NaN", "Gradients",
        "d_q, d_k: right", "As in most functions",
        "large scores cause no overflow and do not",
    ]  # fmt: skip
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_a_page_says_what_the_text_says():
    rows = tuple(row._replace(example="q = <1>\nreturned: 2") for row in ROWS)
    shown = Elements(to_page(SHEET._replace(rows=rows))).text
    assert shown.count("q = <1>\nreturned: 2") == 6
    text = " ".join(to_text(SHEET).split())
    for part in (
        "PyTorch: the same; Keras, JAX: mean of all values; ONNX",
        "Differs from PyTorch's MultiheadAttention in: ",
        "Compared with PyTorch",
        "PyTorch: 1 / sqrt(d), where d is the width of a head",
    ):
        assert part in text
        assert any(part in each for each in shown)


def test_what_is_not_identified():
    sheet = Datasheet("attend", "numpy", False, "no call of it worked")
    text = Elements(to_page(sheet)).text
    assert {"Not identified", "attend: no call of it worked."} <= {*text}
    assert to_text(sheet) == "attend: no call of it worked\n"


@pytest.mark.parametrize(("columns", "width"), [(40, 40), (72, 72), (100, 100), (300, 100)])
def test_text_fits_into_a_terminal(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = SHEET._replace(rows=(*ROWS, make_row("split", "reshape without transpose, and back")))
    lines = to_text(long).splitlines()
    assert width - 15 < max(map(len, lines)) <= width
    assert " ".join(to_text(SHEET).split()).endswith("arguments are not changed.")


def test_text_begins_with_what_matters():
    first, differs, mistakes, *others = sections(SHEET)
    assert first.to_text() == (
        "attend (PyTorch): self-attention with rotary positions. "
        "One thing looks like a mistake: scale."
    )
    assert differs.to_text().startswith("Differs from PyTorch's MultiheadAttention in: rotation, ")
    assert mistakes.to_text().splitlines() == [
        "What looks like a mistake",
        "  scale  1 / sqrt(D), with the width of the whole model",
        "         line 14: s = q @ k.T / np.sqrt(D)",
        "         instead: use the width of a single head",
    ]
    assert mistakes.bad_rows == {0}
    assert others[2].to_text().splitlines()[1:3] == [
        "  rotation                         feature i is rotated with feature i + d/2, as in "
        "GPT-NeoX and Hugging Face's Llama",
        "                                   the base is 500",
    ]


def test_headlines():
    def of(*rows, what="queries"):
        sheet = SHEET._replace(rows=tuple(rows), arguments=(Named("a", what),))
        return f"{headline(sheet)}. {verdict(sheet)}"

    fine = "Nothing looks like a mistake."
    causal, scale = make_row("causal", "past and itself"), make_row("scale", "d")
    assert of(make_row("causal", "")) == f"attention. {fine}"
    assert of(causal) == f"causal attention. {fine}"
    assert of(causal._replace(argument="is_causal")) == f"attention. {fine}"
    linear = make_row("normaliser", "relu of q and k")
    assert of(linear, what="tokens of keys and values") == f"linear cross-attention. {fine}"
    assert of(make_row("normaliser", "sigmoid")) == f"sigmoid attention. {fine}"
    assert of(scale, make_row("hide", "0")).endswith(
        "2 things look like mistakes: scale, masked keys."
    )


def test_a_verdict_names_arguments_whose_role_was_not_found():
    def of(*names):
        own = [Named(name, "unknown", note=UNCLEAR) for name in names]
        return verdict(SHEET._replace(rows=(), arguments=(*own, Named("a", "unknown"))))

    assert of() == "Nothing looks like a mistake."
    start = "Nothing looks like a mistake, but what"
    assert of("dropout") == f"{start} dropout does was not found out."
    assert of("mem[0]", "mem[1]") == f"{start} mem does was not found out."
    assert of("b", "c", "d") == f"{start} b, c and d do was not found out."
    assert of(*"bcdef") == f"{start} 5 of its arguments do was not found out."


def test_usual_rows_are_short_sentences():
    assert usual(SHEET) == [
        "softmax over the keys of each query",
        "large scores cause no overflow and do not disturb queries with small ones",
        "arguments are not changed",
    ]


def test_names_keep_their_letters():
    rows = (make_row("lengths", "j <= n"), make_row("causal", "past"))
    text = Elements(to_page(SHEET._replace(rows=rows))).text
    begin = "One key too many", "A query does not"
    assert all(any(part.startswith(start) for part in text) for start in begin)
