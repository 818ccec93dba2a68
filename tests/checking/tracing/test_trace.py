import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward, rope_forward, softmax_forward
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import step
from mha_numpy.errors import MhaError, ShapeError
from tests.checking.tracing.whole import trace_attention, trace_multi_head
from tests.compare import assert_close
from tests.core.test_gradients import multi_head_configuration


def test_a_wrong_axis_is_noticed():
    with trace() as t:
        step("a", np.ones((2, 3)), "T_q T_k")
        step("b", np.ones((3, 2)), "T_q T_k")
    with pytest.raises(ShapeError, match="b: expected"):
        _ = t.sizes


@pytest.fixture
def self_attention(rng):
    """Self-attention with biases, causal."""
    inputs, options = multi_head_configuration(3)
    return trace_multi_head(rng, inputs["x_q"], params=inputs["params"], **options)


def test_the_seven_stages_of_self_attention(self_attention):
    axes = {s.name: s.axes for s in self_attention}
    assert [axes[name] for name in (
        "x_q", "q_by_token", "q", "scores", "weights", "heads", "heads_by_token", "merged", "out"
    )] == [
        "B T_q D", "B T_q H d_k", "B H T_q d_k", "B H T_q T_k", "B H T_q T_k", "B H T_q d_v",
        "B T_q H d_v", "B T_q H*d_v", "B T_q D_out",
    ]  # fmt: skip


def test_view_or_copy_is_measured(self_attention):
    expected = {
        "x_q": "input", "x_k": "is x_q", "q_projected": "new", "q_by_token": "view of q_projected",
        "q": "view of q_by_token", "heads_by_token": "view of heads",
        "d_heads": "view of d_heads_by_token",
    }  # fmt: skip
    assert {s.name: s.memory for s in self_attention if s.name in expected} == expected
    for s in self_attention:
        if s.memory.startswith("view of"):
            assert np.shares_memory(s.array, self_attention[s.memory.removeprefix("view of ")])


def test_a_copy_is_told_from_new_numbers():
    x = np.arange(24.0).reshape(2, 3, 4)
    with trace() as t:
        step("x", x, "A B C")
        step("y", x.swapaxes(1, 2), "A C B", "x.transpose(0, 2, 1)")
        step("z", x.swapaxes(1, 2).reshape(2, 12), "A C*B", "y.reshape(2, 12)")
        step("w", x.swapaxes(1, 2).reshape(2, 12) + 1, "A C*B", "z + 1")
    assert [s.memory for s in t] == ["input", "view of x", "copy of y", "new"]
    assert [s.layout for s in t] == ["C", "strided", "C", "C"]


def test_options_that_were_not_given_leave_no_row(rng):
    x = rng.normal(size=(5, 4))
    t = trace_attention(rng, x, x.copy(), x.copy())
    forward, backward = ["q", "k", "v", "scores", "weights", "heads"], ["d_heads", "d_weights"]
    assert [s.name for s in t] == [*forward, *backward, "d_v", "d_scores", "d_q", "d_k"]
    assert {s.name: s.array for s in t.constants} == {"scale": 0.5}


def test_options_that_were_given_each_leave_a_row(rng):
    t = trace_attention(
        rng, *rng.normal(size=(3, 2, 3, 5, 4)), softcap=2.0, bias=rng.normal(size=(3, 1, 5)),
        is_causal=True, dropout_mask=np.full((5, 5), 2.0), head_gate=np.full((2, 3), 3.0),
    )  # fmt: skip
    assert {s.name: s.equation for s in t} == {
        "q": "", "k": "", "v": "", "bias": "", "dropout_mask": "", "head_gate": "",
        "scores": "scale * q @ k.swapaxes(-1, -2)",
        "capped": "softcap * np.tanh(scores / softcap)",
        "biased": "capped + bias",
        "visible": "(np.arange(T_k) <= np.arange(T_q)[:, None]).reshape(1, 1, T_q, T_k)",
        "masked": "np.where(visible, biased, -np.inf)",
        "weights": "np.exp(masked) / np.exp(masked).sum(axis=-1, keepdims=True)",
        "dropped": "weights * dropout_mask",
        "heads": "dropped @ v",
        "gated": "heads * head_gate[..., None, None]",
        "d_gated": "",
        "d_heads": "d_gated * head_gate[..., None, None]",
        "d_head_gate": "(d_gated * heads).sum(axis=(2, 3))",
        "d_dropped": "np.where(visible, d_heads @ v.swapaxes(-1, -2), 0)",
        "d_v": "dropped.swapaxes(-1, -2) @ d_heads",
        "d_weights": "d_dropped * dropout_mask",
        "d_biased":
        "weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))",
        "d_capped": "d_biased",
        "d_bias": "d_biased.sum(axis=(0, 2), keepdims=True).reshape(H, 1, T_k)",
        "d_scores": "d_capped * (1 - (capped / softcap) ** 2)",
        "d_q": "scale * d_scores @ k",
        "d_k": "scale * d_scores.swapaxes(-1, -2) @ q",
    }  # fmt: skip
    assert next(s.axes for s in t if s.name == "d_bias") == "H 1 T_k"


def test_steps_are_untouched_and_results_the_same(rng):
    x = rng.normal(size=(5, 4))
    plain, _ = attention_forward(x, x, x)
    with trace() as t:
        watched, _ = attention_forward(x, x, x)
    assert np.array_equal(plain, watched)
    assert step("x", x, "T D") is x
    assert len(t) == 6  # nothing after the block


def test_an_inner_block_records_alone_and_threads_are_not_heard(rng):
    x = rng.normal(size=(5, 4))
    with trace() as outer:
        with trace() as inner:
            softmax_forward(x)
        thread = threading.Thread(target=softmax_forward, args=(x,))
        thread.start()
        thread.join()
        rope_forward(x)
    assert [s.name for s in inner] == ["scores", "weights"]
    assert len(outer) == 0


def test_an_error_inside_ends_the_recording(rng):
    def fails():
        with trace():
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fails()
    with trace() as t:
        pass
    softmax_forward(rng.normal(size=3))
    assert len(t) == 0


def test_an_upstream_gradient_that_is_the_output_keeps_both_rows(rng):
    with trace() as t:
        out, cache = attention_forward(*rng.normal(size=(3, 2, 3, 5, 4)))
        attention_backward(out, cache)  # the gradient of half the sum of squares
    rows = {s.name: (s.equation, s.memory, s.is_backward) for s in t}
    assert rows["heads"] == ("weights @ v", "new", False)
    assert rows["d_heads"] == ("", "is heads", True)
    assert rows["d_k"][0] == "scale * d_scores.swapaxes(-1, -2) @ q"


def test_slices_of_one_buffer_are_not_views_of_each_other(rng):
    packed = rng.normal(size=(2, 3, 15))
    with trace() as t:
        attention_forward(packed[..., :5], packed[..., 5:10], packed[..., 10:])
    assert [s.memory for s in t][:3] == ["input"] * 3


def test_equal_numbers_are_not_a_copy():
    x = np.zeros((1, 4))
    with trace() as t:
        out, cache = attention_forward(x, x.copy(), x.copy())
        attention_backward(np.zeros_like(out), cache)
    assert {s.memory for s in t} == {"input", "new"}


class TestReports:
    @pytest.fixture
    def recorded(self, rng):
        return trace_attention(rng, *rng.normal(size=(3, 3, 4)), is_causal=True)

    def test_text(self, recorded):
        text = str(recorded)
        assert "scale * q @ k.swapaxes(-1, -2)" in text
        assert "(3, 4)" in text
        assert len(text.splitlines()) == 3 + len(recorded)
        assert text.isascii()

    def test_html_survives_where_scripts_are_stripped(self, recorded):
        html = recorded._repr_html_()
        assert html.count("<tr") == 1 + len(recorded)
        for active in ("<script", "<iframe", "<svg", "onclick", "javascript:"):
            assert active not in html
        assert html.count("style=") > html.count("<td")  # which stays where a style element goes

    def test_json(self, recorded):
        steps = json.loads(
            recorded.to_json(values=True), parse_constant=lambda name: pytest.fail(name)
        )
        masked = next(s for s in steps if s["name"] == "masked")
        assert masked["values"][0][1] == "-inf"
        assert masked["shape"] == [3, 3]
        assert masked["axes"] == ["T_q", "T_k"]
        assert "values" not in json.loads(recorded.to_json())[0]

    @pytest.mark.parametrize(
        ("array", "written"),
        [
            (np.float64(2.5), 2.5),
            (np.array([1, 2], np.uint8), [1, 2]),
            (np.array([np.longdouble("-1e4000"), np.nan]), ["-inf", "nan"]),
            (np.array([1 + 2j]), ["(1+2j)"]),
            (np.array(["a", None], object), ["a", "None"]),
        ],
    )
    def test_json_of_odd_arrays(self, array, written):
        with trace() as t:
            step("x", array, " ".join("T"[: np.ndim(array)]))
        (told,) = json.loads(t.to_json(values=True))
        assert told["values"] == written

    def test_lookup(self, recorded):
        assert recorded["scores"].shape == (3, 3)
        assert "scores" in recorded
        assert recorded.steps[3] in recorded
        for other in ("score", 3, replace(recorded.steps[3])):
            assert other not in recorded

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("score", "no step is named 'score'; did you mean 'scores' or 'd_scores'?"),
            ("Q7", "no step is named 'Q7'; [step.name for step in t] has the names"),
            (3, "name: expected the name of a step, such as 'scores'; got 3"),
        ],
    )
    def test_a_misspelt_name_is_told_the_nearest(self, recorded, name, message):
        for look in (recorded.__getitem__, recorded.evaluate, lambda n: recorded.explain(n, (0,))):
            with pytest.raises(MhaError) as error:
                look(name)
            assert str(error.value) == message
            assert isinstance(error.value, KeyError)

    def test_repr_is_one_line(self, recorded):
        assert repr(recorded) == f"Trace({len(recorded)} steps: q ... d_k)"
        assert repr(Trace()) == "Trace(0 steps)"

    def test_halves(self, recorded):
        forward, backward = (recorded.table(backward=b).rows for b in (False, True))
        assert len(forward) + len(backward) == len(recorded)
        assert all(row[1].startswith("d_") for row in backward)


def test_the_recorder_sees_the_reference_whatever_the_backend(rng, backend):
    q, k, v = rng.normal(size=(3, 5, 4))
    out, cache = attention_forward(q, k, v, backend=backend)
    with trace() as t:
        watched, _ = attention_forward(q, k, v, backend=backend)
        attention_backward(rng.normal(size=out.shape), cache)
    assert {"scores", "weights", "d_scores"} <= {s.name for s in t}
    assert len([s for s in t if s.name == "scores"]) == 1  # cells computed anew are not recorded
    assert_close(watched, out)
