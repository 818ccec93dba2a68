"""Tasks: what is asked can be known, what is held out is never drawn, words are right."""

import numpy as np
import pytest

from mha_numpy.models.train import IGNORED
from mha_numpy.models.train.tasks import Induction, Numbers, Reverse, Text
from mha_numpy.models.train.tasks.numbers import END, GERMAN, PADDING, START, english, german


def test_reverse():
    (ids,), targets = Reverse(5).draw_batch(np.random.default_rng(0), 300)
    assert np.array_equal(targets[:, ::-1], ids)
    assert ids.shape == (300, 5)
    assert set(ids.flat) == set(range(10))


@pytest.mark.parametrize(("V", "T"), [(32, 48), (8, 12)])  # of 8 tokens a sequence often runs out
def test_every_asked_token_is_known_and_no_other(V, T):
    (ids,), targets = Induction(V, T).draw_batch(np.random.default_rng(0), 300)
    assert ids.shape == targets.shape == (300, T)
    assert set(ids.flat) == set(range(V))
    asked = targets != IGNORED
    assert 0.3 < asked.mean() < 0.6
    surprises = 0
    for row, answers in zip(ids, targets, strict=True):
        for t, (token, answer) in enumerate(zip(row, answers, strict=True)):
            successors = {row[i + 1] for i in range(t) if row[i] == token}
            if answer != IGNORED:
                assert successors == {answer}
                assert t + 1 == T or row[t + 1] == answer
            elif t + 1 < T and successors == {row[t + 1]}:
                surprises += 1  # by chance the same two segments meet again
    assert surprises < 0.01 * asked.sum()


def test_segments_come_back_at_other_distances():
    (ids,), targets = Induction().draw_batch(np.random.default_rng(0), 300)
    distances = np.array([
        t - max(np.flatnonzero(row[:t] == row[t]))
        for row, answers in zip(ids, targets, strict=True)
        for t in np.flatnonzero(answers != IGNORED)
    ])  # fmt: skip
    assert distances.min() == 4
    assert distances.max() == 12
    assert np.bincount(distances).max() < 0.3 * len(distances)


SAMPLE = [*range(1100), *np.random.default_rng(0).integers(1_000_000, size=500).tolist(), 999_999]


def test_number_words_by_hand():
    expected = {
        0: ("zero", "null"),
        31: ("thirty one", "ein und dreißig"),
        201: ("two hundred one", "zwei hundert eins"),
        1_016: ("one thousand sixteen", "ein tausend sechzehn"),
        201_000: ("two hundred one thousand", "zwei hundert ein tausend"),
        700_070: ("seven hundred thousand seventy", "sieben hundert tausend siebzig"),
        999_999: (
            "nine hundred ninety nine thousand nine hundred ninety nine",
            "neun hundert neun und neunzig tausend neun hundert neun und neunzig",
        ),
    }
    for n, (in_english, in_german) in expected.items():
        assert english(n) == in_english.split()
        assert german(n) == in_german.split()


def test_number_words_are_those_of_num2words():
    num2words = pytest.importorskip("num2words").num2words
    for n in SAMPLE:
        theirs = num2words(n, lang="en").replace("-", " ").replace(",", "").replace(" and ", " ")
        assert " ".join(english(n)) == theirs
        theirs = num2words(n, lang="de")
        if n // 1000 % 100 == 1:
            theirs = theirs.replace("einstausend", "eintausend")  # as Duden has it
        assert "".join(german(n)) == theirs


def test_batches_of_numbers():
    task, numbers = Numbers(), [7, 999_999, 45]
    (source, target), targets = task.batch_of(numbers)
    assert source.shape == (3, 9)
    assert target.shape == targets.shape == (3, task.max_tokens)
    for i, n in enumerate(numbers):
        words = german(n)
        assert task.words(source[i]) == english(n)
        assert task.words(target[i], GERMAN) == ["<start>", *words, "<end>"][:12]
        T = len(words)
        assert [GERMAN[t] for t in targets[i, :T]] == words
        assert targets[i, T] == END
        assert (targets[i, T + 1 :] == IGNORED).all()
        assert (target[i, 1:] == np.where(targets[i] == IGNORED, PADDING, targets[i])[:-1]).all()
    assert (target[:, 0] == START).all()
    assert source.max() < task.source_vocab_size
    assert targets.max() < task.target_vocab_size


def test_held_out_numbers_are_never_drawn(monkeypatch):
    task, drawn = Numbers(), []
    monkeypatch.setattr(task, "batch_of", drawn.extend)
    for seed in range(20):
        task.draw_batch(np.random.default_rng(seed), 5_000)
    held_out = task.draw_held_out(np.random.default_rng(0), 11_235)
    assert len(set(held_out)) == 11_235
    assert not set(held_out) & set(drawn)
    assert set(range(100)) <= set(drawn) | set(held_out)
    assert (min(drawn), min(held_out), max(held_out)) == (0, 89, 999_915)
    assert 990_000 < max(drawn) <= 999_999
    share = np.mean(np.array(drawn) >= 100_000)
    assert 0.35 < share < 0.5


def test_numbers_are_read():
    task = Numbers()
    text = "  Two hundred AND forty-five thousand, one "
    assert task.words(task.read(text)[0]) == english(245_001)


def test_crossing_counts_numbers_with_units_and_tens():
    task, numbers = Numbers(), [42, 300, 17, 245, 60]
    (source, target), _ = task.batch_of(numbers)
    weights = np.zeros((5, 2, target.shape[1], source.shape[1]))
    weights[0, 0, [0, 2], [1, 0]] = 1  # zwei und vierzig: it crosses
    weights[3, :, 2, 3] = 0.2  # zwei hundert fünf: "five" in both heads ...
    weights[3, 0, 2, 2] = 0.3  # ... outweighs "forty" in one
    weights[3, 1, 4, 3] = 0.1  # vierzig: at "five", and so not across
    assert task.crossing(weights, numbers) == (1, 0.5)


def test_text():
    task = Text("abc" * 300 + "xy" * 50, num_tokens=20)
    assert task.vocabulary == list("abcxy")
    for draw, expected in ((task.draw_batch, "abc"), (task.draw_held_out, "xy")):
        (ids,), targets = draw(np.random.default_rng(0), 50)
        assert ids.shape == targets.shape == (50, 20)
        assert np.array_equal(ids[:, 1:], targets[:, :-1])
        assert set(task.decode(ids.flat)) == set(task.decode(targets[:, -1])) == set(expected)
    assert task.decode(task.encode("cabby")) == "cabby"
