"""The search of small edits: its table, what it finds, what it tells, and when it gives up."""

import ast

import numpy as np
import pytest

from mha_numpy.teach.diagnosis import TASKS, Variant, diagnose, make, right_answers, search, using
from mha_numpy.teach.diagnosis.clues import find_clues
from mha_numpy.teach.diagnosis.rewrite import rewritten, rules
from mha_numpy.teach.diagnosis.small_edits import GROUPS, read_edits


def answers_of(task, function):
    return [function(**probe) for probe in TASKS[task].probes()]


@pytest.mark.slow
def test_the_table_is_up_to_date():
    assert search.stale_tasks() == [], "run mha-numpy mistakes --search-table"
    kept, made = search.known("scores_backward"), search.compute("scores_backward")
    assert np.array_equal(kept.edits, made.edits)
    for row, other in zip(kept.numbers, made.numbers, strict=True):  # processors round apart
        assert search.have(row[None], other)[0]
    assert search.FILE.stat().st_size < 2**15 * len(TASKS)


def test_only_what_is_stale_is_computed(monkeypatch, tmp_path):
    with np.load(search.FILE) as file:
        kept = dict(file) | {"scores.made_of": "else", "merge_heads.others": "as it was"}
    monkeypatch.setattr(search, "FILE", tmp_path / "table.npz")
    np.savez(search.FILE, **kept)
    search.known.cache_clear()
    assert search.write_table() == ["scores"]
    assert search.stale_tasks() == []
    assert search.known("merge_heads").others == "as it was"
    search.known.cache_clear()


@pytest.mark.slow
def test_every_kind_of_edit_finds_something():
    kinds = set()
    for task in ("train_steps", *TASKS):  # it has loops, and so most kinds
        edits = search.candidates(task)
        kinds |= {edits[row].edit.group for row in search.known(task).edits}
        if kinds == set(GROUPS):
            break
    assert kinds == set(GROUPS)


@pytest.mark.parametrize(
    ("what", "place", "written"),
    [
        ("a + b", "", ["a", "b", "a - b"]),
        ("x.sum(axis=0)", "", ["x[1:].sum(axis=0)", "np.take(x, 0, axis=0)"]),
        ("f(x, y)", "", ["x", "y"]),
        ("np.exp(x - y)", "", ["np.exp(x) - y", "np.exp(-(x - y))"]),
        ("x", "VALUE", ["-x", "x / n", "np.cumsum(x, axis=1)"]),
        ("range(n)", "LOOP", ["range(n)[::-1]", "range(1, n)"]),
        ("a < b", "TEST", ["True", "a <= b"]),
    ],
)
def test_rules(what, place, written):
    part = ast.parse(what, mode="eval").body
    known = {name: [ast.Name("n")] for name in ("SIZE", "ARRAY")} | {"AXIS": [ast.Constant(1)]}
    texts = {ast.unparse(new) for _, new in rewritten(part, place, known, rules())}
    assert texts.issuperset(written)
    assert what not in texts


def test_one_expression_has_rules_of_several_kinds_those_of_left_out_parts_first():
    (rule,) = [rule for rule in rules() if ast.unparse(rule.old) == "A @ B"][:1]
    assert rule.group == "a missing part"
    texts = [
        ast.unparse(new) for _, new in rewritten(ast.parse("a @ b").body[0].value, "", {}, rules())
    ]
    assert "b @ a" in texts


@pytest.mark.parametrize(
    ("body", "group", "wrong", "right"),
    [
        ("y = x + 1\nreturn y", "a missing part", "y = x", "y = x + 1"),
        ("y = x + 1\nreturn y", "a missing line", "", "y = x + 1"),
        ("for i in n:\n    x = x + i\nreturn x", "a loop that ends after one round", "break", ""),
        ("a, b = g(x)\nreturn a - b", "two things swapped", "b, a = g(x)", "a, b = g(x)"),
    ],
)  # fmt: skip
def test_the_lines_of_an_edit(body, group, wrong, right):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    edited = read_edits(f'def f(x: Array) -> Array:\n    """Compute."""\n{lines}')
    assert (wrong, right) in {edited.lines(e) for e in edited.edits if e.group == group}
    before = ast.unparse(edited.module)
    assert all(edited.code(e) is None or ast.unparse(edited.module) == before for e in edited.edits)


def mean_left_out(d_weights, weights):
    return weights * (
        d_weights - (weights * d_weights).sum(axis=-1, keepdims=True) / weights.shape[-1]
    )


def test_an_edit_is_found_where_no_known_mistake_fits():
    found = diagnose("softmax_backward", answers_of("softmax_backward", mean_left_out))
    assert not found.is_right
    assert not found.causes
    assert "sum" in found.edit.right or "mean" in found.edit.right
    assert found.edit.wrong != found.edit.right


def test_a_known_mistake_is_told_before_an_edit():
    made = make("softmax_backward", ["row sum left out"])
    found = diagnose("softmax_backward", answers_of("softmax_backward", made))
    assert found.causes == (frozenset({"row sum left out"}),)
    assert found.edit is None


def test_other_numbers_are_searched_without_the_table():
    with using(Variant(seed=5)):
        answers = answers_of("softmax_backward", mean_left_out)
        assert diagnose("softmax_backward", answers).edit.right
        assert search.find_edit("softmax_backward", answers, 0) is None


def test_only_the_wrong_arrays_are_searched_for():
    def linear_backward(d_out, x, w):
        d_x, _, d_b = right(d_out, x, w)
        return d_x, np.einsum("bti,bto->io", x, d_out) / len(x) ** 3, d_b / 7

    right = make("linear_backward")
    found = diagnose("linear_backward", answers_of("linear_backward", linear_backward))
    assert found.edit is None
    moved = [answer._replace(d_x=answer.d_x + 1) for answer in right_answers("linear_backward")]
    assert diagnose("linear_backward", moved).edit.right == "d_x = d_out @ w.T"


def test_a_row_of_numbers_tells_arrays_apart():
    right = right_answers("scores")
    usual = search.numbers_of(right, right)
    assert usual.all()
    for other in (right[0] + 1e-6, right[0][..., ::-1], right[0].swapaxes(-1, -2)):
        assert not search.have(usual[None], search.numbers_of([other, *right[1:]], right))[0]
    assert search.have(usual[None], search.numbers_of([right[0] + 1e-13, *right[1:]], right))[0]
    assert search.numbers_of([None, *right[1:]], right)[0] == 0


@pytest.mark.parametrize(
    ("task", "change", "clue"),
    [
        ("attention_backward", lambda a: a._replace(d_v=a.d_v.round(1)),
         "d_q and d_k are right and d_v is wrong"),
        ("rope", lambda a: np.where(np.arange(a.shape[-1]) < a.shape[-1] // 2, a, a**2),
         "out: wrong only in the second half of the indices of axis 3 (of 4 axes)"),
        ("scores", lambda a: 0.3 * a, "scores: each is 0.3 times the expected number"),
    ],
)  # fmt: skip
def test_clues(task, change, clue):
    answers = [change(answer) for answer in right_answers(task)]
    assert any(clue in found for found in find_clues(task, answers))


def test_inputs_that_are_wrong_share_something():
    answers = right_answers("masked_attention")
    probes = TASKS["masked_attention"].probes()
    wrong = [
        a if probe["softcap"] is None else a.round(1)
        for a, probe in zip(answers, probes, strict=True)
    ]
    (clue,) = find_clues("masked_attention", wrong)
    assert clue.startswith("of our inputs, yours is right only on those where softcap is None, ")
    assert find_clues("masked_attention", answers) == []


def test_an_edit_that_many_others_equal_is_not_told_where_there_is_nan():
    wrong = make("softmax", ["-1e9 for -inf", "no maximum subtracted"])
    found = diagnose("softmax", answers_of("softmax", wrong))
    assert frozenset({"-1e9 for -inf", "no maximum subtracted"}) in found.causes
    assert found.edit is None


def test_a_mistake_is_named_in_float32_too():
    wrong = make("rope", ["pairs interleaved", "float32 inside"])
    found = diagnose("rope", answers_of("rope", wrong))
    assert found.causes == (frozenset({"pairs interleaved", "float32 inside"}),)


def test_what_belongs_there_is_no_mistake():
    edits = search.candidates("scores", "scale 1/sqrt(D)")
    lines = (one.edited.lines(one.edit) for one in edits)
    wrong, right = next(pair for pair in lines if "q.shape[1] if" in pair[1])  # the mistake itself
    edit = search.SmallEdit("a different number", "scores", wrong, right)
    assert not search._is_of_right_lines(edit)
    assert search._is_of_right_lines(edit._replace(right="scale = 1 / np.sqrt(q.shape[-1])"))
