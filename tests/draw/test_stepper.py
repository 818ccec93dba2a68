"""The stepper's page, read back without a browser: its numbers, size, words and refusals."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from mha_numpy.core import RopeOptions, attention_forward, step
from mha_numpy.draw import Stepper, head_color, stepper
from mha_numpy.draw.blocks import cut_step
from mha_numpy.draw.stepper.data import buffers_of
from mha_numpy.draw.stepper.packing import CHARACTERS, pack
from mha_numpy.errors import ConfigError, ShapeError
from mha_numpy.nn import MultiHeadAttention
from mha_numpy.tracing import Trace, trace
from tests.draw.helpers import recorded, recorded_rank_2, steps_of

ROUNDING = 2.0**-13
TRACES = {
    "self": lambda: recorded(is_causal=True)[0],
    "grouped": lambda: recorded(B=2, T=6, D=24, H=6, H_kv=2)[0],
    "rope": lambda: recorded(rope=RopeOptions())[0],
    "rank 2": recorded_rank_2,
    "batch inside": lambda: steps_of(("x", np.arange(24.0).reshape(3, 2, 4), "T B D")),
}


@pytest.fixture(params=TRACES)
def case(request):
    """Return a trace and the data of its page, of the last sequence."""
    t = TRACES[request.param]()
    sequence = 1 if request.param in ("grouped", "batch inside") else 0
    return t, data_of(stepper(t, sequence=sequence)), sequence


def data_of(drawn):
    """Return the JSON that the page carries."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                         drawn.to_html(), re.DOTALL)  # fmt: skip
    return json.loads(text)


def unpack(packed):
    """Read numbers as the page does."""
    bits = {chr(character): i for i, character in enumerate(CHARACTERS)}
    numbers = []
    for i in range(0, len(packed["codes"]), 3):
        a, b, c = (bits[character] for character in packed["codes"][i : i + 3])
        code = a << 12 | b << 6 | c
        field, mantissa = code >> 12 & 31, code & 4095
        size = (
            (1 + mantissa / 4096) * 2.0 ** (field - 31 + packed["exponent"])
            if field
            else [0.0, np.inf, np.nan, 5e-324][mantissa]
        )
        numbers.append(-size if code >> 17 else size)
    return np.array(numbers)


class TestPacking:
    def test_numbers_come_back_within_the_rounding(self, rng):
        x = rng.normal(size=500) * 10.0 ** rng.integers(-5, 1, size=500)
        assert np.allclose(unpack(pack(x)._asdict()), x, rtol=ROUNDING, atol=0)

    def test_powers_of_two_and_what_rounds_up_to_them(self):
        x = np.array([1.0, 2.0, 0.5, 1.99999, -3.99999, 4096.0])
        assert unpack(pack(x)._asdict()).tolist() == [1.0, 2.0, 0.5, 2.0, -4.0, 4096.0]

    def test_what_has_no_exponent(self):
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-30, -1e-30])
        back = unpack(pack(x)._asdict())
        assert np.array_equal(back[:5], x[:5], equal_nan=True)
        assert np.signbit(back[1])
        assert back[6:].tolist() == [5e-324, -5e-324]  # not 0, though too small to be kept

    @pytest.mark.parametrize("x", [[], [0.0, 0.0], [np.nan], [5e-324, 1e-323], [1.7e308]])
    def test_extremes(self, x):
        back = unpack(pack(np.array(x))._asdict())
        assert np.allclose(back, x, rtol=ROUNDING, atol=0, equal_nan=True)


def test_every_cell_is_read_through_its_strides(case):
    t, data, sequence = case
    buffers = [unpack(buffer) for buffer in data["buffers"]]
    for s, told in zip(t, data["steps"], strict=True):
        axes = s.axes.split()
        for index in np.ndindex(s.array.shape):
            if "B" in axes and index[axes.index("B")] != sequence:
                continue
            at = told["offset"] + sum(np.multiply(index, told["strides"]))
            shown, true = buffers[told["buffer"]][at], s.array[index]
            smallest = 2.0 ** (data["buffers"][told["buffer"]]["exponent"] - 30)
            assert np.isclose(shown, true, rtol=ROUNDING, atol=smallest), (s.name, index)


def test_a_view_has_no_numbers_of_its_own(case):
    t, data, _ = case
    told = {s["name"]: s for s in data["steps"]}
    for s in t:
        if s.memory.startswith(("view of", "is")):
            other = s.memory.split()[-1]
            assert told[s.name]["buffer"] == told[other]["buffer"], s
        else:
            assert sum(o["buffer"] == told[s.name]["buffer"] and not
                       t.steps[o["number"] - 1].memory.startswith(("view of", "is"))
                       for o in data["steps"]) == 1  # fmt: skip


def test_cells_lie_as_in_the_shape_film(case):
    t, data, sequence = case
    for s, told in zip(t, data["steps"], strict=True):
        blocks = cut_step(s, sequence, t.steps)
        layout = data["layouts"][told["layout"]]
        assert layout["shape"] == list(blocks.values.shape)
        assert layout["colors"] == list(blocks.colors)
        axes = s.axes.split()
        for index in np.ndindex(s.array.shape):
            if "B" in axes and index[axes.index("B")] != sequence:
                continue
            place = np.sum(
                [[data["tables"][table][i] for table in axis]
                 for axis, i in zip(layout["places"], index, strict=True)], axis=0,
            )  # fmt: skip
            assert blocks.values[tuple(place)] == s.array[index]


def test_what_is_told_of_every_step(case):
    t, data, _ = case
    for s, told in zip(t, data["steps"], strict=True):
        assert told["axes"] == s.axes.split()
        assert told["shape"] == list(s.array.shape)
        assert told["bytes"] == list(s.array.strides)
        assert [told[key] for key in ("number", "name", "equation", "memory", "dtype")] == [
            s.number, s.name, s.equation, s.memory, str(s.array.dtype)
        ]  # fmt: skip
        assert (told["pass"] == "backward") == s.is_backward
    colors = {color for layout in data["layouts"] for color in layout["colors"]}
    if "H" in t.sizes:
        assert {head_color(h) for h in range(t.sizes["H"])} <= colors


class TestBuffers:
    def test_overlapping_arrays_share_one(self):
        x = np.arange(24.0)
        arrays = [x[:12], x[6:18].reshape(3, 4).T, x[17::-1], np.arange(3.0)]
        buffers, views = buffers_of(arrays)
        assert sorted(len(buffer) for buffer in buffers) == [3, 18]
        for array, view in zip(arrays, views, strict=True):
            for index in np.ndindex(array.shape):
                at = view.offset + sum(np.multiply(index, view.strides))
                assert buffers[view.buffer][at] == array[index]

    @pytest.mark.parametrize(
        "arrays",
        [
            [np.ones((40, 40))[::20, ::20]],  # most of the buffer is of nobody
            [np.ones(4), np.ones(0)],
            [np.ones(4, np.float32).view(np.float64), np.ones(3, np.int8)],
            [np.broadcast_to(np.float64(3), (4, 5))],
        ],
    )
    def test_other_arrays(self, arrays):
        buffers, views = buffers_of(arrays)
        for array, view in zip(arrays, views, strict=True):
            for index in np.ndindex(array.shape):
                at = view.offset + sum(np.multiply(index, view.strides))
                assert buffers[view.buffer][at] == array[index]
        assert sum(map(len, buffers)) <= 2 * sum(array.size for array in arrays)

    def test_two_types_in_one_memory(self):
        x = np.arange(4.0)
        arrays = [x, x.view(np.int64), x.view(np.float32)[1:]]
        buffers, views = buffers_of(arrays)
        assert len({view.buffer for view in views}) == 3
        assert all(np.array_equal(buffers[v.buffer], a) for a, v in zip(arrays, views, strict=True))


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_page_is_small(rng, is_causal):
    layer = MultiHeadAttention(64, 8)
    with trace() as t:
        out = layer(rng.normal(size=(1, 16, 64)), is_causal=is_causal)
        layer.backward(rng.normal(size=out.shape))
    drawn = stepper(t)
    assert len(drawn.to_html().encode()) < 200_000
    assert len(drawn.fallback.encode()) < 60_000


def test_a_page_needs_no_network_and_allows_none(case):
    page = stepper(case[0]).to_html()
    assert "default-src 'none'" in page
    assert not re.findall(r"""https?:|src=|href=|url\(|@import|import\(|fetch\(""", page)
    assert "{{" not in page


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
    assert [s["name"] for s in data_of(stepper(other))["steps"]] == list(HOSTILE)


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
        for active in ("<script", "<iframe", "<svg", "class=", "onclick", "javascript:"):
            assert active not in table
        rows = re.findall(r"<tr.*?</tr>", table)[1:]
        for s, row in zip(t, rows, strict=True):
            for numbers in (s.array.shape, s.array.strides):  # in one line each
                assert f">{numbers}</td>".replace(" ", "&nbsp;") in row
            assert f">{s.name}</td>" in row
            labels = cut_step(s, 0, t.steps).labels
            assert re.findall(r"<span[^>]*>(.*?)</span>", row) == labels

    def test_very_many_heads_leave_the_squares_out(self, rng):
        q = rng.normal(size=(1, 128, 1, 1))
        with trace() as t:
            for _ in range(20):
                attention_forward(q, q.copy(), q.copy())
        assert "<span" not in stepper(t).fallback


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.zeros((0, 3)), []),
        (np.float64(2.5), [2.5]),
        (np.array([True, False]), [1.0, 0.0]),
        (np.array([1, -2], np.int8), [1.0, -2.0]),
        (np.array([np.longdouble("-1e4000"), 1]), [-np.inf, 1.0]),
        (np.array([1.5, np.nan, np.inf, -np.inf], np.float16), [1.5, np.nan, np.inf, -np.inf]),
    ],
)
def test_odd_arrays(array, shown):
    axes = " ".join(["T", "D"][: np.ndim(array)])
    data = data_of(stepper(steps_of(("x", array, axes))))
    assert np.array_equal(unpack(data["buffers"][0]), shown, equal_nan=True)


def test_nan_and_infinity_show(rng):
    q, k, v = (rng.normal(size=(3, 4)) for _ in range(3))
    k[1, 2], v[0, 0] = np.nan, np.inf
    with trace() as t, np.errstate(all="ignore"):
        attention_forward(q, k, v)
    buffers = [unpack(buffer) for buffer in data_of(stepper(t))["buffers"]]
    assert any(np.isnan(b).any() for b in buffers)
    assert any(np.isposinf(b).any() for b in buffers)


def of_size(T_q, T_k):
    q, k = np.zeros((T_q, 2)), np.zeros((T_k, 2))
    with trace() as t:
        attention_forward(q, k, k.copy())
    return t


def complex_trace():
    return steps_of(("x", np.ones(3, complex), "T"))


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (lambda: "scores", {}, ConfigError, "trace: expected the Trace of `with trace"),
        (Trace, {}, ConfigError, "trace: expected at least one step; got none"),
        (lambda: of_size(33, 4), {}, ConfigError,
         r"expected T_q <= 32; got T_q=33 \(q\): record a shorter sequence, or draw it with draw"),
        (lambda: of_size(4, 33), {}, ConfigError, "expected T_k <= 32; got T_k=33"),
        (lambda: steps_of(("w", np.ones((600, 600)), "D F")), {}, ConfigError,
         "at most 250,000 numbers for one page; got 360,000: record a smaller layer"),
        (lambda: steps_of(*[(f"x{i}", np.ones(1), "D") for i in range(301)]), {}, ConfigError,
         "at most 300 steps for one stepper; got 301"),
        (complex_trace, {}, ConfigError, "expected arrays of real numbers; got x of complex128"),
        (lambda: recorded(B=2)[0], {"sequence": 2}, ConfigError, "0 <= sequence < B=2"),
        (lambda: recorded(B=2)[0], {"sequence": 1.0}, ConfigError, "sequence: expected an integer"),
        (recorded_rank_2, {"sequence": 1}, ConfigError, "sequence: expected 0"),
        (lambda: steps_of(("x", np.ones((2, 3)), "T")), {}, ShapeError, "x: expected one axis"),
    ],
)  # fmt: skip
def test_wrong_use(make, options, error, message):
    with pytest.raises(error, match=message):
        stepper(make(), **options)


def test_32_tokens_and_nearly_all_numbers_fit():
    assert stepper(of_size(32, 32)).steps == 6
    page = stepper(steps_of(("w", np.ones((500, 500)), "D F"))).to_html()
    assert len(page.encode()) < 1_000_000
