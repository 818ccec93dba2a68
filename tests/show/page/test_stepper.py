"""The page of a trace, read back without a browser: its data, size, words and refusals."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import RopeOptions, step
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.page import Stepper, stepper
from mha_numpy.show.page.data import describe_trace, numbers_of
from mha_numpy.show.pictures.panels import named_sizes
from tests.show.pictures.helpers import (
    assert_needs_no_network,
    data_of,
    recorded,
    recorded_rank_2,
    steps_of,
)

TRACES = {
    "self": lambda: recorded(is_causal=True)[0],
    "grouped": lambda: recorded(B=2, T=6, D=24, H=6, H_kv=2)[0],
    "rope": lambda: recorded(rope=RopeOptions())[0],
    "rank 2": recorded_rank_2,
    "batch inside": lambda: steps_of(("x", np.arange(24.0).reshape(3, 2, 4), "T B D")),
}


@pytest.fixture(params=TRACES)
def case(request):
    """Return a trace, the data of its page, and the sequence that it shows."""
    t = TRACES[request.param]()
    sequence = 1 if request.param in ("grouped", "batch inside") else 0
    return t, data_of(stepper(t, sequence=sequence)), sequence


def unpack(told):
    """Read numbers as the page does."""
    raw = np.frombuffer(base64.b64decode(told["base64"]), np.uint8)
    if told["type"] != "float48":
        return raw.view(told["type"])
    wide = np.zeros((len(raw) // 6, 8), np.uint8)
    wide[:, 2:] = raw.reshape(-1, 6)
    return wide.view("<f8").ravel()


class TestNumbers:
    @pytest.mark.parametrize(
        ("array", "kind"),
        [
            ([0, 1, 255], "uint8"),
            ([True, False], "uint8"),
            ([0.5, -1.0, np.inf, np.nan], "float32"),
            (np.float16([0.1, -3.0]), "float32"),
            (np.float32([0.1, 1e38]), "float32"),
            ([0.1, -1.0, 0.0, np.inf, -np.inf, np.nan], "float48"),
            ([1e300, -1e-300], "float48"),
            (np.zeros((0, 3)), "uint8"),
        ],
    )
    def test_the_narrowest_type_that_holds_them(self, array, kind):
        told = numbers_of(np.asarray(array))
        assert told["type"] == kind
        rounding = 2.0**-37 if kind == "float48" else 0
        assert np.allclose(unpack(told), np.ravel(array), rtol=rounding, atol=0, equal_nan=True)

    def test_in_the_order_of_the_axes(self):
        x = np.arange(6.0).reshape(2, 3)
        assert unpack(numbers_of(x.T)).tolist() == [0, 3, 1, 4, 2, 5]

    def test_beyond_float64(self):
        assert unpack(numbers_of(np.array([np.longdouble("-1e4000"), 1]))).tolist() == [-np.inf, 1]


def test_what_is_told_of_every_array(case):
    t, data, _ = case
    told = [a for a in data["arrays"] if a["pass"] != "param"]
    for s, array in zip(t, told, strict=True):
        assert array["axes"] == s.axes.split()
        assert array["shape"] == list(s.array.shape)
        assert (array["name"], array["equation"]) == (s.name, s.equation)
        assert (array["pass"] == "backward") == s.is_backward
        assert ("tree" in array) == bool(s.equation)
        if "numbers" in array:
            assert np.allclose(unpack(array["numbers"]), s.array.ravel(), rtol=2.0**-37, atol=0)


def test_params_stand_before_the_step_that_reads_them(case):
    names = [a["name"] for a in case[1]["arrays"]]
    assert len({n for n in names if n[:2] in ("w_", "b_", "co", "pa")}) == sum(
        n[:2] in ("w_", "b_", "co", "pa") for n in names
    )
    if "w_q" in names:
        assert names.index("w_q") == names.index("x_v") + 1


def test_every_array_of_a_layer_has_a_meaning():
    """One plain sentence each."""
    for name in ("self", "grouped", "rope", "rank 2"):
        for array in data_of(stepper(TRACES[name]()))["arrays"]:
            assert array["says"].endswith("."), array["name"]
            assert len(array["says"].split()) <= 32


@pytest.mark.parametrize(
    ("total", "is_softmax"),
    [
        ("powers.sum(axis=-1, keepdims=True)", True),
        ("powers.sum(axis=-2, keepdims=True)", False),
        ("(powers.sum(axis=-1, keepdims=True) + np.exp(-20))", False),  # rows sum almost to 1
    ],
)
def test_a_softmax_is_powers_divided_by_their_own_sum(total, is_softmax):
    """Whatever it is called; all else is computed as it is written."""
    scores = np.arange(6.0).reshape(2, 3) ** 2
    shares = eval(f"powers / {total}", {"np": np, "powers": np.exp(scores)})
    with trace() as t:
        step("scores", scores, "T_q T_k")
        step("shares", shares, "T_q T_k", f"powers / {total}".replace("powers", "np.exp(scores)"))
    tree = describe_trace(t)["arrays"][1]["tree"]
    assert (tree == ["softmax", ["array", 0]]) == is_softmax
    assert is_softmax or tree[0] == "/"


def test_gradients_are_found_where_an_array_is():
    t = recorded(B=1)[0]
    gradients = describe_trace(t)["gradients"]
    assert gradients["q"] == "d_q"
    assert gradients["x_q"] == "d_x"  # of all three
    assert gradients["x_k"] == "d_x_kv"
    assert gradients["x_v"] == "d_x_v"
    assert "scale" not in gradients


def test_options_are_what_is_on_record():
    gate, mask = np.ones(2), np.ones((5, 5), bool)
    assert describe_trace(recorded()[0])["options"] == {"scale": "scale"}
    assert describe_trace(recorded(is_causal=True)[0])["options"]["causal"] == {"mask": "visible"}
    assert describe_trace(recorded(mask=mask, head_gate=gate)[0])["options"] == {
        "causal": {"mask": "mask"}, "scale": "scale", "heads": "head_gate"
    }  # fmt: skip
    of_keys = recorded(mask=np.ones((1, 5), bool))[0]
    assert "causal" not in describe_trace(of_keys)["options"]


def test_it_opens_at_scores_or_at_the_first_array():
    assert describe_trace(recorded(is_causal=True)[0])["start"] == "scores"
    assert describe_trace(steps_of(("x", np.array([1.0, -3.0, 2.0]), "D")))["start"] == "x"


def test_labels_and_notes_are_in_the_page():
    t = recorded()[0]
    data = data_of(stepper(t, tokens=list("abcde"), features=range(8), note="Random params."))
    assert data["tokens"] == data["sourceTokens"] == list("abcde")
    assert data["features"] == list("01234567")
    assert data["note"] == "Random params."
    assert data["title"] == "46 arrays, forward and backward"
    assert data_of(stepper(t))["tokens"] is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_page_is_small(rng, dtype):
    layer = MultiHeadAttention(64, 8, rng=0)
    layer.params = {name: array.astype(dtype) for name, array in layer.params.items()}
    with trace() as t:
        out = layer(rng.normal(size=(1, 16, 64)).astype(dtype), is_causal=True)
        layer.backward(rng.normal(size=out.shape).astype(dtype))
    drawn = stepper(t)
    page = drawn.to_html()
    data = re.search(r'id="data">(.*?)</script>', page)[1]
    assert len(data) < (200_000 if dtype == "float64" else 150_000)
    # two views: all arrays, and the story, which fits any window
    assert len(page.encode()) - len(data) < 175_000
    assert len(drawn.fallback.encode()) < 60_000


def test_a_page_needs_no_network_and_allows_none(case):
    page = stepper(case[0])
    assert_needs_no_network(page)
    assert "{{" not in page.to_html()


def test_to_html_writes_a_file(tmp_path):
    drawn = stepper(recorded()[0])
    assert isinstance(drawn, Stepper)
    assert drawn.to_html(tmp_path / "page.html") == drawn.to_html()
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == drawn.to_html()
    assert drawn.to_html().startswith("<!DOCTYPE html>")
    assert repr(drawn) == "Stepper(steps=46)"


def test_it_holds_what_the_arrays_were():
    x = np.ones((2, 3))
    with trace() as t:
        step("x", x, "T D")
    drawn = stepper(t)
    before = drawn.to_html()
    x[:] = 7
    assert drawn.to_html() == before
    assert stepper(t).to_html() != before


class Elements(HTMLParser):
    """Every element of a page, and what text its scripts hold."""

    def __init__(self, page):
        super().__init__()
        self.seen = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


HOSTILE = (
    "</script><script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "<!--", "{{data}}",
    "a\u2028b",
)  # fmt: skip


def test_names_can_do_no_harm():
    x = np.ones((2, 3))
    plain, hostile = trace(), trace()
    with plain as one:
        for i in range(len(HOSTILE)):
            step(f"x{i}", x + i, "T D", f"y{i}")
    with hostile as other:
        for i, name in enumerate(HOSTILE):
            step(name, x + i, "T D", name)
    for show in (Stepper.to_html, Stepper._repr_html_):
        tags = [[tag for tag, _ in Elements(show(stepper(t))).seen] for t in (one, other)]
        assert tags[0] == tags[1]
    assert [a["name"] for a in data_of(stepper(other))["arrays"]] == list(HOSTILE)


class TestInANotebook:
    def test_the_page_is_in_a_sandboxed_frame(self, case):
        drawn = stepper(case[0])
        (frame,) = (at for tag, at in Elements(drawn._repr_html_()).seen if tag == "iframe")
        assert frame["sandbox"] == "allow-scripts"
        assert frame["srcdoc"] == drawn.to_html()
        assert re.search(r"height:\d+px", frame["style"])

    def test_a_table_remains_where_scripts_are_taken_out(self, case):
        t = case[0]
        table = stepper(t).fallback
        for active in ("<script", "<iframe", "<svg", "onclick", "javascript:"):
            assert active not in table
        rows = re.findall(r"<tr.*?</tr>", table)[1:]
        for s, row in zip(t, rows, strict=True):
            assert f">{s.name}</td>" in row
            assert f">{' '.join(named_sizes(s))}</td>" in row
