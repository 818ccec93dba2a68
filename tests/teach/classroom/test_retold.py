"""Stubs in a variant's words: their shapes, their code, and no word of the usual convention."""

import re
from itertools import pairwise

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves
from mha_numpy.teach.classroom.handout import stub_text
from mha_numpy.teach.classroom.retold import retold
from mha_numpy.teach.conventions import Variant, using
from mha_numpy.teach.diagnosis import TASKS, right_answers
from mha_numpy.teach.exercises import EXERCISES
from tests.sweeps import sweep
from tests.teach.diagnosis.test_variants import CASES, MOST
from tests.teach.diagnosis.usual_words import USUAL_WORDS

EXERCISE_OF = {exercise.task: exercise for exercise in EXERCISES if exercise.kind == "code"}
EACH = [*(((name,), task) for name, task in CASES), *sweep(MOST, 40, every=4)]
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


WITHOUT_AXES = ("adam_step", "train_steps", "round_to_digits")
USUAL = [((), task) for task in TASKS if task not in WITHOUT_AXES]


@pytest.mark.parametrize("case", [*USUAL, *EACH])
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
        sizes = {name: value for name, value in probe.items() if isinstance(value, int)}
        sizes |= {"H": probe.get("num_heads"), "H_kv": probe.get("num_kv_heads")}
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


def each_of(*tasks):
    """Return the cases of some tasks, those with one convention always."""
    ones = [((name,), task) for name, task in CASES if task in tasks]
    return [*ones, *sweep([case for case in MOST if case[1] in tasks], 2)]


DIFFERENTIATED = {
    "scores_backward": ("scores", "qk"),
    "attention_backward": ("heads", "qkv"),
    "backward_from_lse": ("heads", "qkv"),
    "linear_backward": ("out", "xw"),
}


@pytest.mark.parametrize("case", each_of(*DIFFERENTIATED))
def test_a_backward_differentiates_the_forward_of_its_docstring(case):
    result, names = DIFFERENTIATED[case[1]]
    forward, _ = forward_of(case)
    with using(Variant(1, tuple(case[0]))):
        probe, right = TASKS[case[1]].probes()[0], leaves(right_answers(case[1])[0])
    rng, arrays = np.random.default_rng(0), {"b": np.zeros_like(right.get("d_b", 0.0)), **probe}
    ways = {name: rng.normal(size=probe[name].shape) for name in names}
    plus, minus = (
        forward(result, **arrays | {n: arrays[n] + step * way for n, way in ways.items()})
        for step in (1e-6, -1e-6)
    )
    slope = (next(iter(probe.values())) * (plus - minus)).sum() / 2e-6
    told = sum((right[f"d_{name}"] * way).sum() for name, way in ways.items())
    assert np.isclose(slope, told, rtol=1e-6)


def sizes_of(names, x, heads):
    """Return B, T, H and d, from arrays whose axes are in the order of a variant."""
    axes = {"tokens first": ("TBD", "TBHd"), "tokens as columns": ("BDT", "BHdT"),
            "heads after the tokens": ("BTD", "BTHd"), "heads first": ("BTD", "HBTd")}  # fmt: skip
    of_x, of_heads = next((axes[name] for name in names if name in axes), ("BTD", "BHTd"))
    return dict(zip(of_x, x.shape, strict=True)) | dict(zip(of_heads, heads.shape, strict=True))


@pytest.mark.parametrize("case", each_of("input_gradient"))
def test_the_forward_of_heads_in_a_docstring_is_the_one_that_is_differentiated(case):
    forward, code = forward_of(case)
    with using(Variant(1, tuple(case[0]))):
        probe, d_x = TASKS[case[1]].probes()[0], right_answers(case[1])[0]
    x = np.random.default_rng(0).normal(size=d_x.shape)
    zeros = {f"b_{n}": np.zeros_like(getattr(probe["params"], f"b_{n}")) for n in "qkv"}
    arrays = {
        "x": x,
        "params": probe["params"]._replace(**zeros),
        **sizes_of(case[0], x, probe["d_q"]),
    }
    told = 0.0
    for n in "qkv":
        of_one = code.replace("w_q", f"w_{n}").replace("b_q", f"b_{n}")
        told += (probe[f"d_{n}"] * forward("q", of_one, **arrays)).sum()
    assert np.isclose((d_x * x).sum(), told)


@pytest.mark.parametrize("case", each_of("multi_head_backward"))
def test_the_layer_of_a_docstring_is_the_one_that_is_differentiated(case):
    forward, code = forward_of(case)
    split = re.search("split_heads is ``(.*?)``", " ".join(text_of(case).split()))[1]
    with using(Variant(1, tuple(case[0]))):
        probe = TASKS[case[1]].probes()[0]
    saved, params = probe["saved"], probe["params"]
    arrays = {**saved._asdict(), "params": params}
    sizes = sizes_of(case[0], saved.x, saved.q)
    line = {one.split(" = ")[0]: one for one in code.split("\n")}
    projected = re.search(r"split_heads\((.*?)\)(  #|$)", line["q"])[1]
    assert np.allclose(eval(f"({projected}){split}", {**arrays, **sizes}), saved.q)
    assert np.allclose(forward("weights", line["weights"], **arrays), saved.weights)
    mixed = line["merged"].replace("merge_heads", "")
    again = eval(f"merged{split}", {"merged": saved.merged, **sizes_of(case[0], saved.x, saved.v)})
    assert np.allclose(forward("merged", mixed, **arrays), again)


@pytest.mark.parametrize("case", each_of("grouped_backward"))
def test_groups_of_a_docstring_are_those_that_are_differentiated(case):
    forward, code = forward_of(case)
    assert code
    read = re.search(r"``g = (.*?)``", " ".join(text_of(case).split()))[1]
    with using(Variant(1, tuple(case[0]))):
        probe, right = TASKS[case[1]].probes()[0], leaves(right_answers(case[1])[0])
    after = {"heads first": 0, "tokens first": 2, "heads after the tokens": 2}
    axis = next((after[name] for name in case[0] if name in after), 1)
    H, H_kv = probe["q"].shape[axis], probe["k"].shape[axis]
    rng = np.random.default_rng(0)
    ways = {name: rng.normal(size=probe[name].shape) for name in "qkv"}

    def loss(step):
        arrays, total = {name: probe[name] + step * way for name, way in ways.items()}, 0.0
        for h in range(H):
            weights = probe["weights"].take(h, axis=0 if axis == 0 else 1)
            g = eval(read, {"h": h, "H": H, "H_kv": H_kv})
            heads = forward("heads", **arrays, weights=weights, h=h, g=g)
            total += (probe["d_heads"].take(h, axis=axis) * heads).sum()
        return total

    told = sum((right[f"d_{name}"] * way).sum() for name, way in ways.items())
    assert np.isclose((loss(1e-6) - loss(-1e-6)) / 2e-6, told, rtol=1e-5)


def test_dropout_of_a_docstring():
    forward, _ = forward_of((("p = kept",), "dropout_backward"))
    with using(Variant(1, ("p = kept",))):
        probe, right = TASKS["dropout_backward"].probes()[0], right_answers("dropout_backward")[0]
    found = forward("dropped", weights=probe["d_dropped"], keep=probe["keep"], p=probe["p"])
    assert np.allclose(found, right)
