"""The bank: right without mistakes, each mistake shows, and is named; nothing else is."""

from inspect import signature
from itertools import combinations

import numpy as np
import pytest
from mha_numpy.mistakes.bank import MANNERS

from mha_numpy import (
    KVCache,
    attention_backward,
    attention_forward,
    attention_stages,
    causal_mask,
    combine_masks,
    linear_backward,
    linear_forward,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_decode,
    multi_head_attention_forward,
    padding_mask,
    rope_backward,
    rope_forward,
    softmax_backward,
    softmax_forward,
    split_heads,
    window_mask,
)
from mha_numpy.checking import agrees
from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.cost import CONFIGURATIONS, count_flops, count_parameters, kv_cache_bytes
from mha_numpy.errors import ConfigError
from mha_numpy.mistakes import BANK, PIECES, diagnose, fingerprints, right_answers
from mha_numpy.mistakes.diagnose import TOLERANCE, fits
from mha_numpy.nn import MultiHeadAttention
from tests.compare import assert_close

each_piece = pytest.mark.parametrize("piece", PIECES)

ARGUMENTS = {
    "split_heads": "x num_heads",
    "merge_heads": "heads",
    "scores": "q k",
    "softmax": "scores mask",
    "softmax_with_lse": "scores mask",
    "make_mask": "lengths T_q T_k q_offset left",
    "attention": "q k v",
    "masked_attention": "q k v mask softcap",
    "multi_head": "x params num_heads mask",
    "cross_attention": "y x params num_heads",
    "grouped_attention": "q k v",
    "scores_backward": "d_scores q k",
    "softmax_backward": "d_weights weights",
    "attention_backward": "d_heads q k v weights",
    "linear_backward": "d_out x w",
    "input_gradient": "d_q d_k d_v params",
    "multi_head_backward": "d_out params saved",
    "sum_over_group": "d_per_query_head num_kv_heads",
    "grouped_backward": "d_heads q k v weights",
    "dropout_backward": "d_dropped keep p",
    "rope": "x positions base",
    "rope_backward": "d_out positions base",
    "decode_step": "x k_past v_past params num_heads",
    "online_attention": "q k v block",
    "backward_from_lse": "d_heads q k v heads lse mask",
    "d_head_gate": "d_gated heads",
    "head_importance": "d_gated heads",
    "layer_norm_backward": "d_out x gain eps",
    "cost_table": "B T D H H_kv d itemsize",
    "from_gpt2": "c_attn_w c_attn_b c_proj_w c_proj_b",
    "to_gpt2": "params",
}
RETURNED = {  # where it is more than one array
    "softmax_with_lse": "weights lse",
    "scores_backward": "d_q d_k",
    "attention_backward": "d_q d_k d_v",
    "grouped_backward": "d_q d_k d_v",
    "backward_from_lse": "d_q d_k d_v",
    "linear_backward": "d_x d_w d_b",
    "multi_head_backward": "d_x d_params",
    "decode_step": "out k v",
    "layer_norm_backward": "d_x d_gain d_bias",
    "from_gpt2": "w_q b_q w_k b_k w_v b_v w_o b_o",
    "to_gpt2": "c_attn_w c_attn_b c_proj_w c_proj_b",
    "cost_table": "attention_params projection_flops score_flops weights_bytes kv_cache_bytes",
}


def by_core(piece, given):
    """Compute a piece by the core, or another way."""
    match piece:
        case "split_heads":
            return split_heads(**given)
        case "merge_heads":
            return merge_heads(**given)
        case "scores":
            _, cache = attention_forward(**given, v=given["k"])
            return attention_stages(cache).scores
        case "softmax":
            return softmax_forward(given["scores"], mask=given["mask"])[0]
        case "softmax_with_lse":
            weights, cache = softmax_forward(given["scores"], mask=given["mask"])
            return weights, cache.lse
        case "make_mask":
            T_q, T_k, offset = given["T_q"], given["T_k"], given["q_offset"]
            causal = causal_mask(T_q, T_k, q_offset=offset)
            near = window_mask(T_q, T_k, window=(given["left"], None), q_offset=offset)
            return combine_masks(causal, near, padding_mask(given["lengths"], T_k))
        case "attention" | "grouped_attention" | "masked_attention":
            return attention_forward(**given)[0]
        case "online_attention":
            return attention_forward(given["q"], given["k"], given["v"])[0]
        case "multi_head":
            return multi_head_attention_forward(given["x"], **without(given, "x"))[0]
        case "cross_attention":
            y, x = given["y"], given["x"]
            return multi_head_attention_forward(y, x, **without(given, "x", "y"))[0]
        case "decode_step":
            return decoded(**given)
        case "scores_backward":
            d_scores, q, k = given.values()
            d_q = np.einsum("bhqk,bhkd->bhqd", d_scores, k) / np.sqrt(q.shape[-1])
            return d_q, np.einsum("bhqk,bhqd->bhkd", d_scores, q) / np.sqrt(q.shape[-1])
        case "softmax_backward":
            weights = given["weights"]
            with np.errstate(divide="ignore"):
                scores = np.log(weights)  # softmax of these are the weights
            _, cache = softmax_forward(scores, mask=weights > 0)
            return softmax_backward(given["d_weights"], cache).d_scores
        case "attention_backward" | "grouped_backward" | "backward_from_lse":
            mask = given["mask"] if "mask" in given else given["weights"] > 0
            _, cache = attention_forward(given["q"], given["k"], given["v"], mask=mask)
            return tuple(attention_backward(given["d_heads"], cache)[:3])
        case "sum_over_group":
            d, H_kv = given.values()
            return np.stack([group.sum(axis=1) for group in np.split(d, H_kv, axis=1)], axis=1)
        case "linear_backward":
            d_out, x, w = given.values()
            _, cache = linear_forward(x, w, np.zeros(w.shape[1]))
            return tuple(linear_backward(d_out, cache))
        case "input_gradient":
            params = given["params"]
            x = np.zeros((*merge_heads(given["d_q"]).shape[:2], len(params.w_q)))
            caches = {n: linear_forward(x, getattr(params, f"w_{n}"), None)[1] for n in "qkv"}
            parts = [linear_backward(merge_heads(given[f"d_{n}"]), caches[n]).d_x for n in "qkv"]
            return parts[0] + parts[1] + parts[2]
        case "multi_head_backward":
            saved = given["saved"]
            _, cache = multi_head_attention_forward(
                saved.x, params=given["params"], num_heads=saved.q.shape[1], mask=saved.weights > 0
            )
            grads = multi_head_attention_backward(given["d_out"], cache)
            return grads.d_x_q, tuple(grads.d_params)
        case "dropout_backward":
            d_dropped, keep, p = given.values()
            return np.where(keep, d_dropped / (1 - p), 0)
        case "rope":
            x, positions, base = given.values()
            return rope_forward(x, positions=positions, base=base)[0]
        case "rope_backward":
            d_out, positions, base = given.values()
            _, cache = rope_forward(d_out, positions=positions, base=base)
            return rope_backward(d_out, cache).d_x
        case "d_head_gate":
            return gate_gradient(**given, gate=np.ones(given["heads"].shape[1]))
        case "head_importance":
            return np.abs(gate_gradient(**given, gate=np.ones(given["heads"].shape[:2]))).mean(0)
        case "layer_norm_backward":
            return by_complex_step(**given)
        case "cost_table":
            return costs_of_a_layer(**given)
        case "from_gpt2":
            w, b, w_o, b_o = given.values()
            (w_q, w_k, w_v), (b_q, b_k, b_v) = np.hsplit(w, 3), np.hsplit(b, 3)
            return w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o
        case "to_gpt2":
            p = given["params"]
            return np.hstack([p.w_q, p.w_k, p.w_v]), np.hstack([p.b_q, p.b_k, p.b_v]), p.w_o, p.b_o


def without(given, *names):
    return {name: value for name, value in given.items() if name not in names}


def decoded(x, k_past, v_past, params, num_heads):
    """Decode with a KV cache."""
    kv_cache, H_kv = KVCache(), k_past.shape[1]
    kv_cache.append(k_past, v_past)
    out, cache = multi_head_attention_decode(
        x, kv_cache=kv_cache, params=params, num_heads=num_heads, num_kv_heads=H_kv
    )
    return out, cache.inputs.k, cache.inputs.v


def gate_gradient(d_gated, heads, gate):
    """Let every query see its own key alone, so that the values are the heads."""
    own = np.eye(heads.shape[2], dtype=bool)
    _, cache = attention_forward(heads, heads, heads, mask=own, head_gate=gate)
    return attention_backward(d_gated, cache).d_head_gate


def by_complex_step(d_out, x, gain, eps):
    """Differentiate layer norm one number at a time."""
    inputs = {"x": x, "gain": gain, "bias": np.zeros_like(gain)}

    def loss(x, gain, bias):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
        return (d_out * (centred / deviation * gain + bias)).sum()

    grads = {name: np.zeros_like(array) for name, array in inputs.items()}
    for name, array in inputs.items():
        for index in np.ndindex(array.shape):
            moved = array.astype(complex)
            moved[index] += 1e-30j
            grads[name][index] = loss(**(inputs | {name: moved})).imag / 1e-30
    return tuple(grads.values())


def costs_of_a_layer(B, T, D, H, H_kv, d, itemsize):
    """Count by `mha_numpy.cost`, and measure the weights and the params of a real layer."""
    config = CONFIGURATIONS["gpt-2"]
    config = type(config)(
        "one layer", D, num_layers=1, num_heads=H, num_kv_heads=H_kv, head_dim=d, feed_forward=1,
        vocabulary=1, context=T,
    )  # fmt: skip
    flops, attention = count_flops(config, T, batch=B), count_parameters(config).attention
    layer = MultiHeadAttention(D, H, H_kv, head_dim=d, bias=False, rng=0)
    assert attention == layer.num_parameters
    weights = layer(np.ones((B, T, D)), return_weights=True)[1]
    return {
        "attention_params": attention,
        "projection_flops": flops.projections,
        "score_flops": flops.scores + flops.mix,
        "weights_bytes": weights.size * itemsize,
        "kv_cache_bytes": kv_cache_bytes(config, T, batch=B, itemsize=itemsize),
    }


def arrays_of(answer):
    """Return all arrays in order."""
    return [np.asarray(leaf) for leaf in leaves(answer).values()]


def each_array(change, answer):
    """Return a copy whose arrays are changed."""
    return replaced(answer, {name: change(np.asarray(a)) for name, a in leaves(answer).items()})


def compute(piece, given, made):
    """Compute with mistakes; None where they make shapes that do not fit."""
    try:
        with np.errstate(all="ignore"):
            return PIECES[piece].write(**given, made=made)
    except ValueError:
        return None


@each_piece
def test_a_piece_is_a_function_of_its_name_that_takes_what_its_probes_hold(piece):
    function = PIECES[piece].write
    assert function.__name__ == piece
    assert " ".join(signature(function).parameters) == f"{ARGUMENTS[piece]} made"
    for given in PIECES[piece].probes():
        assert " ".join(given) == ARGUMENTS[piece]


@each_piece
def test_what_it_returns_has_a_name(piece):
    for answer in right_answers(piece):
        fields = answer if isinstance(answer, dict) else getattr(answer, "_fields", [])
        assert " ".join(fields) == RETURNED.get(piece, "")
        assert isinstance(answer, np.ndarray) == bool(PIECES[piece].result)


@each_piece
def test_without_mistakes_it_is_right(piece):
    for given, answer in zip(PIECES[piece].probes(), right_answers(piece), strict=True):
        mine, theirs = arrays_of(answer), arrays_of(by_core(piece, given))
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one.astype(float), other.astype(float))


def test_costs_by_hand():
    table = PIECES["cost_table"].write(B=2, T=3, D=8, H=4, H_kv=2, d=5, itemsize=4)
    assert table == {
        "attention_params": 8 * 20 + 2 * 8 * 10 + 20 * 8,
        "projection_flops": 2 * 6 * 480,
        "score_flops": 2 * (2 * 2 * 4 * 3 * 3 * 5),
        "weights_bytes": 4 * 72,
        "kv_cache_bytes": 4 * 2 * 60,
    }


class NoMistakes(frozenset):
    """None at all, but a note of those that were asked for."""

    def __init__(self):
        self.asked = set()

    def __contains__(self, name):
        self.asked.add(name)
        return False

    def __sub__(self, other):
        return self


def test_bank_and_implementation_have_the_same_mistakes():
    made = NoMistakes()
    for piece in PIECES.values():
        for given in piece.probes():
            piece.write(**given, made=made)
    assert made.asked == set(BANK) - {manner.name for manner in MANNERS}


def test_every_mistake_shows_somewhere_and_says_what_to_do():
    seen = {name for piece in PIECES for name in fingerprints(piece)}
    assert set(BANK) - seen == {manner.name for manner in MANNERS}
    for mistake in BANK.values():
        assert mistake.verdict
        assert mistake.fix
        assert "?" not in mistake.verdict + mistake.fix
        assert "\n" not in mistake.fix


@each_piece
def test_every_mistake_that_shows_gives_a_wrong_array(piece):
    for name, answers in fingerprints(piece).items():
        assert not fits(answers, right_answers(piece)), name


@each_piece
def test_a_leak_is_not_taken_for_rounding(piece):
    for name, answers in fingerprints(piece).items():
        assert not fits(answers, right_answers(piece), 1e-5), name


SAME = [  # two names for one function
    {"-1e9 for -inf", "the mean in a row that sees nothing"},
    {"keys mixed instead of values", "values by w_k"},
]


@each_piece
def test_no_two_mistakes_look_the_same(piece):
    found = fingerprints(piece)
    for one, other in combinations(found, 2):
        same = all(
            a is b if a is None or b is None else agrees(a, b, tolerance=TOLERANCE)
            for a, b in zip(found[one], found[other], strict=True)
        )
        assert not same or {one, other} in SAME, (one, other)


@each_piece
def test_each_single_mistake_is_named(piece):
    for name, answers in fingerprints(piece).items():
        causes = diagnose(piece, answers).causes
        assert frozenset({name}) in causes
        assert all(fits(answers, fingerprints(piece)[other]) for (other,) in causes)


@each_piece
def test_two_mistakes_are_named_or_a_single_one_that_gives_the_same(piece):
    pairs = list(combinations(fingerprints(piece), 2))
    tried = named = 0
    for i in np.random.default_rng(0).permutation(len(pairs))[:6]:
        made = frozenset(pairs[i])
        answers = [compute(piece, given, made) for given in PIECES[piece].probes()]
        found = diagnose(piece, answers)
        if found.is_right or all(answer is None for answer in answers):
            continue
        assert made in found.causes or {len(cause) for cause in found.causes} == {1}
        tried += 1
        named += bool(found.causes[0] & made)
    assert named >= tried - 1


@each_piece
def test_right_answers_in_any_order_of_memory_are_right(piece):
    answers = [each_array(lambda a: a.copy(order="F"), answer) for answer in right_answers(piece)]
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


@each_piece
def test_probes_are_read_only_and_the_same_each_time(piece):
    probes = PIECES[piece].probes()
    assert PIECES[piece].probes()[0] is probes[0]
    for leaf in leaves(probes).values():
        if isinstance(leaf, np.ndarray):
            assert not leaf.flags.writeable
            assert leaf.dtype in (np.float64, bool) or leaf.ndim == 1  # lengths, positions


def test_wrong_use():
    with pytest.raises(ConfigError, match="piece: expected one of split_heads, .*; got 'x'"):
        diagnose("x", [])
    with pytest.raises(ConfigError, match="answers: expected 2 of them; got 0"):
        diagnose("split_heads", [])
