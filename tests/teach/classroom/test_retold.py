"""Stubs in a variant's words: their shapes, their code, and no word of the usual convention."""

import re
from itertools import pairwise

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.classroom.handout import stub_text
from mha_numpy.teach.classroom.retold import retold
from mha_numpy.teach.conventions import CONVENTIONS, Variant, using
from mha_numpy.teach.diagnosis import TASKS, right_answers
from mha_numpy.teach.exercises import EXERCISES
from tests.sweeps import sweep
from tests.teach.diagnosis.test_variants import CASES, MOST
from tests.teach.diagnosis.usual_words import USUAL_WORDS

EXERCISE_OF = {exercise.task: exercise for exercise in EXERCISES if exercise.kind == "code"}
EACH = [*(((name,), task) for name, task in CASES), *sweep(MOST, 40)]
EACH_CASE = pytest.mark.parametrize("case", EACH)


def text_of(case):
    names, task = case
    return stub_text(EXERCISE_OF[task], Variant(1, tuple(names)))


def shapes_in(text):
    """Yield names and the shapes that a docstring states for them."""
    for names, shape in re.findall(r"^    (\w+(?:, \w+)*) : \(([^)]*)\)", text, re.MULTILINE):
        yield names.split(", "), shape
    flat = " ".join(text.split())
    for names, shape in re.findall(
        r"((?:(?:\w+\.)?[wb]_\w(?:, | and )?)+) \(([^)]+)\)", flat.replace("`", "")
    ):
        yield (
            [f"params.{name.removeprefix('params.')}" for name in re.split(", | and ", names)],
            shape,
        )
    kept = flat.partition("What forward kept: ")[2].partition(" Returns")[0]
    for names, shape in re.findall(r"(\w+(?:, \w+)*) \(([^)]+)\)", kept):
        yield [f"saved.{name}" for name in names.split(", ")], shape


@EACH_CASE
def test_stated_shapes_are_those_of_the_arrays(case):
    names, task = case
    text, count = text_of(case), 0
    with using(Variant(1, tuple(names))):
        probes, answers = TASKS[task].probes(), right_answers(task)
    for probe, answer in zip(probes, answers, strict=True):
        results = leaves(answer)
        if "" in results:
            results = {TASKS[task].results[0]: results[""]}
        arrays = {
            name: value
            for name, value in (leaves(probe) | results).items()
            if isinstance(value, np.ndarray)
        }
        sizes = {"H": probe.get("num_heads"), "H_kv": probe.get("num_kv_heads")}
        stated = [(arrays[n], shape) for ns, shape in shapes_in(text) for n in ns if n in arrays]
        for is_sum in (False, True):  # H*d, once H and d are known
            for array, shape in stated:
                parts = [part.strip() for part in shape.split(",") if part.strip()]
                rest = array.shape[-len(parts) + 1 :] if parts[0] == "..." else array.shape
                parts = parts[1:] if parts[0] == "..." else parts
                assert len(parts) == len(rest), (shape, array.shape)
                for part, size in zip(parts, rest, strict=True):
                    if part.isidentifier():
                        if sizes.get(part) is None:
                            sizes[part] = size
                        assert sizes[part] == size, (shape, array.shape)
                    elif is_sum:
                        known = {name: value for name, value in sizes.items() if value is not None}
                        if part.startswith("H*"):  # widths of heads may occur only here
                            known.setdefault(part[2:], size / known["H"])
                        sizes |= {name: known[name] for name in known if name.startswith("d_")}
                        assert eval(part, known) == size, (shape, array.shape)
        count += len(stated)
    assert count >= len(probes) * min(2, len(arrays))


@EACH_CASE
def test_no_word_of_the_usual_convention_is_left(case):
    names, _ = case
    text = " ".join(text_of(case).split()).replace("num_heads, mask)", "")
    for name in names:
        found = re.search(USUAL_WORDS[name], text)
        assert not found, (name, found, text)


@EACH_CASE
def test_a_stub_is_tidy_and_the_same_but_for_what_a_convention_changes(case):
    names, task = case
    text, usual = text_of(case), stub_text(EXERCISE_OF[task], Variant(1))
    assert text != usual
    assert max(map(len, text.split("\n"))) <= 100
    assert [line for line in text.split("\n") if set(line.strip()) == {"-"}] == [
        line for line in usual.split("\n") if set(line.strip()) == {"-"}
    ]
    compile(text, "stub", "exec")
    assert not any(one.strip() == two.strip() == "" for one, two in pairwise(text.split("\n")[:-1]))


def test_a_usual_stub_is_left_as_it_is():
    for exercise in EXERCISE_OF.values():
        text = str(TASKS[exercise.task].solution.__doc__)
        assert retold(text, ()) == text


def forward_of(case):
    """Return the forward that a backward's docstring states, as a function of arrays by name."""
    text = text_of(case)
    flat = " ".join(text.split())
    block = re.search(r"::\n\n(.*?)\n\n", text, re.DOTALL)
    code = re.sub("^ +", "", block[1], flags=re.MULTILINE) if block else FORWARD.search(flat)[1]
    axis = -2 if "last axis but one" in flat else -1

    def forward(result, code=code, **arrays):
        hidden = np.where(arrays["weights"] == 0, -np.inf, 0.0) if "weights" in arrays else 0.0

        def softmax(scores):
            with np.errstate(invalid="ignore"):
                powers = np.exp(scores + hidden - scores.max(axis=axis, keepdims=True))
                return np.nan_to_num(powers / powers.sum(axis=axis, keepdims=True))

        known = {"np": np, "softmax": softmax, **arrays}
        exec(code, known)
        return known[result]

    return forward, code


FORWARD = re.compile("Forward was ``(.*?)``")


@pytest.mark.parametrize(
    ("task", "result", "names"),
    [
        ("scores_backward", "scores", ["q", "k"]),
        ("attention_backward", "heads", ["q", "k", "v"]),
        ("backward_from_lse", "heads", ["q", "k", "v"]),
        ("linear_backward", "out", ["x", "w"]),
    ],
)
def test_a_backward_differentiates_the_forward_of_its_docstring(task, result, names):
    for case in [one for one in (*CASES_OF_TASK[task], *MOST_OF_TASK[task])]:
        forward, _ = forward_of(case)
        with using(Variant(1, tuple(case[0]))):
            probe, right = TASKS[task].probes()[0], leaves(right_answers(task)[0])
        rng, arrays = np.random.default_rng(0), {**probe}
        if task == "linear_backward":
            arrays["b"] = np.zeros(len(right["d_b"]))
        ways = {name: rng.normal(size=probe[name].shape) for name in names}
        d_out = probe[next(iter(probe))]
        outs = [
            forward(result, **{**arrays, **{n: arrays[n] + step * way for n, way in ways.items()}})
            for step in (1e-6, -1e-6)
        ]
        slope = (d_out * (outs[0] - outs[1])).sum() / 2e-6
        told = sum((right[f"d_{name}"] * way).sum() for name, way in ways.items())
        assert np.isclose(slope, told, rtol=1e-6), (case, slope, told)


CASES_OF_TASK = {task: [((name,), one) for name, one in CASES if one == task] for task in TASKS}
MOST_OF_TASK = {task: [one for one in MOST if one[1] == task] for task in TASKS}


def test_the_forward_of_heads_in_a_docstring_is_the_one_that_is_differentiated():
    task = "input_gradient"
    for case in (*CASES_OF_TASK[task], *MOST_OF_TASK[task]):
        forward, code = forward_of(case)
        with using(Variant(1, tuple(case[0]))):
            probe, d_x = TASKS[task].probes()[0], right_answers(task)[0]
        x, is_first = np.random.default_rng(0).normal(size=d_x.shape), "tokens first" in case[0]
        sizes = {"T" if is_first else "B": x.shape[0], "B" if is_first else "T": x.shape[1]}
        if "tokens as columns" in case[0]:
            sizes = {"B": x.shape[0], "T": x.shape[2]}
        count = probe["d_q"].size // (sizes["B"] * sizes["T"])
        shape = [n for n in probe["d_q"].shape]
        H = shape[
            0
            if "heads first" in case[0]
            else 2
            if {"tokens first", "heads after the tokens"} & set(case[0])
            else 1
        ]
        sizes |= {"H": H, "d": count // H}
        params = probe["params"]._replace(
            **{f"b_{n}": 0 * getattr(probe["params"], f"b_{n}") for n in "qkv"}
        )
        told = sum(
            (
                probe[f"d_{n}"]
                * forward(
                    "q",
                    code.replace("w_q", f"w_{n}").replace("b_q", f"b_{n}"),
                    x=x,
                    params=params,
                    **sizes,
                )
            ).sum()
            for n in "qkv"
        )
        assert np.isclose((d_x * x).sum(), told), case


def test_the_layer_of_a_docstring_is_the_one_that_is_differentiated():
    task = "multi_head_backward"
    for case in (*CASES_OF_TASK[task], *MOST_OF_TASK[task]):
        _, code = forward_of(case)
        flat = " ".join(text_of(case).split())
        split = re.search("split_heads is ``(.*?)``", flat)[1]
        with using(Variant(1, tuple(case[0]))):
            saved, params = TASKS[task].probes()[0]["saved"], TASKS[task].probes()[0]["params"]
        forward, _ = forward_of(case)
        x, is_first = saved.x, "tokens first" in case[0]
        sizes = {"T" if is_first else "B": x.shape[0], "B" if is_first else "T": x.shape[1]}
        if "tokens as columns" in case[0]:
            sizes = {"B": x.shape[0], "T": x.shape[2]}
        sizes |= {"H": saved.weights.shape[0 if "heads first" in case[0] else 1]}
        sizes |= {"d": saved.q.size // (sizes["B"] * sizes["T"] * sizes["H"])}
        steps = (
            code.replace("split_heads(", "(")
            .replace("+ params.b_q)", f"+ params.b_q){split}")
            .replace("+ params.b_q[:, None])", f"+ params.b_q[:, None]){split}")
        )
        lines = steps.split("\n")
        q = forward(
            "q",
            "\n".join(line for line in lines if line.startswith("q =")),
            x=x,
            params=params,
            **sizes,
        )
        assert np.allclose(q, saved.q)
        weights = next(line for line in lines if line.startswith("weights"))
        assert np.allclose(
            forward("weights", weights, q=saved.q, k=saved.k, weights=saved.weights), saved.weights
        )
        mixed = re.search(r"merge_heads\((.*)\)$", code, re.MULTILINE)[1]
        heads = forward("heads", f"heads = {mixed}", v=saved.v, weights=saved.weights)
        again = eval(
            f"merged{split}",
            {
                "merged": saved.merged,
                **sizes,
                "d": saved.v.size // (sizes["B"] * sizes["T"] * sizes["H"]),
            },
        )
        assert np.allclose(heads, again)


def test_groups_of_a_docstring_are_those_that_are_differentiated():
    task = "grouped_backward"
    for case in (*CASES_OF_TASK[task], *MOST_OF_TASK[task]):
        forward, code = forward_of(case)
        read = re.search(r"``g = (.*?)``", " ".join(text_of(case).split()))[1]
        with using(Variant(1, tuple(case[0]))):
            probe, right = TASKS[task].probes()[0], leaves(right_answers(task)[0])
        axis = (
            0
            if "heads first" in case[0]
            else 2
            if {"tokens first", "heads after the tokens"} & set(case[0])
            else 1
        )
        H, H_kv = probe["q"].shape[axis], probe["k"].shape[axis]
        rng = np.random.default_rng(0)
        ways = {name: rng.normal(size=probe[name].shape) for name in "qkv"}

        def loss(step):
            arrays = {name: probe[name] + step * way for name, way in ways.items()}
            total = 0.0
            for h in range(H):
                weights = probe["weights"][h] if axis == 0 else probe["weights"][:, h]
                g = eval(read, {"h": h, "H": H, "H_kv": H_kv})
                heads = forward("heads", **arrays, weights=weights, h=h, g=g)
                total += (probe["d_heads"].take(h, axis=axis) * heads).sum()
            return total

        told = sum((right[f"d_{name}"] * way).sum() for name, way in ways.items())
        assert np.isclose((loss(1e-6) - loss(-1e-6)) / 2e-6, told, rtol=1e-5), case


def test_dropout_of_a_docstring():
    forward, _ = forward_of((("p = kept",), "dropout_backward"))
    with using(Variant(1, ("p = kept",))):
        probe, d_weights = (
            TASKS["dropout_backward"].probes()[0],
            right_answers("dropout_backward")[0],
        )
    assert np.allclose(
        forward("dropped", weights=probe["d_dropped"], keep=probe["keep"], p=probe["p"]), d_weights
    )
