"""The stages, one by one: what each finds, and what it says."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from mha_numpy.checking import compare
from mha_numpy.core import split_heads as alias
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.teach.diagnosis import make
from mha_numpy.teach.diagnosis.search import SmallEdit
from mha_numpy.teach.exercises import Limits, find_exercise, judge
from mha_numpy.teach.exercises.sandbox import run_calls
from mha_numpy.teach.saved import Saved
from tests.teach.exercises.catch_all import catch_all

SOFTMAX_BACKWARD = find_exercise("softmax-backward")


def right(d_weights, weights):
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))


def verdict_on(function, exercise="softmax-backward", **limits):
    return judge(find_exercise(exercise), lambda: function, Limits(**limits))


def stage(verdict, name):
    (found,) = [stage for stage in verdict.stages if stage.name == name]
    return found


def test_right():
    verdict = verdict_on(right)
    assert verdict
    assert [s.name for s in verdict.stages] == [
        "runs", "type and dtype", "shape", "finite", "inputs left alone", "the same twice",
        "invariants", "values", "gradients",
    ]  # fmt: skip
    assert "numeric differentiation agrees to" in stage(verdict, "gradients").finding
    assert str(verdict).startswith("softmax-backward: right")
    assert verdict.summary == "right"
    assert verdict.difference is None


@pytest.mark.parametrize("answer", [None, ..., NotImplementedError])
def test_not_written_yet(answer):
    def stub(d_weights, weights):
        if answer is NotImplementedError:
            raise NotImplementedError
        return answer

    verdict = verdict_on(stub)
    assert verdict.is_unwritten
    assert not verdict
    more = ", or its `return` is missing" if answer is None else ""
    assert str(verdict) == repr(verdict) == f"softmax-backward: not written yet{more}"


BROKEN = {
    "raises": (lambda d, w: d @ w, "runs", r"ValueError: .*"),
    "a list": (lambda d, w: right(d, w).tolist(), "type and dtype", r"d_scores: expected an array"),
    "integers": (
        lambda d, w: right(d, w).astype(int), "type and dtype", "expected float64; got int64",
    ),
    "a tuple": (lambda d, w: (right(d, w), w), "type and dtype", "d_scores"),
    "transposed": (
        lambda d, w: right(d, w).swapaxes(-1, -2), "shape", "the last two axes are exchanged",
    ),
    "one axis less": (lambda d, w: right(d, w)[0], "shape", "expected shape"),
    "NaN": (lambda d, w: right(d, w) / (w > 0), "finite", "nan"),
    "rows": (lambda d, w: w * d, "invariants", "rows of d_scores sum to 0: off by"),
    "values": (lambda d, w: 2 * right(d, w), "values", "each is 2 times what was expected"),
    "gradients": (lambda d, w: 2 * right(d, w), "gradients", "numeric differentiation says"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_each_stage_says_what_it_found(case):
    function, name, finding = BROKEN[case]
    verdict = verdict_on(function)
    found = stage(verdict, name)
    assert found.passed is False
    assert re.search(finding, found.finding), found.finding
    earlier = verdict.stages[: verdict.stages.index(found)]
    if name != "gradients":
        assert all(s.passed is not False for s in earlier if s.name != "invariants")


def test_an_input_changed_in_place():
    def mine(d_weights, weights):
        d_weights -= (weights * d_weights).sum(axis=-1, keepdims=True)
        return weights * d_weights

    verdict = verdict_on(mine)
    assert stage(verdict, "values").passed
    assert stage(verdict, "inputs left alone").finding.startswith("d_weights: changed in place")
    assert verdict.mistakes == {"an input changed in place"}


def test_another_answer_the_second_time():
    kept = []

    def mine(d_weights, weights):
        kept.append(right(d_weights, weights))
        return kept[-1] + 0.1 * len(kept) - 0.1

    verdict = verdict_on(mine)
    assert stage(verdict, "the same twice").passed is False
    assert "at first" in stage(verdict, "the same twice").finding
    assert not verdict.mistakes


def test_results_that_accumulate():
    verdict = verdict_on(make("softmax_backward", ["results accumulate between calls"]))
    assert verdict.mistakes == {"results accumulate between calls"}


def test_one_gradient_that_accumulates():
    kept = {}

    def mine(d_out, x, w):
        d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
        kept[w.shape] = kept.get(w.shape, 0) + d_w
        return d_x, kept[w.shape], d_b

    verdict = verdict_on(mine, "linear-backward")
    assert verdict.mistakes == {"results accumulate between calls"}
    found = stage(verdict, "the same twice").finding
    assert found.startswith("d_w, called again: ")  # not by its place in a tuple


def test_more_arrays_than_the_task_asks_for_are_counted():
    verdict = verdict_on(lambda *given: (*make("linear_backward")(*given), 1.0), "linear-backward")
    assert stage(verdict, "type and dtype").finding == (
        "result: expected d_x, d_w, d_b; got a tuple of 4 (input 1)"
    )


def test_a_law_of_a_mask_says_which_cell_is_wrong():
    verdict = verdict_on(make("make_mask", ["causal, leaks one key"]), "masks")
    found = stage(verdict, "invariants").finding
    assert re.match(r"no query sees the future: \[.*\] is True and should be False", found), found
    none = verdict_on(
        lambda lengths, T_q, T_k, q_offset, left: (
            ~make("make_mask")(lengths, T_q, T_k, q_offset, left)
        ),
        "masks",
    )
    assert "off by" not in stage(none, "invariants").finding


def test_long_messages_keep_what_is_wrong():
    def multiply(d, w):
        return np.matmul(d[..., :-1], np.concatenate([w, w, w], axis=-1)[..., :-1, :]) + right(d, w)

    found = stage(verdict_on(multiply), "runs").finding
    assert found.startswith("ValueError: matmul: Input operand 1 has a mismatch in its core dim")
    assert re.search(r"\(size \d+ is different from \d+\) \(line \d+ of test_judge.py: ", found), (
        found
    )


def test_an_unknown_mistake_is_not_given_a_name():
    verdict = verdict_on(lambda d, x: d * np.cos(97 * x), "gelu-backward")
    assert not verdict.mistakes
    assert "no small edit of gelu_backward gives" in verdict.remarks["no known mistake"]


def test_a_known_mistake_is_named_with_its_evidence_and_a_picture():
    verdict = verdict_on(lambda d, w: w * d)
    assert verdict.mistakes == {"row sum left out"}
    assert "row sum" in verdict.remarks["likely cause"]
    assert "just what this mistake gives" in verdict.remarks["evidence"]
    assert verdict.difference.expected.ndim == 2
    assert "<img" in verdict._repr_html_()
    assert len(verdict.difference.draw().axes) == 4  # three matrices and a scale
    assert "expected" in verdict.difference.table().to_text()


def test_two_mistakes_are_named_together():
    function = make("attention_backward", ["sign of d_k", "row sum left out"])
    verdict = verdict_on(function, "attention-backward")
    assert verdict.mistakes == {"sign of d_k", "row sum left out"}
    assert verdict.remarks["likely cause"].startswith("the row sum of softmax is left out")
    assert verdict.remarks["and besides"] == "d_k has the wrong sign"


def test_a_reaction_that_may_not_be():
    def leaks(x, params, num_heads, mask):
        return make("multi_head")(x, params, num_heads, np.ones_like(mask))

    verdict = verdict_on(leaks, "multi-head")
    assert "the mask is causal" in stage(verdict, "invariants").finding
    assert "mask forgotten" in verdict.mistakes


def powers_times_mask(scores, mask):
    powers = np.exp(scores) * (1 if mask is None else mask)
    return powers / powers.sum(axis=-1, keepdims=True), np.log(powers.sum(axis=-1))


def log_weights(scores, mask):
    _, lse = make("softmax_with_lse")(scores, mask)
    return (scores if mask is None else np.where(mask, scores, -np.inf)) - lse[..., None], lse


def cut_off(d_heads, q, k, v, heads, lse, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.clip(np.exp(scores - lse[..., None]), 0, 1)
    d_weights = d_heads @ v.swapaxes(-1, -2) - (d_heads * heads).sum(axis=-1, keepdims=True)
    d_scores = weights * d_weights / np.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ d_heads


def ignore_100(logits, targets, ignored):
    counts = targets != -100
    probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)
    with_targets = probs.copy()
    with_targets[counts, targets[counts]] -= 1
    return counts[..., None] * with_targets / counts.sum()


WRITTEN = {  # as a student would write it
    "powers times the mask": (powers_times_mask, "softmax-with-lse"),
    "log-weights": (log_weights, "softmax-with-lse"),
    "heads not merged": (lambda heads: heads.swapaxes(1, 2), "merge-heads"),
    "mask forgotten, weights cut off at 1": (cut_off, "backward-from-lse"),
    "-100 ignored, -1 as an index": (
        lambda d_loss, *given: d_loss * ignore_100(*given), "cross-entropy-backward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRITTEN)
def test_a_mistake_is_named_however_it_is_written(mistake):
    assert verdict_on(*WRITTEN[mistake]).mistakes == {mistake}


MISBEHAVIOUR = {
    "hangs": (lambda *_: [None for _ in iter(int, 1)], "took longer than"),
    "exits": (lambda *_: os._exit(3), "ended"),
    "takes all": (lambda *_: np.ones(10**12), "memory"),
}


@pytest.mark.parametrize("case", MISBEHAVIOUR)
def test_misbehaviour_is_told_in_a_line(case):
    function, told = MISBEHAVIOUR[case]
    verdict = verdict_on(function, seconds=1.0, memory=2**28)
    assert told in stage(verdict, "runs").finding
    assert "\n" not in stage(verdict, "runs").finding


def test_a_text_is_no_number():
    verdict = verdict_on(lambda *_: "x", "cross-entropy")
    assert "float64" in stage(verdict, "type and dtype").finding


def test_what_is_printed_is_shown_cut():
    def chatty(d_weights, weights):
        print("x" * 10**6)
        return right(d_weights, weights)

    verdict = verdict_on(chatty, output=100)
    assert verdict
    assert 100 <= len(verdict.printed) < 300
    assert verdict.printed[:50] in str(verdict)


def test_tests_that_catch_all_mistakes_are_right():
    verdict = verdict_on(catch_all, "break-my-attention")
    assert verdict.passed, f"\n{verdict}"
    assert all(stage.passed for stage in verdict.stages)


def test_tests_are_scored():
    def weak(attention):
        q = np.ones((1, 1, 1, 4))
        assert attention(q, q, q, np.ones((1, 1, 1, 1), bool), None).shape == (1, 1, 1, 4)

    verdict = verdict_on(weak, "break-my-attention")
    assert stage(verdict, "accepts a right function").passed
    assert stage(verdict, "catches mistakes").passed is False
    told = verdict.remarks["slipped through"].splitlines()[1:]
    assert "- 5 mistakes that show with a softcap, such as: softcap is not used" in told
    assert len({line.partition(", such as: ")[0] for line in told}) == len(told) < 10

    def wrong(attention):
        raise AssertionError("no")

    calls = []

    def only_the_first(attention):
        calls.append(attention)
        assert len(calls) == 1

    verdict = verdict_on(only_the_first, "break-my-attention")
    assert stage(verdict, "accepts a right function").passed is False

    verdict = verdict_on(wrong, "break-my-attention")
    assert stage(verdict, "accepts a right function").passed is False
    assert stage(verdict, "catches mistakes").passed is None


def test_every_call_gets_copies():
    def mine(d_weights, weights):
        result = right(d_weights, weights)
        weights.fill(0)
        return result

    verdict = verdict_on(mine)
    assert stage(verdict, "the same twice").passed
    assert stage(verdict, "inputs left alone").passed is False


@pytest.mark.parametrize(
    "answer", [(), [], {}, "text", 1e308 * np.ones((2, 3, 4, 6)), [[1], [2, 3]]]
)
def test_odd_answers_are_judged(answer):
    assert not verdict_on(lambda *_: answer).passed


def test_zeros_are_not_taken_for_results_that_accumulate():
    rng = np.random.default_rng()
    verdict = verdict_on(lambda d, w: 0 * w if len(w) == 2 else rng.normal(size=w.shape))
    assert not verdict.mistakes


def test_the_wrong_number_of_arguments():
    verdict = verdict_on(lambda weights: weights)
    assert "it is called with (d_weights, weights)" in stage(verdict, "runs").finding


def test_nothing_heavy_is_imported():
    code = "import sys, mha_numpy.teach.exercises; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "numba", "IPython", "pytest", "rich"}
    assert not heavy & set(done.stdout.split())


def test_a_return_that_is_missing_for_some_inputs():
    softmax = make("softmax")
    verdict = verdict_on(lambda s, m: None if m is None else softmax(s, m), "softmax")
    assert not verdict.is_unwritten
    found = stage(verdict, "type and dtype")
    assert found.passed is False
    assert "is a `return` missing? (input 1)" in found.finding
    assert stage(verdict, "values").passed is None


def test_outputs_in_another_order_are_told():
    verdict = verdict_on(lambda *given: make("linear_backward")(*given)[::-1], "linear-backward")
    assert verdict.remarks["likely cause"] == (
        "the arrays are right, but in another order: d_x holds d_b, d_b holds d_x"
    )


def test_another_order_is_told_before_what_is_wrong_besides():
    def mine(*given):
        d_q, d_k, d_v = make("attention_backward", ["sign of d_k"])(*given)
        return d_k, d_q, d_v

    verdict = verdict_on(mine, "attention-backward")
    assert verdict.summary == ("the arrays are in another order: d_q holds d_k, d_k holds d_q")
    assert verdict.mistakes == {"sign of d_k"}
    assert verdict.remarks["and besides"] == "d_k has the wrong sign"
    assert verdict.remarks["evidence"].endswith("gives, once they are in the right order")
    assert "another order" in verdict.as_dict()["likely_cause"]


def test_several_clues_are_a_list():
    def mine(d_out, x, w):
        d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
        return d_x, 1.234 * d_w, d_b

    remark = verdict_on(mine, "linear-backward").remarks["and besides"]
    assert re.fullmatch(r"(\n- [^\n]+){2,}", remark)


def test_a_small_number_that_is_added_is_not_taken_for_float32():
    verdict = verdict_on(lambda s, m: make("softmax")(s, m) * (1 - 1e-9), "softmax")
    assert not verdict.passed
    assert not verdict.mistakes
    assert "a small number may have been added" in verdict.remarks["likely cause"]


def test_a_mistake_that_is_made_in_part_is_named():
    def mine(B, T, D, H, H_kv, d, itemsize):
        counts = make("cost_table")(B, T, D, H, H_kv, d, itemsize)
        return {**counts, "weights_bytes": counts["weights_bytes"] // itemsize}

    verdict = verdict_on(mine, "cost-table")
    assert verdict.mistakes == {"numbers for bytes"}
    assert "the other arrays are right" in verdict.remarks["evidence"]


def test_float32_inside_is_told_by_its_numbers():
    verdict = verdict_on(make("softmax_backward", ["float32 inside"]))
    assert verdict.mistakes == {"float32 inside"}
    assert verdict.remarks["evidence"].startswith("every number is a float32 number")


def test_float32_is_told_by_its_dtype():
    verdict = verdict_on(lambda *given: right(*given).astype(np.float32))
    assert stage(verdict, "type and dtype").finding.startswith(
        "d_scores: expected float64; got float32"
    )


def test_attention_in_blocks_may_not_hold_all_scores():
    verdict = verdict_on(lambda q, k, v, block: make("attention")(q, k, v), "online-attention")
    assert stage(verdict, "values").passed
    assert stage(verdict, "memory").passed is False
    assert re.fullmatch(
        r"it held .* at most; the limit is 512 KiB, which all scores of 2048 keys would take: "
        r"keep the scores of one block of keys alone",
        stage(verdict, "memory").finding,
    )


def imports_inside(x, num_heads):
    from mha_numpy.core import split_heads

    return split_heads(x, num_heads)


USERS = {
    "itself": alias,
    "under another name": lambda x, H: alias(x, H),
    "imported inside": imports_inside,
    "by a text": lambda x, H: getattr(sys.modules["mha_numpy.core"], "split_" + "heads")(x, H),
    "by NumPy": lambda x, H: np.frompyfunc(lambda _: alias(x, H), 1, 1)([0])[0],
    "by map": lambda x, H: next(map(alias, [x], [H])),
}


@pytest.mark.parametrize("case", USERS)
def test_calls_of_the_library_are_told_and_strictly_rejected(case):
    verdict = verdict_on(USERS[case], "split-heads")
    assert verdict.passed
    assert verdict.summary == "right, but calls mha_numpy.core.split_heads"
    assert str(verdict).splitlines()[-1] == "uses the library: calls mha_numpy.core.split_heads"
    strict = judge(find_exercise("split-heads"), lambda: USERS[case], strict=True)
    assert [stage.name for stage in strict.stages if not stage.passed] == ["own work"]
    assert strict.summary == "own work: calls mha_numpy.core.split_heads; write it yourself"


def test_of_what_is_called_public_names_alone_are_told():
    def private(x, H):
        from mha_numpy.core.attention import _cells_of

        layer = MultiHeadAttention(8, 2, rng=0)
        layer.backward(layer(np.ones((1, 3, 8))))
        with suppress(Exception):
            _cells_of(*[None] * _cells_of.__code__.co_argcount)
        return alias(x, H)

    names = [f"mha_numpy.layers.{name}" for name in ("MultiHeadAttention", "Layer")]
    assert verdict_on(private, "split-heads").remarks["uses the library"] == (
        f"calls {', '.join(names)}, mha_numpy.layers.MultiHeadAttention.backward and 2 more"
    )
    called = run_calls(lambda: private, [{"x": np.ones((1, 2, 4)), "H": 2}]).calls[0].called
    assert called[3:] == ("mha_numpy.core.attention", "mha_numpy.core.split_heads")


@pytest.mark.parametrize("answer", [None, NotImplementedError(), ValueError()])
def test_own_work_is_not_looked_at_where_nothing_ran(answer):
    def mine(d_weights, weights):
        if answer:
            raise answer

    verdict = judge(SOFTMAX_BACKWARD, lambda: mine, strict=True)
    assert stage(verdict, "own work")[1:3] == (None, "not looked at")


def test_what_computes_no_answer_may_be_called():
    def mine(d_weights, weights):
        from mha_numpy import models  # noqa: F401  loaded here, and not called

        compare(weights, weights)
        Saved(*[weights] * 6)._replace(x=d_weights)
        return right(d_weights, weights)

    verdict = judge(find_exercise("softmax-backward"), lambda: mine, strict=True)
    assert verdict
    assert stage(verdict, "own work").passed
    assert not verdict.remarks
    with_functions = judge(find_exercise("break-my-attention"), lambda: catch_all, strict=True)
    assert stage(with_functions, "own work").passed


def test_a_small_edit_is_in_the_dictionary_and_a_bug_to_be_found_is_not():
    edit = SmallEdit("another name", "softmax", wrong="x", right="y", others=3)
    verdict = replace(verdict_on(lambda d, w: d), edit=edit)
    found = json.loads(json.dumps(verdict.as_dict()))
    assert found["edit"] == {"group": "another name", "wrong": "x", "right": "y"}
    exhibit = find_exercise("museum-softmax-axis")
    found = judge(exhibit, lambda: exhibit.stub)
    assert found.mistakes
    assert found.as_dict()["causes"] == []


def test_how_many_other_edits_give_the_same_is_an_upper_bound():
    def mine(*given):
        d_x, d_w, d_b = make("linear_backward")(*given)
        return d_x, 2 * d_w, d_b

    evidence = verdict_on(mine, "linear-backward").remarks["evidence"]
    assert re.search("; at most [0-9]+ other small edits do so, too$", evidence)


def test_of_much_that_is_printed_the_beginning_is_shown():
    def talking(d_weights, weights):
        print(*range(20), sep="\n")
        return right(d_weights, weights)

    said = str(verdict_on(talking)).splitlines()
    assert said[-2:] == ["11", "... and 108 lines more"]


@pytest.mark.parametrize("factor", [1, 2])
def test_a_list_where_a_dict_is_expected_is_told_and_not_explained(factor):
    def cost(*sizes):
        return [factor * int(count) for count in make("cost_table")(*sizes).values()]

    verdict = verdict_on(cost, "cost-table")
    keys = "attention_params, projection_flops, score_flops, weights_bytes, kv_cache_bytes"
    finding = f"expected a dict with keys {keys}; got a list"
    assert stage(verdict, "type and dtype").finding == f"{finding} (input 1)"
    assert verdict.summary == f"type and dtype: {finding} (input 1)"


def powers(array, mask):
    return np.exp(array) if mask is None else np.exp(array) * mask


NOT_FINITE = {
    "rows that see nothing": (
        "softmax", lambda s, m: (p := powers(np.minimum(s, 9), m)) / p.sum(axis=-1, keepdims=True),
        r"; 6 are NaN or infinite, all in rows that may attend to nothing \(input 2\)",
    ),
    "large rows": (
        "softmax", lambda s, m: (p := powers(s, m)) / np.fmax(p.sum(axis=-1, keepdims=True), 1e-99),
        r"; \d+ are NaN or infinite, all in rows with numbers up to \d+ in scores \(input 3\)",
    ),
    "large inputs": (
        "cross-entropy", lambda x, t, i: make("cross_entropy")(x, t, i) + 0 * np.exp(abs(x)).max(),
        r"; 1 is NaN or infinite, only where logits has numbers far above 1 \(input 3\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_FINITE)
def test_where_numbers_are_not_finite(case):
    exercise, function, told = NOT_FINITE[case]
    finding = stage(verdict_on(function, exercise), "finite").finding
    assert re.search(told, finding), finding


def test_of_which_arrays_a_question_was_asked():
    def last_is_flat(d_out, x, w):
        d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
        return d_x, d_w, d_b[None] if len(x) == 3 else d_b

    found = stage(verdict_on(last_is_flat, "linear-backward"), "values").finding
    assert found == "as expected; not asked of d_b (input 1)"

    def fails_once(scores, mask):
        weights = make("softmax")(scores, mask)
        return weights[0] if mask is None else weights

    found = stage(verdict_on(fails_once, "softmax"), "values").finding
    assert found == "as expected, for weights (inputs 2 and 3)"


def test_a_wrong_key_and_one_that_is_missing_are_told_apart():
    def cost(*sizes):
        counts = make("cost_table")(*sizes)
        counts["kv_cache"] = counts.pop("kv_cache_bytes")
        return counts

    finding = stage(verdict_on(cost, "cost-table"), "type and dtype").finding
    assert "kv_cache_bytes: missing: nothing of this name was returned" in finding
    assert "kv_cache: nothing of this name was expected" in finding


def test_the_picture_is_of_the_input_that_is_told():
    def mine(scores, mask):
        weights = make("softmax")(scores, mask)
        return weights + 1e-3 if mask is None else weights - 0.5 * (scores < -1000) * weights

    verdict = verdict_on(mine, "softmax")
    (told,) = (name for name in verdict.remarks if name.startswith("input "))
    assert verdict.difference.title.startswith(f"weights, {told.split(' of ')[0]}")
    assert (
        verdict_on(lambda s, m: np.float64(np.float32(make("softmax")(s, m))), "softmax").difference
        is None
    )
