import json
import threading
from dataclasses import replace

import numpy as np
import pytest

from mha_numpy import (
    KVCache,
    attention_backward,
    attention_forward,
    multi_head_attention_decode,
    rope_forward,
    softmax_forward,
)
from mha_numpy.checking.tracing import Trace, trace
from mha_numpy.core import RopeOptions, step
from mha_numpy.core.multihead import multi_head_attention_backward, multi_head_attention_forward
from mha_numpy.errors import MhaError, ShapeError
from tests.compare import assert_close
from tests.core.configurations import attention_configuration
from tests.core.test_gradients import multi_head_configuration


@pytest.mark.parametrize("seed", range(40))
def test_axes_of_every_step_fit_and_agree(seed):
    inputs, options = multi_head_configuration(seed)
    with trace() as t:
        out, cache = multi_head_attention_forward(**inputs, **options)
        multi_head_attention_backward(np.ones_like(out), cache)
    sizes = t.sizes  # raises where a step's axes do not fit its array, or two steps disagree
    assert sizes["H"] == options["num_heads"]
    assert sizes["T_k"] == cache.attention.inputs.k.shape[2]
    names = [s.name for s in t]
    assert len(names) == len(set(names))
    for s in t:
        if s.name.startswith("d_") and s.name.removeprefix("d_") in names:
            assert s.array.shape == t[s.name.removeprefix("d_")].shape


@pytest.mark.parametrize("seed", range(40))
def test_axes_at_every_rank(seed):
    inputs, options = attention_configuration(seed)
    with trace() as t:
        out, cache = attention_forward(**inputs, **options)
        attention_backward(np.ones_like(out), cache)
    assert t.sizes["d_k"] == inputs["q"].shape[-1]


def test_a_wrong_axis_is_noticed():
    with trace() as t:
        step("a", np.ones((2, 3)), "T_q T_k")
        step("b", np.ones((3, 2)), "T_q T_k")
    with pytest.raises(ShapeError, match="b: expected"):
        _ = t.sizes


def test_the_seven_stages_of_self_attention():
    inputs, options = multi_head_configuration(3)  # self-attention, biases, causal
    with trace() as t:
        multi_head_attention_forward(inputs["x_q"], params=inputs["params"], **options)
    axes = {s.name: s.axes for s in t}
    assert [axes[name] for name in (
        "x_q", "q_by_token", "q", "scores", "weights", "heads", "heads_by_token", "merged", "out"
    )] == [
        "B T_q D", "B T_q H d_k", "B H T_q d_k", "B H T_q T_k", "B H T_q T_k", "B H T_q d_v",
        "B T_q H d_v", "B T_q H*d_v", "B T_q D_out",
    ]  # fmt: skip


def test_view_or_copy_is_measured(rng):
    inputs, options = multi_head_configuration(3)
    with trace() as t:
        out, cache = multi_head_attention_forward(inputs["x_q"], params=inputs["params"], **options)
        multi_head_attention_backward(rng.normal(size=out.shape), cache)
    memory = {s.name: s.memory for s in t}
    assert memory["x_q"] == "input"
    assert memory["x_k"] == "is x_q"
    assert memory["q_projected"] == "new"
    assert memory["q_by_token"] == "view of q_projected"
    assert memory["q"] == "view of q_by_token"
    assert memory["heads_by_token"] == "view of heads"
    assert memory["d_heads"] == "view of d_heads_by_token"
    for s in t:
        if s.memory.startswith("view of"):
            assert np.shares_memory(s.array, t[s.memory.removeprefix("view of ")])


def test_a_copy_is_told_from_new_numbers():
    x = np.arange(24.0).reshape(2, 3, 4)
    with trace() as t:
        step("x", x, "A B C")
        step("y", x.swapaxes(1, 2), "A C B", "x.transpose(0, 2, 1)")
        step("z", x.swapaxes(1, 2).reshape(2, 12), "A C*B", "y.reshape(2, 12)")
        step("w", x.swapaxes(1, 2).reshape(2, 12) + 1, "A C*B", "z + 1")
    assert [s.memory for s in t] == ["input", "view of x", "copy of y", "new"]
    assert [s.layout for s in t] == ["C", "strided", "C", "C"]


SOFTMAX_BACKWARD = "weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))"


def test_options_that_were_not_given_leave_no_row(rng):
    x = rng.normal(size=(5, 4))
    with trace() as t:
        out, cache = attention_forward(x, x.copy(), x.copy())
        attention_backward(rng.normal(size=out.shape), cache)
    assert {s.name: s.equation for s in t} == {
        "q": "", "k": "", "v": "",
        "scores": "scale * q @ k.swapaxes(-1, -2)",
        "weights": "np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)",
        "heads": "weights @ v",
        "d_heads": "",
        "d_weights": "d_heads @ v.swapaxes(-1, -2)",
        "d_v": "weights.swapaxes(-1, -2) @ d_heads",
        "d_scores": SOFTMAX_BACKWARD,
        "d_q": "scale * d_scores @ k",
        "d_k": "scale * d_scores.swapaxes(-1, -2) @ q",
    }  # fmt: skip
    assert {s.name: s.array for s in t.constants} == {"scale": 0.5}


def test_options_that_were_given_each_leave_a_row(rng):
    q, k, v = (rng.normal(size=(2, 3, 5, 4)) for _ in range(3))
    with trace() as t:
        out, cache = attention_forward(
            q, k, v, softcap=2.0, bias=rng.normal(size=(3, 1, 5)), is_causal=True,
            dropout_mask=np.full((5, 5), 2.0), head_gate=np.full((2, 3), 3.0),
        )  # fmt: skip
        attention_backward(rng.normal(size=out.shape), cache)
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
        "d_biased": SOFTMAX_BACKWARD,
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
    q, k, v = (rng.normal(size=(2, 3, 5, 4)) for _ in range(3))
    with trace() as t:
        out, cache = attention_forward(q, k, v)
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


def test_decoding_is_on_record(rng):
    inputs, options = multi_head_configuration(15)
    params = inputs["params"]
    x = rng.normal(size=(2, 3, params.w_q.shape[0]))
    options = {"params": params, **{n: options[n] for n in ("num_heads", "num_kv_heads", "rope")}}
    kv_cache = KVCache()
    multi_head_attention_decode(x, kv_cache=kv_cache, **options)
    with trace() as t:
        multi_head_attention_decode(x[:, :1], kv_cache=kv_cache, **options)
    assert (t.sizes["T_q"], t.sizes["T_k"]) == (1, 4)
    names = [s.name for s in t]
    assert names[:2] == ["x_q", "q_projected"]
    assert {
        "k_new_unrotated",
        "k_new",
        "v_new",
        "q_unrotated",
        "q",
        "k_past",
        "v_past",
        "k",
        "v",
        "merged",
    } <= set(names)
    assert names[-1] == "out"


class TestReports:
    @pytest.fixture
    def recorded(self, rng):
        with trace() as t:
            out, cache = attention_forward(
                *(rng.normal(size=(3, 4)) for _ in range(3)), is_causal=True
            )
            attention_backward(rng.normal(size=out.shape), cache)
        return t

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
            (3, "name: expected that of a step, such as 'scores'; got 3"),
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


def test_rope_is_on_record(rng):
    inputs, options = multi_head_configuration(15)
    assert isinstance(options["rope"], RopeOptions)
    with trace() as t:
        out, cache = multi_head_attention_forward(**inputs, **options)
        multi_head_attention_backward(np.ones_like(out), cache)
    equations = {s.name: s.equation for s in t}
    assert equations["q"] == "q_unrotated * cos_q + q_unrotated[..., pairs] * sin_q"
    assert equations["d_k_unrotated"] == "d_k * cos_k - d_k[..., pairs] * sin_k"
    assert equations["d_q_by_token"] == "d_q_unrotated.transpose(0, 2, 1, 3)"
    assert next(s.memory for s in t if s.name == "d_q_by_token") == "view of d_q_unrotated"


def test_the_recorder_sees_the_reference_whatever_the_backend(rng, backend):
    q, k, v = rng.normal(size=(3, 5, 4))
    out, cache = attention_forward(q, k, v, backend=backend)
    with trace() as t:
        watched, _ = attention_forward(q, k, v, backend=backend)
        attention_backward(rng.normal(size=out.shape), cache)
    assert {"scores", "weights", "d_scores"} <= {s.name for s in t}
    assert len([s for s in t if s.name == "scores"]) == 1  # cells computed anew are not recorded
    assert_close(watched, out)
