"""What is told of a wrong array by itself: factors, places, orders, heads, layouts."""

import numpy as np
import pytest

from mha_numpy.core.multihead_params import MultiHeadParams
from mha_numpy.teach.diagnosis import TASKS, Variant, diagnose, make, right_answers, using
from mha_numpy.teach.diagnosis.clues import find_clues
from mha_numpy.teach.diagnosis.fingerprints import attempt
from mha_numpy.teach.diagnosis.relations import find_cause, find_relation
from mha_numpy.teach.diagnosis.sizes import factor_of, sizes_of
from mha_numpy.teach.diagnosis.wrong import wrong_of
from mha_numpy.teach.exercises import find_exercise, judge


def answers_of(task, function):
    return [attempt(function, probe, (Exception,)) for probe in TASKS[task].probes()]


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def heads_of(q, k, v, root=None):
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(root or q.shape[-1])) @ v


def reading(of_k, of_v):
    def grouped_attention(q, k, v):
        H, H_kv = q.shape[1], k.shape[1]
        pairs = [(of_k(h, H, H_kv), of_v(h, H, H_kv)) for h in range(H)]
        parts = [heads_of(q[:, h], k[:, m], v[:, n]) for h, (m, n) in enumerate(pairs)]
        return np.stack(parts, axis=1)

    return grouped_attention


def usual(h, H, H_kv):
    return h // (H // H_kv)


def attention_backward(d_heads, q, k, v, weights):
    return make("attention_backward")(d_heads, q, k, v, weights)


def changed(**changes):
    """Return a function whose gradients are changed, each in its own way."""

    def backward(**given):
        right = attention_backward(**given)
        return right._replace(**{f: change(getattr(right, f)) for f, change in changes.items()})

    return backward


def first_keys(scores):
    made = np.array(scores)
    made[..., scores.shape[-2] :] = 0
    return made


def blocks_left_out(q, k, v, block):
    whole = max(len(k) // block * block, min(block, len(k)))
    return heads_of(q, k[:whole], v[:whole])


def bias_of_each_head(x, params, num_heads, mask):
    return make("multi_head")(x, params, num_heads, mask) + (num_heads - 1) * params.b_o


def by_other_root(x, params, num_heads, mask):
    d_k, d_v = (w.shape[1] // num_heads for w in (params.w_q, params.w_v))
    w_q, b_q = (a * np.sqrt(d_k / d_v) for a in (params.w_q, params.b_q))
    return make("multi_head")(x, params._replace(w_q=w_q, b_q=b_q), num_heads, mask)


def only_new(**given):
    right = make("decode_step")(**given)
    return right._replace(k=right.k[:, :, -1:], v=right.v[:, :, -1:])


CASES = [
    ("attention", lambda q, k, v: np.tile(v.mean(axis=0), (len(q), 1)),
     "heads: the mean of v over all keys: every key has the same weight"),
    ("attention", lambda q, k, v: softmax(1e9 * (q @ k.T)) @ v,
     "heads: the key with the largest score has all the weight"),
    ("attention", lambda q, k, v: heads_of(q, k[: len(q)], v[: len(q)]),
     "heads: what comes out without the keys from T_q on"),
    ("attention", lambda q, k, v: heads_of(q, k, v, v.shape[-1]),
     "heads: the scores are divided by np.sqrt(d_v), not by np.sqrt(d_k)"),
    ("attention", lambda q, k, v: heads_of(q, k, v) / len(k),
     "heads: right except for a factor: yours is 1 / T_k times the right one"),
    ("multi_head", by_other_root,
     "out: the scores are divided by np.sqrt(d_v), not by np.sqrt(d_k)"),
    ("multi_head", bias_of_each_head,
     "out: (H - 1) times params.b_o is added to the right numbers"),
    ("online_attention", blocks_left_out,
     "heads: what comes out without the keys after the last whole block"),
    ("decode_step", only_new, "k: there is only the last key"),
    ("scores", lambda q, k: first_keys(make("scores")(q, k)),
     "scores: the keys from T_q on: 0; the rest is right"),
    ("scores", lambda q, k: make("scores")(q, k).squeeze(),
     "scores: the numbers are right, but axes of length 1 are dropped, as by squeeze"),
    ("merge_heads", lambda heads: heads.reshape(*np.array(heads.shape)[[0, 2, 1, 3]])
     .transpose(0, 2, 1, 3).reshape(len(heads), heads.shape[2], -1),
     "merged: heads.reshape(B, T, H, d).transpose(0, 2, 1, 3)"),
    ("grouped_attention", reading(lambda h, H, K: min(h // K, K - 1), usual),
     "heads: query head h reads key head h // H_kv, at most H_kv - 1, not h // G, with "
     "G = H // H_kv: of 6 and 3, head 2 reads 0, not 1"),
    ("grouped_attention", reading(usual, lambda h, H, K: (usual(h, H, K) + 1) % K),
     "heads: query head h reads value head h // G + 1, and 0 after the last, not h // G, with "
     "G = H // H_kv: of 6 and 3, head 0 reads 1, not 0"),
    ("attention_backward", changed(d_q=lambda d_q: -d_q / 2),
     "d_q: right except for a factor: yours is -0.5 times the right one"),
    ("attention_backward", changed(d_k=lambda d_k: d_k[:, :, ::-1]),
     "d_k: the keys are in reverse order"),
    ("linear_backward", lambda d_out, x, w: make("linear_backward")(d_out, x, w)._replace(
        d_b=d_out.sum(axis=(0, 1)) / x.shape[1]),
     "d_b: right except for a factor: yours is 1 / T times the right one"),
]  # fmt: skip


def told(task, answers):
    return [f"{name}: {words}" for name, words in diagnose(task, answers).apart]


def causes(task, answers):
    """Return what is found for each array, without the time that a whole diagnosis may take."""
    wrong = wrong_of(task, answers)
    return [f"{one.name}: {find_relation(one) or find_cause(one)}" for one in wrong]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("task", "function", "words"), CASES)
def test_an_array_is_explained_by_itself_and_so_it_is_on_other_inputs(task, function, words):
    assert words in told(task, answers_of(task, function))
    with using(Variant(seed=1)):
        assert words in causes(task, answers_of(task, function))


def test_two_arrays_have_two_causes():
    function = changed(d_k=lambda d_k: 0 * d_k, d_v=lambda d_v: d_v / len(d_v))
    assert told("attention_backward", answers_of("attention_backward", function)) == [
        "d_k: all numbers are 0",
        "d_v: right except for a factor: yours is 1 / B times the right one",
    ]


def test_a_mistake_times_a_factor_is_both():
    def of_queries_over_batch(d_q, d_k, d_v, params):
        only = make("input_gradient", ["only the branch of q"])
        return only(d_q, d_k, d_v, params) / len(d_q)

    (words,) = told("input_gradient", answers_of("input_gradient", of_queries_over_batch))
    assert words.endswith("only the share through q; and all of it is multiplied by 1 / B")


@pytest.mark.parametrize(
    ("task", "change", "told"),
    [
        ("gelu_backward", lambda d_x: d_x * np.nan, ()),
        ("one_query", lambda out: out[None] * np.nan, ()),
        ("softmax_with_lse", lambda a: a._replace(lse=a.lse - np.inf), ()),
        ("scores_backward", lambda a: a._replace(d_q=a.d_q * np.nan, d_k=-a.d_k),
         (("d_k", "right except for the sign"),)),
        ("train_with_adam", lambda a: a._replace(table=a.table * np.nan), ()),
        ("online_attention", np.ones_like, (("heads", "every number is 1"),)),
        ("cross_entropy", np.ones_like, (("loss", "every number is 1"),)),
    ],
)  # fmt: skip
def test_no_cause_rests_on_numbers_that_say_nothing(task, change, told):
    found = diagnose(task, [change(answer) for answer in right_answers(task)])
    assert (found.causes, found.edit, found.apart) == ((), None, told)


def reading_the_first_keys(d_heads, q, k, v, weights):
    G, given = q.shape[1] // k.shape[1], (d_heads, q, k, v, weights)
    apart = d_heads, q, k[:, [0] * q.shape[1]], v.repeat(G, axis=1), weights
    right = make("grouped_backward")
    return right(*given)._replace(d_q=right(*apart).d_q)


def test_a_head_that_reads_another_is_one_that_does():
    made = answers_of("grouped_backward", reading_the_first_keys)
    (_, words), *_ = diagnose("grouped_backward", [None, None, *made[2:]]).apart
    assert words.endswith("of 2 and 2, head 1 reads 0, not 1")


def test_nothing_rests_on_nan_alone():
    def overflowing(q, k, v):
        heads = make("attention")(q, k, v)
        return np.where(np.abs(q).max() > 100, np.nan, heads)

    found = diagnose("attention", answers_of("attention", overflowing))
    assert (found.edit, found.apart) == (None, ())


def heads_deleted_in_turn(params, num_heads, heads):
    arrays = params._asdict()
    for head in heads:
        for name in ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v"):
            d = getattr(params, name).shape[-1] // num_heads
            arrays[name] = np.delete(arrays[name], np.s_[head * d : (head + 1) * d], axis=-1)
        d = len(params.w_o) // num_heads
        arrays["w_o"] = np.delete(arrays["w_o"], np.s_[head * d : (head + 1) * d], axis=0)
    return MultiHeadParams(**arrays)


def last_head(heads):
    B, H, T, d = heads.shape
    merged = np.zeros((B, T, H * d))
    for h in range(H):
        merged[:] = 0
        merged[:, :, h * d : (h + 1) * d] = heads[:, h]
    return merged


@pytest.mark.parametrize(
    ("task", "function", "name"),
    [
        ("prune_heads", heads_deleted_in_turn, "heads removed one after another"),
        ("merge_heads", last_head, "only the last head merged"),
        ("merge_heads", lambda heads: heads[:, -1], "one head returned"),
    ],
)
def test_mistakes_that_other_probes_did_not_show(task, function, name):
    assert diagnose(task, answers_of(task, function)).mistakes[0].name == name


def test_results_that_do_not_repeat_are_told_as_such():
    rng = np.random.default_rng(0)

    def noise(q, k, v):
        return rng.normal(size=(len(q), v.shape[1]))

    verdict = judge(find_exercise("attention"), lambda: noise)
    assert "returns different numbers" in verdict.remarks["likely cause"]
    assert not {"clue", "no known mistake"} & set(verdict.remarks)


def test_it_is_told_which_sizes_are_right():
    right = right_answers("decode_step")
    answers = [a if p["k_past"].shape[2] == 0 else a._replace(out=a.out**2)
               for a, p in zip(right, TASKS["decode_step"].probes(), strict=True)]  # fmt: skip
    assert "of our inputs, yours is right only on those where T = 0" in find_clues(
        "decode_step", answers
    )


def test_a_factor_is_named_by_what_it_is_made_of():
    sizes = [{"B": 2.0, "d_k": 4.0, "d_v": 3.0}, {"B": 3.0, "d_k": 5.0, "d_v": 2.0}]
    assert factor_of(sizes, [1 / 2, 1 / 3]) == "1 / B"
    assert factor_of(sizes, [-2.0, -np.sqrt(5)]) == "-np.sqrt(d_k)"
    assert factor_of(sizes, [np.sqrt(4 / 3), np.sqrt(5 / 2)]) == "np.sqrt(d_k) / np.sqrt(d_v)"
    assert factor_of(sizes, [0.3, 0.3]) == "0.3"
    assert factor_of(sizes, [0.3, 0.31]) == factor_of(sizes, [1.0, 1.0]) == ""


def test_sizes_come_from_the_docstring():
    (first, *_) = TASKS["grouped_attention"].probes()
    found = sizes_of("grouped_attention", first)
    assert [found[name] for name in ("B", "H", "H_kv", "T_q", "T_k", "d_k", "d_v")] == [
        2, 6, 3, 5, 7, 4, 3,
    ]  # fmt: skip
