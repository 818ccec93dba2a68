"""A student's tests in isolation: the functions that they test cannot be known but by calls."""

import inspect
import shutil
import time

import numpy as np
import pytest

from mha_numpy.errors import SandboxError
from mha_numpy.teach.diagnosis import Variant, fingerprints, make, using
from mha_numpy.teach.exercises import Limits, find_exercise, judge
from mha_numpy.teach.exercises.child.calls import load
from mha_numpy.teach.exercises.child.messages import Call
from mha_numpy.teach.exercises.isolation import Sandbox
from mha_numpy.teach.exercises.judge import judge_answers, probe_inputs
from mha_numpy.teach.exercises.judge_tests import (
    CALLS,
    LARGEST,
    RIGHT,
    bounded,
    candidates,
    gaps_of,
)
from mha_numpy.teach.exercises.sandbox import Run
from tests.teach.exercises import catch_all
from tests.teach.exercises.test_isolation import PRELUDE, SLOT, attacks_in, each

isolated = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap isolates submissions, and is not installed"
)
EXERCISE = find_exercise("break-my-attention")
LIMITS = Limits(seconds=2.0, memory=2**28)
PATIENT = Limits(seconds=60.0)
STRONG = inspect.getsource(catch_all).replace("def catch_all", "def break_my_attention")
WEAK = """
import numpy as np

def break_my_attention(attention):
    q = np.zeros((1, 1, 2, 4))
    visible = np.ones((1, 1, 2, 2), bool)
    assert (attention(q, q, v=q + 1, mask=visible, softcap=None) == 1).all()
"""


def run_of(source, limits=PATIENT, inputs=None):
    given = probe_inputs(EXERCISE) if inputs is None else inputs
    with Sandbox(limits, slot=SLOT) as sandbox:
        return sandbox.run(source, "mine.py", "break_my_attention", given)


class TestTheOrder:
    def test_is_another_for_each_seed(self):
        orders = []
        for seed in (1, 1, 2):
            with using(Variant(seed)):
                orders.append(candidates(EXERCISE))
        assert orders[0] == orders[1] != orders[2]
        assert all(order.count("") == RIGHT for order in orders)
        assert [order.index("") for order in orders[1:]] != [0, 0]
        assert set(orders[0]) - {""} <= set(fingerprints(EXERCISE.task)) | set(orders[2])

    def test_tests_that_begin_anew_each_time_do_not_find_the_right_ones(self):
        seen = []

        def only_the_first(attention):
            seen.append(attention)
            assert len(seen) == 1

        verdict = judge(EXERCISE, lambda: only_the_first)
        assert verdict.share == 0
        assert [stage.passed for stage in verdict.stages] == [True, False, None]


def test_tests_that_end_early_have_no_share():
    with using(Variant(2)):
        caught = [Call(None, "AssertionError", (), 0.0)] * candidates(EXERCISE).index("")
        verdict = judge_answers(EXERCISE, Run(caught, "", "was killed"))
    assert caught
    assert verdict.share == 0
    assert [stage.passed for stage in verdict.stages] == [False, None, None]


@pytest.mark.parametrize("conventions", [(), ("True = blocked", "heads after the tokens")])
def test_mistakes_with_one_gap_are_told_as_one(conventions):
    gaps = {
        (): ["scale missing", "keys mixed instead of values"],
        ("a mask that hides keys",): ["mask forgotten", "mask after softmax"],
        ("a mask that hides keys", "a query that sees nothing"): ["-1e9 for -inf"],
        ("a mask that hides keys", "a softcap"): ["softcap after the mask"],
        ("large scores",): ["no maximum subtracted", "powers times the mask"],
        ("a mask that hides keys", "large scores"): ["maximum includes hidden scores"],
        ("more query heads than key/value heads",): ["groups tiled, not repeated"],
    }
    with using(Variant(1, conventions)):
        assert gaps_of(EXERCISE.task, [name for names in gaps.values() for name in names]) == gaps
    several = ["mask's batch axis lined up with the heads"]
    assert gaps_of(EXERCISE.task, several) == {("more than one sequence",): several}


class TestBounds:
    @pytest.mark.parametrize(
        "shapes",
        [
            *([shape] * 4 for shape in ((5, 1, 1, 1), (1, 9, 1, 1), (1, 1, 33, 1))),
            [(1, 1, 1, 1)] * 3 + [(1, 1, 1, 65)], [(1, 1, 1)] * 4, [(1, 1, 1, 1, 1)] * 4,
        ],
    )  # fmt: skip
    def test_nothing_is_computed_from_large_arrays(self, shapes):
        attention = bounded(lambda *_: pytest.fail("computed"))
        q, k, v, mask = (np.broadcast_to(np.float64(1), shape) for shape in shapes)
        with pytest.raises(ValueError, match="expected .* or smaller; got"):
            attention(q, k, v, mask.astype(bool), None)

    def test_the_largest_arrays_are_answered(self):
        x = np.ones((*LARGEST[:2], 32, 64))
        mask = np.ones((LARGEST[0], 1, 32, 32), bool)
        assert bounded(make(EXERCISE.task))(x, x, x, mask, 2).shape == x.shape

    @pytest.mark.parametrize("other", ["text", None, {"a": 1}, 1j * np.ones((1, 1, 1, 1))])
    def test_nothing_is_computed_from_anything_else(self, other):
        x = np.ones((1, 1, 1, 1))
        attention = bounded(lambda *_: pytest.fail("computed"))
        for given in ([other, x, x, x > 0], [x, x, x, other], [x, x, x, x]):
            with pytest.raises(ValueError, match="expected"):
                attention(*given, None)
        with pytest.raises((TypeError, ValueError)):
            attention(x, x, x, x > 0, {"not": "a number"})

    def test_a_number_of_calls(self):
        x = np.ones((1, 1, 1, 1))
        attention = bounded(make(EXERCISE.task))
        for _ in range(CALLS):
            attention(x, x, x, x > 0, None)
        with pytest.raises(ValueError, match=f"expected at most {CALLS} calls"):
            attention(x, x, x, x > 0, None)


@isolated
@pytest.mark.parametrize("source", [STRONG, WEAK], ids=["strong", "weak"])
def test_the_same_verdict_as_by_a_check(source):
    checked = judge(EXERCISE, lambda: load(source, "mine.py", "break_my_attention"), PATIENT)
    graded = judge_answers(EXERCISE, run_of(source))
    assert graded.stages == checked.stages
    assert graded.remarks == checked.remarks
    assert graded.share == checked.share
    assert graded.passed is (source == STRONG)
    assert 0 < graded.share <= 1


@isolated
def test_a_stub_is_not_written():
    source = "def break_my_attention(attention):\n    raise NotImplementedError"
    assert judge_answers(EXERCISE, run_of(source)).is_unwritten


HOSTILE = attacks_in("""
### forged: it rejects all
tell(values.pack({"Loaded": {}}))
for _ in range(60):
    tell(forged(None, "AssertionError"))
def break_my_attention(attention): pass
### forged: it accepts all
tell(values.pack({"Loaded": {}}))
for _ in range(60):
    tell(forged())
def break_my_attention(attention): pass
### forged: calls before it is loaded
for _ in range(100):
    tell(forged())
tell(values.pack({"Asked": {"given": (), "named": {}}}))
def break_my_attention(attention): pass
### forged: a question of other kinds
def break_my_attention(attention):
    forge(values.pack({"Asked": {"given": 1, "named": (2,)}}))
### forged: a question without a part
def break_my_attention(attention):
    forge(values.pack({"Asked": {"number": 3}}))
### floods: questions
def break_my_attention(attention):
    while True:
        attempt(attention)
### floods: answers that are not read
def break_my_attention(attention):
    x = np.ones((4, 8, 32, 64))
    few = x[..., :8]
    given = (few, few, x, x[:, :1, :, :32] > 0, None)
    question = values.pack({"Asked": {"given": given, "named": {}}})
    while True:
        tell(question)
### floods: one large question
def break_my_attention(attention):
    x = np.ones((1, 1, 1000, 1000))
    attention(x, x, x, x > 0, None)
### floods: large questions
def break_my_attention(attention):
    x = np.ones((4, 8, 32, 64))
    while True:
        attempt(attention, x, x, x, x > 0, None)
### ends: it never returns
def break_my_attention(attention):
    while True:
        pass
### ends: it is killed while it waits
def break_my_attention(attention):
    threading.Thread(target=lambda: os.kill(os.getpid(), 9)).start()
    while True:
        attempt(attention)
""")
ENDS = {
    "forged: a question": "its answers cannot be read",
    "forged: calls before": "its answers cannot be read",
    "floods: questions": "took longer than 2 s",
    "floods: answers": "asked for answers and did not read them",
    "floods: large": "returned more than 64 MiB",
    "ends: it never": "took longer than 2 s",
    "ends: it is killed": ("was killed", "took longer"),
}


@isolated
@pytest.mark.parametrize(
    "name",
    each(HOSTILE, "forged: it accepts all", "floods: questions"),
)
def test_gains_nothing_and_ends_in_time(name):
    start = time.monotonic()
    run = run_of(HOSTILE[name], LIMITS)
    seconds = time.monotonic() - start
    verdict = judge_answers(EXERCISE, run)
    assert verdict.share == 0
    assert not verdict.passed
    assert seconds < LIMITS.seconds + 60  # starting takes long on a busy machine
    expected = [end for start, end in ENDS.items() if name.startswith(start)]
    assert not expected or run.ended.startswith(expected[0])


SPY = """
def break_my_attention(attention):
    print(attention.__name__, attention.__defaults__, attention.__dict__, attention.__qualname__)
    print([cell.cell_contents for cell in attention.__closure__], attention.__code__.co_consts)
    print(sorted(map(repr, attention.__globals__)))
    frame = sys._getframe()
    while frame:
        print({n: v for n, v in frame.f_locals.items() if n not in ("source", "task")})
        print({**frame.f_locals.get("task", {}), "source": ""})
        frame = frame.f_back
    for module in list(sys.modules.values()):
        if "mistake" in getattr(module, "__name__", "") and hasattr(module, "BANK"):
            print("REACHED", module)
    try:
        attention(1)
    except RuntimeError as error:
        print(error)
    for path in ("/proc/self/fd", "/exercises", "/packages"):
        print(path, os.listdir(path))
    attempt(__import__, "mha_numpy.teach.exercises.judge_tests")
    attempt(__import__, "mha_numpy.teach.diagnosis.mutants")
"""


@isolated
def test_nothing_of_the_functions_can_be_read():
    run = run_of(PRELUDE + SPY, Limits(seconds=60.0, output=10**7))
    assert run.ended == ""
    assert "the function that you called raised a TypeError" in run.printed
    hidden = [*fingerprints(EXERCISE.task), "bounded", "with mistakes", "masked_attention"]
    assert not [text for text in [*hidden, "REACHED"] if text in run.printed]


@isolated
class TestFunctionsThatStayOutside:
    SOURCE = """
def break_my_attention(f, x):
    try:
        return f(x, more=x)
    except RuntimeError as error:
        return str(error)
"""

    def given(self, f):
        return [{"f": f, "x": 2}]

    @pytest.mark.parametrize(
        ("function", "answer"),
        [
            (lambda x, more: {"sum": x + more}, {"sum": 4}),
            (lambda x, more: {}["hidden"], "the function that you called raised a KeyError"),
        ],
    )
    def test_answer_what_is_asked_and_tell_of_an_error_its_type(self, function, answer):
        (call,) = run_of(self.SOURCE, inputs=self.given(function)).calls
        assert call.answer == answer

    def test_answer_as_much_as_a_test_may_ask_for(self):
        inputs = self.given(lambda x, more: np.ones(LARGEST))
        (call,) = run_of(self.SOURCE, inputs=inputs).calls
        assert call.answer.shape == LARGEST

    def test_each_call_has_its_own(self):
        given = [*self.given(lambda x, more: "one"), *self.given(lambda x, more: "two")]
        assert [call.answer for call in run_of(self.SOURCE, inputs=given).calls] == ["one", "two"]

    def test_a_lack_of_memory_here_is_not_the_students(self):
        def fails(x, more):
            raise MemoryError

        with pytest.raises(SandboxError, match="memory ran out while"):
            run_of(self.SOURCE, inputs=self.given(fails))
