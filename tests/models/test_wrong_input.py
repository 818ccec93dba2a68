"""What a user may get wrong with models: a typed error, one line, and no model changes."""

from dataclasses import replace

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, DTypeError, MhaError, ShapeError
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.models import (
    AttentionOnlyLM,
    Bert,
    TransformerLM,
    Translator,
    choose,
    generate,
    induction_by_hand,
    translate,
)
from mha_numpy.models.analysis import (
    ablation_scores,
    cut_heads,
    cut_model,
    head_importance,
    head_patterns,
    mean_distance,
    mean_entropy,
    mean_heads,
    pattern_score,
    prune_heads,
    prune_model,
    pruning_curve,
    token_patterns,
    weights_times_norm,
)
from mha_numpy.models.cost import ModelConfig, count_flops, find_configuration, kv_cache_bytes
from mha_numpy.models.train import IGNORED, load_trained, share_right, train_recipe
from mha_numpy.models.train.tasks import Induction, Numbers, Reverse, Text
from mha_numpy.models.train.tasks.numbers import german

IDS, ONE, SOURCE = np.array([[4, 6, 4], [0, 2, 1]]), np.array([[1]]), np.array([[3, 5, 4]])
SIZES = {"embed_dim": 8, "num_heads": 2, "rng": 0}
LM, TRANSLATOR = TransformerLM(9, 6, **SIZES), Translator(6, 5, 4, **SIZES)
FIRST, SECOND = "blocks.0.attention.layer", "blocks.1.attention.layer"
LAYER = MultiHeadAttention(12, 4, num_kv_heads=2, value_dim=5, rng=0)
USED = MultiHeadAttention(12, 4, rng=0)
USED(np.ones((3, 6, 12)))
WEIGHTS = np.full((2, 3, 3, 3), 1 / 3)
SMALL = ModelConfig("small", 12, 1, 6, 3, 2, 20, 30, 7)
PROBS, INF, NAN = np.array([0.1, 0.5, 0.05, 0.35]), np.inf, np.nan


def write(**options):
    return generate(LM, ONE, 1, **options)


def ruled_out(row):
    """Choose by logits of which the second row says nothing, in each way to choose."""
    for options in ({"temperature": 0}, {}, {"top_k": 2}):
        with pytest.raises(ConfigError):
            choose(np.array([[0.0, 1, 2], row]), **options)
    return choose(np.array([[0.0, 1, 2], row]), top_p=0.9)


def cut(heads, **options):
    with cut_heads(LAYER, heads, **options):
        raise AssertionError


def cut_in_model(heads, **options):
    with cut_model(LM, heads, **options):
        raise AssertionError


def curve(*order, **options):
    return pruning_curve(AttentionOnlyLM(4, 4), lambda: 1.0, *order, **options)


def scores(score):
    return ablation_scores(AttentionOnlyLM(4, 4), lambda: score)


def marked(**tokens):
    return token_patterns(IDS, **tokens)


CASES = [
    # writing
    (lambda: write(temperature=-1), ConfigError, "temperature: expected a number >= 0; got -1"),
    (lambda: write(temperature="hot"), ConfigError, "temperature: expected a finite number"),
    (lambda: write(top_k=0), ConfigError, "top_k: expected an integer >= 1"),
    (lambda: write(top_p=0), ConfigError, "top_p: expected 0 < p <= 1; got 0"),
    (lambda: write(top_p=1.5), ConfigError, "top_p: expected 0 < p <= 1; got 1.5"),
    (lambda: write(stop="."), ConfigError, "stop: expected a token or a list of tokens; got '.'"),
    (lambda: write(stop=[[1]]), ConfigError, r"stop: expected .* list of tokens; got \[\[1\]\]"),
    (lambda: generate(TRANSLATOR, ONE, 1), ConfigError, "model: .*kv_caches,.*; got one of Tra"),
    (lambda: generate(LM, ONE[0], 1), ShapeError, r"ids: expected \(B, T\) with T >= 1"),
    (lambda: generate(LM, ONE[:, :0], 1), ShapeError, r"ids: expected \(B, T\) with T >= 1"),
    (lambda: generate(LM, np.ones((1, 2)), 1), ConfigError, "ids: expected an integer array"),
    (lambda: choose(np.ones((2, 0))), ShapeError, r"logits: expected .* V >= 1; got \(2, 0\)"),
    (lambda: choose(PROBS), ShapeError, r"logits: expected \(B, V\); got \(4,\)"),
    (lambda: ruled_out((0, NAN, 1)), ConfigError, "logits: expected finite .*; got nan in row 1$"),
    (lambda: ruled_out((0, INF, 1)), ConfigError, "logits: expected finite .*; got inf in row 1$"),
    (lambda: ruled_out([-INF] * 3), ConfigError, "logits: .*; got -inf for all tokens in row 1$"),
    (lambda: translate(TRANSLATOR, SOURCE.T), ShapeError, r"source: expected \(1, T_k\), one seq"),
    (lambda: translate(TRANSLATOR, SOURCE, beams=0), ConfigError, "beams: expected an integer >= "),
    (lambda: TRANSLATOR.encode(SOURCE[0]), ShapeError, r"source: .* got \(3,\); .* source\[None\]"),
    (lambda: TRANSLATOR(SOURCE, ONE[[0, 0]]), ShapeError, r"target: expected \(B, T_q\), as many"),
    (lambda: TRANSLATOR(SOURCE[[0, 0]], ONE), ShapeError, r"target: expected \(B, T_q\), as many"),
    (lambda: Bert(7, 6, num_layers=2, norm_first=True, **SIZES), ConfigError,
     "norm_first: expected none, because Bert is post-norm; got True"),
    (lambda: AttentionOnlyLM(9, 6, is_causal=False)(IDS, kv_caches=[]), ConfigError,
     "kv_caches: expected None with is_causal=False, because tokens see later ones"),
    (lambda: induction_by_hand(0), ConfigError, "vocab_size: expected an integer >= 1; got 0"),
    # tasks and recipes
    (lambda: Reverse(0), ConfigError, "num_tokens: expected an integer >= 1; got 0"),
    (lambda: Induction(32, 49), ConfigError,
     "num_tokens: expected at most 48, 1.5 times vocab_size=32, .*; got 49$"),
    (lambda: german(-1), ConfigError, "n: expected 0 to 999,999; got -1"),
    (lambda: german(1_000_000), ConfigError, "n: expected 0 to 999,999; got 1000000"),
    (lambda: Numbers().read("three dozen"), ConfigError, "text: .* number .* got 'dozen'$"),
    (lambda: Numbers().read("<end>"), ConfigError, "text: .* number .* got '<end>'$"),
    (lambda: Numbers().read(" "), ConfigError, "text: .* number .* got '0 words'$"),
    (lambda: Numbers().read("one " * 13), ConfigError, "text: .* number .* got '13 words'$"),
    (lambda: Text("abc" * 300).encode("abz"), ConfigError,
     "text: expected characters of the text .* got 'z'$"),
    (lambda: Text("a" * 200, num_tokens=20), ConfigError,
     "text: expected more than 210 characters, .* must have 21; got 200$"),
    (lambda: Text(3), ConfigError, "text: expected a str; got 3"),
    (lambda: load_trained("invert"), ConfigError, "model: expected one of reverse, .* 'invert'"),
    (lambda: train_recipe("reverse", text="abc"), ConfigError,
     "text: expected none with 'reverse'; got 'abc'"),
    (lambda: train_recipe("reverse", steps=0), ConfigError, "steps: expected an integer >= 1; g"),
    (lambda: share_right(np.ones((2, 3)), np.full(2, IGNORED)), ConfigError,
     "targets: expected one that is not IGNORED; got none"),
    # patterns
    (lambda: mean_distance(WEIGHTS[:, :, 1:]), ShapeError,
     r"weights: expected \(B, H, T, T\), of self.*\(2, 3, 2"),
    (lambda: mean_entropy(WEIGHTS > 0), DTypeError, "weights: "),
    (lambda: pattern_score(WEIGHTS[0], np.eye(3)), ShapeError,
     r"weights: expected \(B, H, T_q, T_k\); got \(3, 3, 3\)"),
    (lambda: pattern_score(WEIGHTS, np.ones((4, 1, 3))), ShapeError,
     r"where: expected a shape that broadcasts to \(B=2, T_q"),
    (lambda: mean_entropy(WEIGHTS, np.ones((2, 1), bool)), ShapeError,
     r"counted: expected \(B=2, T_q=3\) to match weights"),
    (lambda: head_patterns(WEIGHTS, IDS[:, 1:]), ShapeError,
     r"ids: expected \(B=2, T=3\) to match weights"),
    (lambda: token_patterns(IDS / 2), ConfigError, "ids: expected an integer array"),
    (lambda: marked(counted=IDS[0]), ShapeError, r"counted: expected \(B=2, T=3\) to match ids"),
    (lambda: marked(is_delimiter=IDS[0]), ShapeError, r"is_delimiter: expected \(B=2, T=3\) to m"),
    # heads that are cut, scored and pruned
    (lambda: cut(4), ConfigError, "heads: expected numbers from 0 to 3; got 4"),
    (lambda: cut([0, -1]), ConfigError, r"heads: expected numbers from 0 to 3; got \[0, -1\]"),
    (lambda: cut(0, means=np.zeros(5)), ShapeError, r"means: expected \(H=4, d_v=5\) to match the"),
    (lambda: cut_in_model({FIRST: 1, SECOND: 2}), ConfigError,
     "heads: expected numbers from 0 to 1; got 2"),
    (lambda: cut_in_model({FIRST: 1, "blocks.1.atention": 0}), ConfigError,
     "heads: expected names of attention layers.*mean 'blocks.1.att"),
    (lambda: cut_in_model({FIRST: 1, SECOND: 1}, means={FIRST: np.ones((2, 4))}), ConfigError,
     "means: expected one for each.*blocks.1"),
    (lambda: mean_heads(LAYER), MhaError, "backward: expected a forward before"),
    (lambda: mean_heads(USED, np.ones((3, 5), bool)), ShapeError,
     r"counted: expected \(B=3, T_q=6\)"),
    (lambda: weights_times_norm(LAYER), MhaError, "backward: expected a forward before"),
    (lambda: head_importance(LM, lambda: LM(IDS)), ConfigError,
     "run: expected .* no backward of its layer 'blocks.0"),
    (lambda: scores(None), ConfigError, "score: expected a finite number; got None"),
    (lambda: scores(np.ones(3)), ConfigError, "score: expected a finite number; got an array"),
    (lambda: scores(NAN), ConfigError, "score: expected a finite number; got nan"),
    (lambda: curve(num_cuts=9), ConfigError, "num_cuts: expected at most the number of heads, 8"),
    (lambda: curve([("x", 0)]), ConfigError, "heads: expected names of attention layers; got 'x'"),
    (lambda: prune_heads(LAYER, 4), ConfigError, "heads: expected numbers from 0 to 3; got 4"),
    (lambda: prune_heads(LAYER, range(4)), ConfigError,
     "heads: expected one of the 4 heads to stay; got all; "),
    (lambda: prune_heads(LAYER, [0]), ConfigError, "heads: expected each group of 2 .*; "
     r"got \[0\], after which the 2 groups keep 1, 2; cut"),
    (lambda: prune_model(LM, {FIRST: 1, SECOND: [0, 1]}), ConfigError,
     "heads: expected one of the 2 heads to stay"),
    (lambda: prune_model(LM, {FIRST: 1, "x": 1}), ConfigError,
     "heads: expected names of attention layers; got 'x'"),
    # costs
    (lambda: find_configuration("llama-4-70b"), ConfigError, "model: expected a name such as lla"),
    (lambda: find_configuration(["gpt-2"]), ConfigError, "model: expected a name such .*gpt-2"),
    (lambda: find_configuration(3), ConfigError, "model: expected .* bert-base.*; got 3"),
    (lambda: replace(SMALL, num_kv_heads=4), ConfigError,
     "num_kv_heads: expected a divisor of num_heads=6"),
    (lambda: replace(SMALL, embed_dim=0), ConfigError, "embed_dim: expected an integer >= 1; g"),
    (lambda: count_flops(SMALL, 0), ConfigError, "tokens: expected an integer >= 1; got 0"),
    (lambda: count_flops(SMALL, 1, past=-1), ConfigError, "past: expected an integer >= 0; got -1"),
    (lambda: count_flops(SMALL, 1, batch=0), ConfigError, "batch: "),
    (lambda: count_flops(SMALL, 1, backward=1), ConfigError, "backward: expected True or False; g"),
    (lambda: kv_cache_bytes(SMALL, 1, itemsize=0.5), ConfigError, "itemsize: expected an integer"),
]  # fmt: skip
MODELS = (LM, TRANSLATOR, LAYER)


def state_of(model):
    """Return what no call of the table may change."""
    held = ("training", "head_gate", "num_heads", "forward", "grads")
    params = {name: param.tobytes() for name, param in model.named_params()}
    return params, [[vars(part).get(name) for name in held] for part in model.layers()]


@pytest.mark.parametrize(("call", "error", "message"), CASES, ids=[case[2][:40] for case in CASES])
def test_it_is_named_and_changes_nothing(call, error, message):
    before = [state_of(model) for model in MODELS]
    with pytest.raises(error, match=f"^{message}") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert [state_of(model) for model in MODELS] == before
