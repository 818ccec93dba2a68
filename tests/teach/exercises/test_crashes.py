"""explain_crash: typical errors of students, and what a tutor says about them."""

import pytest

from mha_numpy.teach.diagnosis import Variant, using
from mha_numpy.teach.exercises import find_exercise, judge
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.crashes import explain_crash
from tests.sweeps import every

SPLIT = "def split_heads(x, num_heads):\n    B, T, D = x.shape\n"
SOFTMAX = "def softmax(scores, mask):\n"
SHIFTED = (
    "    if mask is not None:\n        scores = np.where(mask, scores, -1e30)\n"
    "    e = np.exp(scores - np.max(scores, axis=-1{keep}))\n"
)
SCORES = "def scores(q, k):\n"
CRASHES = [
    ("split-heads", SPLIT + "    return x.reshape(B, T, num_heads, D / num_heads)",
     "use `//` in `return x.reshape(B, T, num_heads, D / num_heads)`"),
    ("split-heads", SPLIT + "    d = D / num_heads\n    return x.reshape(B, T, num_heads, d)",
     "use `//` in `d = D / num_heads`"),
    ("split-heads", SPLIT + "    return x.reshape(B, T, num_heads, -1).transpose(1, 2)",
     "to exchange two axes, use `swapaxes` in `return x.reshape"),
    ("split-heads", SPLIT + "    return x.reshape(B, num_heads, T, D)",
     "the array has 120 numbers, and a shape of 2 (the batch), 3 (the number of heads), 5 (the "
     "number of tokens), 12 (H*d) holds 360"),
    ("split-heads", SPLIT + "    return x.view(B, T, num_heads, -1)", "write `x.reshape(...)`"),
    ("split-heads", SPLIT + "    return x.permute(0, 1, 2)", "write `x.transpose(...)`"),
    ("split-heads", SPLIT + "    return x.contiguous()",
     "no `contiguous`; leave it out: NumPy copies by itself"),
    ("split-heads", SPLIT + "    return x.size(0)", "is it `x.shape[0]`?"),
    ("split-heads", SPLIT + "    return x.shape(0)", "a shape takes square brackets"),
    ("split-heads", SPLIT + "    return num_heds", "did you mean `num_heads`?"),
    ("split-heads", SPLIT + "    return x.sum(axis=3)", "the array has 3 axes, counted from 0"),
    ("split-heads", SPLIT + "    return x[0, 0, 0, 0]", "has 3 axes, and there are 4 indices"),
    ("split-heads", SPLIT + "    return x[:, num_heads * T]",
     "axis 1 has the length 5 (the number of tokens), counted from 0, so there is no index 15"),
    ("merge-heads", "def merge_heads(heads):\n    B, T, D = heads.shape",
     "`heads` has 4 axes, and the line has 3 names"),
    ("merge-heads", "def merge_heads(heads):\n    return heads[:, len(heads) + 1]",
     "axis 1 has the length 3 (the number of heads)"),
    ("softmax", SOFTMAX + SHIFTED.format(keep="") + "    return e / e.sum(axis=-1)",
     "`keepdims=True` is missing in `e = np.exp(scores - np.max(scores, axis=-1))` and in "
     "`return e / e.sum(axis=-1)`"),
    ("softmax", SOFTMAX + SHIFTED.format(keep=", keepdims=True") + "    return e / e.sum(axis=-1)",
     "`keepdims=True` is missing in `return e / e.sum(axis=-1)`"),
    ("softmax", SOFTMAX + "    if mask:\n        pass\n    return scores",
     "write `if mask is not None:`"),
    ("softmax", SOFTMAX + "    return scores + ~mask", "`mask` can be None, as the task says"),
    ("softmax", SOFTMAX + "    return math.exp(scores)", "functions of `math` take one number"),
    ("softmax", SOFTMAX + "    return scores.max(dim=-1)", "NumPy calls it `axis=`, not `dim=`"),
    ("softmax", SOFTMAX + "    return np.softmax(scores)", "NumPy has no `softmax`"),
    ("softmax", SOFTMAX + "    return np.sumn(scores)", "did you mean `sum`?"),
    ("softmax", SOFTMAX + "    return scores / scores.sum", "a function that was not called"),
    ("softmax", SOFTMAX + "    return scores.sum[0]", "round brackets, not square ones"),
    ("softmax", SOFTMAX + "    if mask is not None:\n        e = 1\n    return e",
     "`e` has no value yet in this line"),
    ("softmax", SOFTMAX + "    return softmax(scores, mask)", "calls itself without end"),
    ("softmax", "from scipyx import softmax as sm\n" + SOFTMAX + "    return sm(scores)",
     "only this file and NumPy are there when you are graded: write `softmax` yourself, or copy"),
    ("softmax", SOFTMAX + "    import cupy.none as cp\n    return cp.softmax(scores)",
     "`import cupy.none as cp` fails, because only NumPy is there when you are graded: write"),
    ("softmax", SOFTMAX + "    return (scores", "look for a bracket"),
    ("scores", SCORES + "    return q @ k.T", "write `k.swapaxes(-1, -2)` in `return q @ k.T`"),
    ("scores", SCORES + "    return q @ k", "has to be transposed, `x.swapaxes(-1, -2)`, in"),
    ("scores", SCORES + "    return q + k[..., :1, 0, 0]",
     "here it meets 5 (the number of queries) and 2 (the batch)"),
    ("masks", "def make_mask(lengths, T_q, T_k, q_offset, left):\n    return ~np.zeros((T_q, T_k))",
     "need arrays of bool"),
    ("multi-head", "def multi_head(x, params, num_heads, mask):\n    return x @ params['w_q']",
     "`params.w_q`"),
    ("scores-backward", "def scores_backward(d_scores, q, k):\n    return np.einsum('ij,jk', q, k)",
     "one letter for each of its axes"),
]  # fmt: skip


def why(exercise, text):
    exercise = find_exercise(exercise)
    source = f"import math\nimport numpy as np\n{text}\n"
    verdict = judge(exercise, lambda: load(source, "hw.py", exercise.function_name))
    return verdict.remarks.get("likely cause", "")


@pytest.mark.parametrize(("exercise", "text", "told"), every(3, CRASHES))
def test_what_a_tutor_says(exercise, text, told):
    assert told in why(exercise, text)


@pytest.mark.slow
def test_a_change_that_does_not_help_is_not_told():
    text = SOFTMAX + "    e = scores.max(axis=-1)\n    return scores + np.ones((2, 3, 4, 5))"
    assert "keepdims" not in why("softmax", text)
    assert "here it meets 6 (the number of keys) and 5" in why("softmax", text)


def test_under_a_convention_lengths_have_no_names():
    with using(Variant(1, ("tokens as columns",))):
        assert "(the number" not in why("softmax", SOFTMAX + "    return scores[:, 9]")


@pytest.mark.parametrize("line", ["raise ValueError('mine')", "return scores.max(view=-1)"])
def test_an_error_that_says_it_all(line):
    assert why("softmax", SOFTMAX + f"    {line}") == ""


@pytest.mark.parametrize("number", ["9" * 300, "-1", "٣", "0"])
def test_messages_that_nobody_wrote_do_no_harm(number):
    """What comes out of a sandbox may be forged, so each sentence has to bear any number."""
    exercise = find_exercise("softmax")
    verdict = judge(exercise, lambda: lambda scores, mask: scores[:, 9])
    for message in (
        f"ValueError: cannot reshape array of size {number} into shape ({number},{number})",
        "ValueError: cannot reshape array of size 5 into shape (a,b)",
        f"IndexError: index {number} is out of bounds for axis {number} with size {number}",
        f"ValueError: matmul: x (size {number} is different from {number})",
        f"ValueError: operands could not be broadcast together with shapes ({number},) (,3)",
        f"ValueError: axis {number} is out of bounds for array of dimension {number}",
        f"ValueError: not enough values to unpack (expected {number}, got {number})",
        f"ValueError: x (line {number} of hw.py: `x`)",
        "NameError: name 'x' is not defined (line 1 of hw.py: `)`)" + " (" * 300,
    ):
        for text in ("", "def softmax(", "x = 1\n" * 9):
            assert isinstance(explain_crash(verdict, message, text, lambda _: 0), str)
