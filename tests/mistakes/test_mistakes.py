"""The bank: right without mistakes, each mistake shows, and is named; nothing else is."""

import re
from inspect import getsource
from itertools import combinations

import numpy as np
import pytest

from mha_numpy import (
    attention_backward,
    attention_forward,
    causal_mask,
    combine_masks,
    linear_backward,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    padding_mask,
    rope_backward,
    rope_forward,
    softmax_backward,
    softmax_forward,
    split_heads,
    window_mask,
)
from mha_numpy.check.trees import leaves, replaced
from mha_numpy.errors import ConfigError
from mha_numpy.mistakes import BANK, PIECES, diagnose, fingerprints, flawed, right_answers
from tests.compare import assert_close

each_piece = pytest.mark.parametrize("piece", PIECES)
# b_k changes no output: softmax does not react to a constant; float32 is told by its rounding
UNSEEN = {"b_k left out", "float32 inside"}


def by_core(piece, given):
    """Compute a piece by the core."""
    match piece:
        case "split_heads":
            return split_heads(**given)
        case "merge_heads":
            return merge_heads(**given)
        case "make_mask":
            T_q, T_k, offset = given["T_q"], given["T_k"], given["q_offset"]
            causal = causal_mask(T_q, T_k, q_offset=offset)
            near = window_mask(T_q, T_k, window=(given["left"], None), q_offset=offset)
            return combine_masks(causal, near, padding_mask(given["lengths"], T_k))
        case "softmax":
            return softmax_forward(given["scores"], mask=given["mask"])[0]
        case "attention" | "grouped_attention":
            return attention_forward(**given)[0]
        case "rope":
            x, positions, base = given.values()
            return rope_forward(x, positions=positions, base=base)[0]
        case "rope_backward":
            d_out, positions, base = given.values()
            _, cache = rope_forward(d_out, positions=positions, base=base)
            return rope_backward(d_out, cache).d_x
        case "linear_backward":
            d_out, x, w = given.values()
            _, cache = linear_forward(x, w, np.zeros(w.shape[1]))
            return tuple(linear_backward(d_out, cache))
        case "multi_head" | "cross_attention":
            x, source, mask, params, H = (
                given[name] for name in ("x", "source", "mask", "params", "num_heads")
            )
            return multi_head_attention_forward(x, source, params=params, num_heads=H, mask=mask)[0]
        case "multi_head_backward":
            saved = given["saved"]
            T, H = saved.x.shape[1], saved.q.shape[1]
            _, cache = multi_head_attention_forward(
                saved.x, params=given["params"], num_heads=H, mask=causal_mask(T)
            )
            grads = multi_head_attention_backward(given["d_out"], cache)
            return grads.d_x_q, tuple(grads.d_params)
    weights = given["weights"]
    with np.errstate(divide="ignore"):
        scores = np.log(weights)  # softmax of these are the weights
    if piece == "softmax_backward":
        _, cache = softmax_forward(scores, mask=weights > 0)
        return softmax_backward(given["d_weights"], cache).d_scores
    q, k, v = given["q"], given["k"], given["v"]
    _, cache = attention_forward(q, k, v, is_causal=True)
    return tuple(attention_backward(given["d_heads"], cache)[:3])


def arrays_of(answer):
    """Return all arrays in order."""
    return [np.asarray(leaf) for leaf in leaves(answer).values()]


def each_array(change, answer):
    """Return a copy whose arrays are changed."""
    return replaced(answer, {name: change(np.asarray(a)) for name, a in leaves(answer).items()})


@each_piece
def test_without_mistakes_it_is_right(piece):
    for given, answer in zip(PIECES[piece].probes(), right_answers(piece), strict=True):
        mine, theirs = arrays_of(answer), arrays_of(by_core(piece, given))
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one.astype(float), other.astype(float))


def test_bank_and_implementation_have_the_same_mistakes():
    made = set()
    for name in re.findall(r'"([^"]+)" (?:not )?in made', getsource(flawed)):
        letters = "qkvo" if name.startswith(("b_", "w_")) else "qkv"
        made |= {name.replace("{letter}", letter) for letter in letters}
    assert made == set(BANK)


def test_every_mistake_shows_somewhere_and_says_what_to_do():
    seen = {name for piece in PIECES for name in fingerprints(piece)}
    assert set(BANK) - seen == UNSEEN
    for mistake in BANK.values():
        assert mistake.verdict
        assert mistake.fix
        assert "?" not in mistake.verdict + mistake.fix


@each_piece
def test_each_single_mistake_is_named(piece):
    for name, answers in fingerprints(piece).items():
        causes = diagnose(piece, answers).causes
        assert frozenset({name}) in causes
        same = {next(iter(cause)) for cause in causes}
        assert all(
            np.array_equal(a, b, equal_nan=True)
            for other in same
            for answer, twin in zip(answers, fingerprints(piece)[other], strict=True)
            if answer is not None
            for a, b in zip(arrays_of(answer), arrays_of(twin), strict=True)
        ), same


@each_piece
def test_of_two_mistakes_one_is_named(piece):
    pairs = list(combinations(fingerprints(piece), 2))
    chosen = np.random.default_rng(0).permutation(len(pairs))[:40]
    tried = named = 0
    for made in (frozenset(pairs[i]) for i in chosen):
        answers = [compute(piece, given, made) for given in PIECES[piece].probes()]
        found = diagnose(piece, answers)
        if found.is_right or all(answer is None for answer in answers):
            continue
        tried += 1
        named += bool(found.causes) and bool(found.causes[0] & made)
    assert named >= 0.9 * tried


def compute(piece, given, made):
    try:
        with np.errstate(all="ignore"):
            return PIECES[piece].write(**given, made=made)
    except ValueError:
        return None


@each_piece
def test_right_answers_in_any_order_of_memory_are_right(piece):
    answers = [each_array(np.asfortranarray, answer) for answer in right_answers(piece)]
    assert diagnose(piece, answers).is_right


@each_piece
def test_nothing_is_guessed(piece):
    rng = np.random.default_rng(1)
    answers = [
        each_array(lambda a: rng.normal(size=a.shape), answer) for answer in right_answers(piece)
    ]
    found = diagnose(piece, answers)
    assert not found.is_right
    assert found.causes == ()
    assert found.mistakes == []


def test_rounding_to_float32_is_named():
    answers = [
        each_array(lambda a: a.astype(np.float32).astype(float), answer)
        for answer in right_answers("attention_backward")
    ]
    assert [m.name for m in diagnose("attention_backward", answers).mistakes] == ["float32 inside"]


def test_two_mistakes_are_told_together():
    made = frozenset({"scale missing", "softmax over queries"})
    answers = [compute("attention", given, made) for given in PIECES["attention"].probes()]
    assert diagnose("attention", answers).causes[0] == made


@each_piece
def test_an_answer_that_failed_everywhere_has_no_cause(piece):
    found = diagnose(piece, [None] * len(PIECES[piece].probes()))
    assert (found.is_right, found.causes) == (False, ())


def test_probes_are_read_only_and_the_same_each_time():
    (first,) = PIECES["split_heads"].probes()
    assert PIECES["split_heads"].probes()[0] is first
    with pytest.raises(ValueError, match="read-only"):
        first["x"] += 1


def test_wrong_use():
    with pytest.raises(ConfigError, match="piece: expected one of split_heads, .*; got 'x'"):
        diagnose("x", [])
    with pytest.raises(ConfigError, match="answers: expected 1 of them; got 0"):
        diagnose("split_heads", [])
