"""The stages, one by one: what each finds, and what it says."""

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from types import FunctionType

import numpy as np
import pytest

from mha_numpy.checking import compare
from mha_numpy.core import split_heads as alias
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.teach.diagnosis import make
from mha_numpy.teach.diagnosis.search import SmallEdit
from mha_numpy.teach.exercises import Limits, find_exercise, judge
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.judge import memory_stage, probe_inputs
from mha_numpy.teach.exercises.sandbox import Run, run_calls
from mha_numpy.teach.exercises.stages import Evidence, examine
from mha_numpy.teach.exercises.verdict import Difference
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
    assert "numerical differentiation agrees to" in stage(verdict, "gradients").finding
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


# the functions that are judged, as students write them


def multiplies(d, w):
    return np.matmul(d[..., :-1], np.concatenate([w, w, w], axis=-1)[..., :-1, :]) + right(d, w)


def subtracts_in_place(d_weights, weights):
    d_weights -= (weights * d_weights).sum(axis=-1, keepdims=True)
    return weights * d_weights


def empties_an_input(d_weights, weights):
    result = right(d_weights, weights)
    weights.fill(0)
    return result


def adds_each_time(d_weights, weights, kept=[]):  # noqa: B006
    kept.append(1)
    return right(d_weights, weights) + 0.1 * len(kept) - 0.1


def adds_up_one_gradient(d_out, x, w, kept={}):  # noqa: B006
    d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
    kept[w.shape] = kept.get(w.shape, 0) + d_w
    return d_x, kept[w.shape], d_b


def blind(x, params, num_heads, mask):
    return make("multi_head")(x, params, num_heads, np.ones_like(mask))


def powers(array, mask):
    return np.exp(array) if mask is None else np.exp(array) * mask


def powers_times_mask(scores, mask):
    found = powers(scores, mask)
    return found / found.sum(axis=-1, keepdims=True), np.log(found.sum(axis=-1))


def log_weights(scores, mask):
    _, lse = make("softmax_with_lse")(scores, mask)
    return (scores if mask is None else np.where(mask, scores, -np.inf)) - lse[..., None], lse


def cut_off(d_heads, q, k, v, heads, lse, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.clip(np.exp(scores - lse[..., None]), 0, 1)
    d_weights = d_heads @ v.swapaxes(-1, -2) - (d_heads * heads).sum(axis=-1, keepdims=True)
    d_scores = weights * d_weights / np.sqrt(q.shape[-1])
    return d_scores @ k, d_scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ d_heads


def ignore_100(d_loss, logits, targets, ignored):
    counts = targets != -100
    probs = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs /= probs.sum(axis=-1, keepdims=True)
    with_targets = probs.copy()
    with_targets[counts, targets[counts]] -= 1
    return d_loss * counts[..., None] * with_targets / counts.sum()


def last_is_flat(d_out, x, w):
    d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
    return d_x, d_w, d_b[None] if len(x) == 3 else d_b


def fails_once(scores, mask):
    weights = make("softmax")(scores, mask)
    return weights[0] if mask is None else weights


def renames(*sizes):
    counts = make("cost_table")(*sizes)
    counts["kv_cache"] = counts.pop("kv_cache_bytes")
    return counts


def without_text(function):
    """Return a function whose text is not to be found, so that no change of it is tried."""
    code = function.__code__.replace(co_filename="nowhere.py")
    return FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


@without_text
def counts_numbers(B, T, D, H, H_kv, d, itemsize):
    counts = make("cost_table")(B, T, D, H, H_kv, d, itemsize)
    return {**counts, "weights_bytes": counts["weights_bytes"] // itemsize}


@without_text
def over_queries(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=0, keepdims=True) @ v


def scaled(factor):
    def mine(d_out, x, w):
        d_x, d_w, d_b = make("linear_backward")(d_out, x, w)
        return d_x, factor * d_w, d_b

    return without_text(mine)


def listed(factor):
    return lambda *sizes: [factor * int(count) for count in make("cost_table")(*sizes).values()]


KEYS = "attention_params, projection_flops, score_flops, weights_bytes, kv_cache_bytes"
OWN = "softmax-backward"
SAID = [  # an exercise, a function, whether it passes a stage, and what that says
    (OWN, lambda d, w: d @ w, "runs", False, "ValueError: .*"),
    (
        OWN, multiplies, "runs", False, r"^ValueError: matmul: Input operand 1 has a mismatch in "
        r"its core dim.*\(size \d+ is different from \d+\) \(line \d+ of test_judge.py: ",
    ),
    (OWN, lambda w: w, "runs", False, r"it is called with \(d_weights, weights\)"),
    (OWN, lambda *_: [None for _ in iter(int, 1)], "runs", False, "took longer than"),
    (OWN, lambda *_: os._exit(3), "runs", False, "ended"),
    (OWN, lambda *_: np.ones(10**12), "runs", False, "memory"),
    (
        OWN, lambda d, w: right(d, w).tolist(), "type and dtype", False,
        "d_scores: expected an array",
    ),
    (
        OWN, lambda d, w: right(d, w).astype(int), "type and dtype", False,
        "expected float64; got int64",
    ),
    (
        OWN, lambda *given: right(*given).astype(np.float32), "type and dtype", False,
        "^d_scores: expected float64; got float32",
    ),
    (OWN, lambda d, w: (right(d, w), w), "type and dtype", False, "d_scores"),
    ("cross-entropy", lambda *_: "x", "type and dtype", False, "float64"),
    (
        "linear-backward", lambda *given: (*make("linear_backward")(*given), 1.0),
        "type and dtype", False, r"^result: expected d_x, d_w, d_b; got a tuple of 4 \(input 1\)$",
    ),
    (
        "softmax", lambda s, m: None if m is None else make("softmax")(s, m),
        "type and dtype", False, r"is a `return` missing\? \(input 1\)",
    ),
    *(("cost-table", listed(factor), "type and dtype", False,
       rf"^expected a dict with keys {KEYS}; got a list \(input 1\)$") for factor in (1, 2)),
    (
        "cost-table", renames, "type and dtype", False,
        "kv_cache_bytes: missing: no array of this name was returned",
    ),
    (
        "cost-table", renames, "type and dtype", False,
        "kv_cache: no array of this name was expected",
    ),
    (
        OWN, lambda d, w: right(d, w).swapaxes(-1, -2), "shape", False,
        "the last two axes are swapped",
    ),
    (OWN, lambda d, w: right(d, w)[0], "shape", False, "expected shape"),
    (OWN, lambda d, w: right(d, w) / (w > 0), "finite", False, "nan"),
    (
        "softmax", lambda s, m: (p := powers(np.minimum(s, 9), m)) / p.sum(axis=-1, keepdims=True),
        "finite", False,
        r"; 6 are NaN or infinite, all in rows that see nothing \(input 2\)",
    ),
    (
        "softmax", lambda s, m: (p := powers(s, m)) / np.fmax(p.sum(axis=-1, keepdims=True), 1e-99),
        "finite", False,
        r"; \d+ are NaN or infinite, all in rows with numbers as low as -\d+ in scores \(input 3\)",
    ),
    (
        "cross-entropy", lambda x, t, i: make("cross_entropy")(x, t, i) + 0 * np.exp(abs(x)).max(),
        "finite", False,
        r"; 1 is NaN or infinite, only where logits has numbers far above 1 \(input 3\)",
    ),
    (OWN, subtracts_in_place, "inputs left alone", False, "^d_weights: changed in place"),
    (OWN, empties_an_input, "inputs left alone", False, "^weights: changed in place"),
    (OWN, adds_each_time, "the same twice", False, "at first"),
    # not by its place in a tuple
    ("linear-backward", adds_up_one_gradient, "the same twice", False, "^d_w in the second call: "),
    (OWN, empties_an_input, "the same twice", True, ""),
    (OWN, lambda d, w: w * d, "invariants", False, "rows of d_scores sum to 0: off by"),
    (
        "masks", make("make_mask", ["causal, leaks one key"]), "invariants", False,
        r"^no query sees the future: \[.*\] is True and should be False",
    ),
    ("masks", lambda *given: ~make("make_mask")(*given), "invariants", False, "^(?!.*off by)"),
    ("multi-head", blind, "invariants", False, "the mask is causal"),
    (OWN, lambda d, w: 2 * right(d, w), "values", False, "each is 2 times the expected number"),
    (OWN, subtracts_in_place, "values", True, ""),
    (
        "linear-backward", last_is_flat,
        "values", None, r"^as expected; not checked for d_b \(input 1\)$",
    ),
    ("softmax", fails_once, "values", None, r"^as expected, for weights \(inputs 2, 3 and 5\)$"),
    ("softmax", lambda s, m: None if m is None else make("softmax")(s, m), "values", None, ""),
    (OWN, lambda d, w: 2 * right(d, w), "gradients", False, "numerical differentiation says"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "function", "name", "passed", "finding"), SAID)
def test_what_a_stage_says(exercise, function, name, passed, finding):
    exercise, limits = find_exercise(exercise), Limits(seconds=2.0, memory=2**28)
    evidence = Evidence(exercise, run_calls(lambda: function, probe_inputs(exercise), limits))
    assert not evidence.is_unwritten
    with np.errstate(all="ignore"):
        stages = examine(evidence)
    (found,) = [stage for stage in stages if stage.name == name]
    assert found.passed is passed
    assert re.search(finding, found.finding), found.finding
    assert "\n" not in found.finding
    earlier = stages[: stages.index(found)]
    if passed is False and name != "gradients":
        assert all(s.passed is not False for s in earlier if s.name != "invariants")


def test_what_holds_all_scores_is_right_but_for_its_memory():
    verdict = verdict_on(lambda q, k, v, _: make("attention")(q, k, v), "online-attention")
    assert stage(verdict, "values").passed
    assert [stage.name for stage in verdict.stages if not stage.passed] == ["memory"]
    assert verdict.stages[-1].finding.startswith("it held ")
    assert verdict.stages[-1].finding.endswith(
        " at most; the limit is 512 KiB, the size of all scores of 2048 keys: "
        "keep the scores of only one block of keys"
    )


@pytest.mark.parametrize(
    ("answer", "error", "finding"),
    [
        (10**4000, "", "cannot be measured"), (-1, "", "cannot be measured"),
        ("1", "", "cannot be measured"),
        (None, "ValueError", "ValueError"), (1024, "", "it held 1 KiB at most; the limit is "),
    ],
)  # fmt: skip
def test_a_memory_that_cannot_be_is_not_believed(answer, error, finding):
    found = memory_stage(Run([Call(answer, error, (), 0.0)], "", ""))
    assert found.finding.startswith(finding)
    assert found.passed is (answer == 1024)


def noise(d, w, rng=np.random.default_rng()):  # noqa: B008
    return 0 * w if len(w) == 2 else rng.normal(size=w.shape)


def reordered(*given):
    d_q, d_k, d_v = make("attention_backward", ["sign of d_k"])(*given)
    return d_k, d_q, d_v


CAUSES = [  # an exercise, a function, the mistakes that are named, what remarks say, None if none
    *(("cost-table", listed(factor), set(), {"likely cause": None}) for factor in (1, 2)),
    ("softmax-backward", adds_each_time, set(), {}),
    ("softmax-backward", noise, set(), {}),
    ("linear-backward", adds_up_one_gradient, {"results accumulate between calls"}, {}),
    ("multi-head", blind, {"mask forgotten"}, {}),
    ("softmax-with-lse", powers_times_mask, {"powers times the mask"}, {}),
    ("softmax-with-lse", log_weights, {"log-weights"}, {}),
    ("merge-heads", lambda heads: heads.swapaxes(1, 2), {"heads not merged"}, {}),
    ("backward-from-lse", cut_off, {"mask forgotten, weights cut off at 1"}, {}),
    ("cross-entropy-backward", ignore_100, {"-100 ignored, -1 as an index"}, {}),
    (
        "cost-table", counts_numbers, set(),
        {"likely cause": "^weights_bytes: right except for a factor: yours is 1 / itemsize times"},
    ),
    (
        "softmax-backward", make("softmax_backward", ["float32 inside"]), {"float32 inside"},
        {"evidence": "^every number is a float32 number"},
    ),
    (
        "softmax", lambda s, m: make("softmax")(s, m) * (1 - 1e-9), set(),
        {"likely cause": None, "clue": "a small number may have been added"},
    ),
    (
        "gelu-backward", lambda d, x: d * np.cos(97 * x), set(),
        {"no known mistake": "no small edit of gelu_backward gives"},
    ),
    (
        "linear-backward", scaled(1.234), set(),
        {
            "likely cause": "^d_w: right except for a factor: yours is 1.234 times the right one$",
            "evidence": "^what is said of an array gives every number of it, on every input$",
        },
    ),
    # at most: an upper bound
    (
        "attention", over_queries, set(),
        {"evidence": "; up to [0-9]+ other small edits may too$"},
    ),
    (
        "attention-backward", make("attention_backward", ["sign of d_k", "row sum left out"]),
        {"sign of d_k", "row sum left out"},
        {
            "likely cause": "^the row sum of softmax is left out",
            "and also": "^d_k has the wrong sign$",
        },
    ),
    (
        "linear-backward", lambda *given: make("linear_backward")(*given)[::-1], set(),
        {
            "likely cause":
            "^the arrays are right, but in a different order: d_b is in the place of d_x, "
            "d_x is in the place of d_b$",
        },
    ),
    (
        "attention-backward", reordered, {"sign of d_k"},
        {
            "likely cause": "^the arrays are in a different order: d_k is in the place of d_q, "
            "d_q is in the place of d_k$",
            "and also": "^d_k has the wrong sign$",
            "evidence": "arrays, once they are in the right order$",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "function", "mistakes", "remarks"), CAUSES)
def test_what_a_verdict_names_and_says(exercise, function, mistakes, remarks):
    verdict = verdict_on(function, exercise)
    assert not verdict.passed
    assert verdict.mistakes == mistakes
    for name, text in remarks.items():
        said = verdict.remarks.get(name)
        assert said is None if text is None else re.search(text, said), said
    cause, clue = (verdict.remarks.get(name) for name in ("likely cause", "clue"))
    first = next(stage for stage in verdict.stages if stage.passed is False)
    assert verdict.summary == (cause or clue or f"{first.name}: {first.finding}")
    data = verdict.as_dict()
    assert (data["likely_cause"], data["clue"]) == (cause, clue)
    assert not (cause and clue)
    assert not (clue and (verdict.mistakes or verdict.edit))  # a fact about numbers, no cause


def test_a_known_mistake_is_named_with_its_evidence_and_a_picture():
    verdict = verdict_on(lambda d, w: w * d)
    assert verdict.mistakes == {"row sum left out"}
    assert "row sum" in verdict.remarks["likely cause"]
    assert "this mistake reproduces " in verdict.remarks["evidence"]
    assert verdict.difference.expected.ndim == 2
    assert "<img" in verdict._repr_html_()
    assert [panel.title for panel in verdict.difference.draw().panels] == [
        "expected", "yours", "difference",
    ]  # fmt: skip
    assert "expected" in verdict.difference.table().to_text()


@pytest.mark.parametrize(("column", "dots"), [(2, False), (11, True)])
def test_the_numbers_of_a_difference_contain_it(column, dots):
    actual = np.zeros((3, 12))
    actual[1, column] = 7
    _, (_, _, mine) = Difference("d_k", np.zeros((3, 12)), actual).table().rows
    assert "7" in mine
    assert mine.startswith("...") == dots


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


@pytest.mark.parametrize(
    "answer", [(), [], {}, "text", 1e308 * np.ones((2, 3, 4, 6)), [[1], [2, 3]]]
)
def test_odd_answers_are_judged(answer):
    assert not verdict_on(lambda *_: answer).passed


def test_nothing_heavy_is_imported():
    code = "import sys, mha_numpy.teach.exercises; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "numba", "IPython", "pytest", "rich"}
    assert not heavy & set(done.stdout.split())


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
    assert stage(verdict, "own work")[1:3] == (None, "not checked")


def test_what_computes_no_answer_may_be_called_and_tests_that_catch_all_mistakes_are_right():
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
    assert all(stage.passed for stage in with_functions.stages), f"\n{with_functions}"


def test_a_small_edit_is_in_the_dictionary_and_a_bug_to_be_found_is_not():
    edit = SmallEdit("a different variable", "softmax", wrong="x", right="y", others=3)
    verdict = replace(verdict_on(lambda d, w: d), edit=edit)
    found = json.loads(json.dumps(verdict.as_dict()))
    assert found["edit"] == {"group": "a different variable", "wrong": "x", "right": "y"}
    exhibit = find_exercise("museum-softmax-axis")
    found = judge(exhibit, lambda: exhibit.stub)
    assert found.mistakes
    assert found.as_dict()["causes"] == []


def test_of_much_that_is_printed_the_beginning_is_shown():
    def talking(d_weights, weights):
        print(*range(20), sep="\n")
        return right(d_weights, weights)

    said = str(verdict_on(talking)).splitlines()
    assert said[-2:] == ["11", "... and 148 more lines"]


def test_the_picture_is_of_the_input_that_is_told():
    @without_text
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
