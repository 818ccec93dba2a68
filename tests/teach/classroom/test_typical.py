"""Sixty typical submissions get marks in the order in which a teacher puts them."""

import importlib.util

import pytest

from tests.notebooks.cells import ROOT

spec = importlib.util.spec_from_file_location("marks", ROOT / "docs" / "examples" / "marks.py")
simulation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(simulation)

NONSENSE = {
    "all weight on the first visible key": ("softmax", """
def softmax(scores, mask):
    visible = np.ones(scores.shape) if mask is None else mask * 1.0
    first = visible.cumsum(-1) == 1
    return first * visible
"""),
    "attention to the first key": ("attention", """
def attention(q, k, v):
    return np.repeat(v[:1], len(q), axis=0)
"""),
    "a mean of values, merged": ("multi-head", """
def multi_head(x, params, num_heads, mask):
    v = x @ params.w_v + params.b_v
    return np.stack([v[:, :t + 1].mean(1) for t in range(x.shape[1])], 1) @ params.w_o + params.b_o
"""),
    "everybody sees everything": ("masks", """
def make_mask(lengths, T_q, T_k, q_offset, left):
    return np.ones((len(lengths), 1, T_q, T_k), bool)
"""),
    "the key with the query's number": ("masks", """
def make_mask(lengths, T_q, T_k, q_offset, left):
    return np.broadcast_to(np.eye(T_q, T_k, dtype=bool), (len(lengths), 1, T_q, T_k))
"""),
    "rows that sum to 0": ("softmax-backward", """
def softmax_backward(d_weights, weights):
    seen = weights > 0
    mean = (d_weights * seen).sum(-1, keepdims=True) / np.maximum(seen.sum(-1, keepdims=True), 1)
    return seen * (d_weights - mean)
"""),
    "scores from norms": ("scores", """
def scores(q, k):
    return np.linalg.norm(q, axis=-1)[..., None] + np.linalg.norm(k, axis=-1)[..., None, :]
"""),
    "sums that agree, and are 0": ("linear-backward", """
def linear_backward(d_out, x, w):
    return x * 0, w * 0, d_out[0, 0]
"""),
    "gradients like the gradient": ("attention-backward", """
def attention_backward(d_heads, q, k, v, weights):
    return q * 0, k * 0, v * d_heads.mean()
"""),
    "a mean of the three gradients": ("input-gradient", """
def input_gradient(d_q, d_k, d_v, params):
    merged = (d_q + d_k + d_v).transpose(0, 2, 1, 3)
    return merged.reshape(*merged.shape[:2], -1)
"""),
    "only what must be 0": ("multi-head-backward", """
def multi_head_backward(d_out, params, saved):
    names = "w_q b_q w_k b_k w_v b_v w_o b_o".split()
    return d_out, [getattr(params, name) * 0 for name in names]
"""),
    "the mean of each group": ("grouped-attention", """
def grouped_attention(q, k, v, *rest):
    return np.repeat(v, q.shape[1] // v.shape[1], 1).mean(2, keepdims=True) + 0 * q[..., :1]
"""),
    "the mean of what is visible": ("masked-attention", """
def masked_attention(q, k, v, mask, *rest):
    w = np.broadcast_to(mask, q.shape[:3] + k.shape[2:3]) * 1.0
    w = w / np.maximum(w.sum(-1, keepdims=True), 1)
    return w @ np.repeat(v, q.shape[1] // v.shape[1], 1)
"""),
    "the first of each group": ("sum-over-group", """
def sum_over_group(d, *rest):
    return d[:, :rest[0]] if rest else d[:, ::2]
"""),
    "a mean of the values of all blocks": ("online-attention", """
def online_attention(q, k, v, block):
    return np.repeat(v.mean(0, keepdims=True), len(q), 0)
"""),
}  # fmt: skip


def one_of(of, name):
    """Return one of the sixty, graded."""
    (found,) = simulation.graded(of=of, name=name)
    return found


@pytest.mark.slow
def test_sixty_in_order_as_on_the_page():
    typical = simulation.graded()
    assert len(typical) == 60
    assert simulation.agreement(typical) >= 0.95
    last = max(one.group for one in typical)
    assert {one.name: one.marks for one in typical if one.group == last and one.marks > 5} == {}
    without = simulation.agreement(simulation.without_slips(typical))
    assert simulation.page(typical, without) == simulation.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("of", "name"),
    [
        pytest.param("hw1", "zeros of the right shapes", marks=pytest.mark.slow),
        pytest.param(
            "hw2", "a mean of values, and zeros of the right shapes", marks=pytest.mark.slow
        ),
        pytest.param("attention", "the plain mean of the values", marks=pytest.mark.slow),
        ("softmax", "equal weights for all visible cells"),
    ],
)
def test_what_does_nothing_of_the_task_earns_nothing(of, name):
    assert one_of(of, name).marks <= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", NONSENSE)
def test_answers_that_obey_rules_and_answer_nothing(name):
    of, text = NONSENSE[name]
    result = simulation.grade(f"import numpy as np\n{text}", of)
    assert result.functions[0].state == "wrong", result.functions[0].findings  # it ran
    assert result.points <= 0.05 * result.out_of


@pytest.mark.parametrize(
    ("of", "name", "least"),
    [
        ("softmax", "without the maximum", 80),
        ("softmax", "NaN in rows that see nothing", 80),
        ("attention", "right without the maximum", 80),
        ("masks", "a right mask of type int", 80),
        ("linear-backward", "right, but in float32", 80),
        ("linear-backward", "d_b is a mean", 60),
        pytest.param(
            "multi-head-backward",
            "one of nine arrays wrong: d_b_o is a mean",
            85,
            marks=pytest.mark.slow,
        ),
        ("softmax-backward", "crashes on inputs without batch and heads", 60),
    ],
)
def test_what_is_nearly_right_earns_most(of, name, least):
    assert one_of(of, name).marks >= least


@pytest.mark.slow
def test_no_question_that_was_not_asked_has_a_cross():
    (function,) = one_of("input-gradient", "crashes on every input").result.functions
    assert (function.state, function.groups) == ("failed", {})
    (function,) = one_of("masks", "a right mask of type int").result.functions
    assert function.groups == {"shape": False, "values": True, "robustness": True}
    (function,) = one_of("linear-backward", "right, but in float32").result.functions
    assert [name for name, passed in function.groups.items() if not passed] == ["shape"]
    assert function.findings == [
        "the type or dtype of the result is not the one in the task",
        "the numbers are right, but not to the precision of float64",
    ]
    name = "crashes on inputs without batch and heads"
    (function,) = one_of("softmax-backward", name).result.functions
    right, asked = map(int, function.counted.split(" of "))
    assert 0 < right == asked - 1
    assert [name for name, passed in function.groups.items() if not passed] == ["values"]
    assert function.findings[0].startswith("it does not always run: a ValueError in ")


def test_equal_marks_share_a_place():
    assert simulation._ranks([3.0, 1.0, 3.0]).tolist() == [2.0, 0.5, 2.0]
