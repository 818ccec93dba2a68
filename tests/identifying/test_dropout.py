"""Dropout: a function is known with its randomness switched off, and what it drops is said."""

# ruff: noqa: NPY002  # as people write

import numpy as np
import pytest

from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.builds import callable_of, maker_of
from mha_numpy.identifying.calling.chance import Chance
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.dropout import find_dropout
from mha_numpy.identifying.facts.options import look_at_options
from mha_numpy.identifying.look import find_base
from mha_numpy.identifying.reporting.rows import make_row

SCALED = ("dropout_scale", "1/(1-p)")


def find(function):
    maker = maker_of(function)
    things = (build.thing for build in maker.builds({})) if maker else [function]
    for thing in things:
        subject = Subject(callable_of(thing))
        found, _, trouble = find_base(subject, {})
        if found:
            break
    assert found, trouble
    options = look_at_options(subject, found, {})
    return subject, found, options


def facts(function):
    subject, found, options = find(function)
    found_facts = [*find_dropout(subject, found, options)]
    for fact in found_facts:
        make_row(fact.name, fact.value, fact.argument)  # each has its words
    return [(f.name, f.value, f.argument) if f.argument else (f.name, f.value) for f in found_facts]


def softmax(q, k):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def fixed(q, k, v):
    w = softmax(q, k)
    return w * (np.random.rand(*w.shape) > 0.1) / 0.9 @ v


def unscaled(q, k, v, training=False, seed=0):
    w = softmax(q, k)
    return w * (np.random.default_rng(seed).random(w.shape) >= 0.2) @ v


def divided_by_p(q, k, v, p=0.1, train=False):
    w = softmax(q, k)
    return w * np.random.binomial(1, 1 - p, w.shape) / p @ v if train else w @ v


def kept_against_its_name(q, k, v, dropout=0.1, deterministic=True):
    w = softmax(q, k)
    if not deterministic:
        w = np.where(np.random.uniform(size=w.shape) < dropout, w / dropout, 0)
    return w @ v


def keep_prob(q, k, v, keep_prob, rng):
    w = softmax(q, k)
    dropped = w * (rng.random(w.shape) < keep_prob) / keep_prob
    return dropped @ v, dropped


def trains_when_deterministic(q, k, v, p=0.1, deterministic=False, rng=None):
    w = softmax(q, k)
    if deterministic:
        w = w * ((rng or np.random).random(w.shape) >= p) / (1 - p)
    return w @ v, softmax(q, k)


def before_the_softmax(q, k, v, p=0.1, rng=np.random.default_rng(3)):  # noqa: B008
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores * (rng.random(scores.shape) >= p) / (1 - p)
    e = np.exp(scores)
    return e / e.sum(-1, keepdims=True) @ v


def renormalised(q, k, v, p=0.1):
    w = softmax(q, k)
    w = w * (np.random.random(w.shape) >= p)
    return w / w.sum(-1, keepdims=True) @ v


def of_the_output(q, k, v, p=0.1, seed=0):
    out = softmax(q, k) @ v
    return out * (np.random.RandomState(seed).rand(*out.shape) >= p) / (1 - p)


def never(q, k, v, p=0.1, training=True):
    return softmax(q, k) @ v


def by_a_mask(q, k, v, drop_mask=None, p=0.1):
    w = softmax(q, k)
    return (w if drop_mask is None else w * drop_mask / (1 - p)) @ v


def by_a_mask_that_keeps(q, k, v, dropout_mask, keep_prob=0.9):
    return softmax(q, k) * dropout_mask / keep_prob @ v


def plain(q, k, v):
    return softmax(q, k) @ v


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (fixed, [("dropout_when", "always"), ("dropout", "weights"), ("dropout_rate", "0.1"),
                 SCALED]),
        (unscaled, [("dropout_when", "also without training", "training"), ("dropout", "weights"),
                    ("dropout_rate", "0.2"), ("dropout_scale", "1")]),
        (divided_by_p, [("dropout_when", "if True", "train"), ("dropout", "weights"),
                        ("dropout_rate", "rate", "p"), ("dropout_scale", "other")]),
        (kept_against_its_name, [
            ("dropout_when", "if False", "deterministic"), ("dropout", "weights"),
            ("dropout_rate", "keep, against its name", "dropout"), SCALED,
        ]),
        (keep_prob, [("dropout_when", "with a rate"), ("dropout", "weights"),
                     ("dropout_rate", "keep", "keep_prob"), SCALED, ("dropped_weights", "after")]),
        (trains_when_deterministic, [
            ("dropout_when", "if True, against its name", "deterministic"), ("dropout", "weights"),
            ("dropout_rate", "rate", "p"), SCALED, ("dropped_weights", "before"),
        ]),
        (before_the_softmax, [("dropout_when", "with a rate"), ("dropout", "scores"),
                              ("dropout_rate", "rate", "p"), SCALED]),
        (renormalised, [("dropout_when", "with a rate"), ("dropout", "renormalised")]),
        (of_the_output, [("dropout_when", "with a rate"), ("dropout", "output"),
                         ("dropout_rate", "rate", "p"), SCALED]),
        (never, [("dropout", "none", "p")]),
        (by_a_mask, [("dropout_scale", "1/(1-p)", "p")]),
        (by_a_mask_that_keeps, [("dropout_scale", "1/(1-p)", "keep_prob")]), (plain, []),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_what_is_dropped(function, expected):
    assert facts(function) == expected


class Block:
    """With two dropouts, of which a layer has the rates, and a generator of its own."""

    def __init__(self, w_qkv, w_o, n_head, attn_pdrop=0.1, resid_pdrop=0.1):
        self.w_qkv, self.w_o, self.n_head = w_qkv, w_o, n_head
        self.attn_pdrop, self.resid_pdrop = attn_pdrop, resid_pdrop
        self.rng = np.random.default_rng(0)

    def drop(self, x, p):
        return x * (self.rng.random(x.shape) >= p) / (1 - p)

    def __call__(self, x, train=False):
        B, T, D = x.shape
        wide = np.split(x @ self.w_qkv, 3, -1)
        q, k, v = (a.reshape(B, T, self.n_head, -1).swapaxes(1, 2) for a in wide)
        w = self.drop(softmax(q, k), self.attn_pdrop) if train else softmax(q, k)
        out = (w @ v).swapaxes(1, 2).reshape(B, T, D) @ self.w_o
        return self.drop(out, self.resid_pdrop) if train else out


def test_two_places_are_told_apart():
    found = facts(Block)
    assert [f for f in found if f[0] == "dropout"] == [
        ("dropout", "weights"),
        ("dropout", "output"),
    ]
    assert SCALED in found
    assert found[0] == ("dropout_when", "if True", "train")


def test_two_places_in_an_installed_package_are_told_apart():
    home = {"__name__": "installed.block", "np": np, "softmax": softmax}
    text = """
def attend(q, k, v, train=False):
    w = softmax(q, k)
    if train:
        w = w * (np.random.random(w.shape) >= 0.3) / 0.7
    out = w @ v
    if train:
        out = out * (np.random.random(out.shape) >= 0.3) / 0.7
    return out
"""
    exec(compile(text, "/lib/site-packages/installed/block.py", "exec"), home)
    found = [value for name, value, *_ in facts(home["attend"]) if name == "dropout"]
    assert found == ["weights", "output"]


def average(q, k, v, p=0.1, training=False):
    w = softmax(q, k)
    w = w * (np.random.random(w.shape) >= p) / (1 - p) if training else w
    return w @ v, w.mean(1)


def test_an_average_of_returned_weights_may_be_after_dropout():
    assert ("dropped_weights", "after") in facts(average)


def flagged(q, k, v, p=0.1, training=False, return_weights=False):
    w = softmax(q, k)
    dropped = w * (np.random.random(w.shape) >= p) / (1 - p) if training else w
    return (dropped @ v, w) if return_weights else dropped @ v


def test_a_flag_may_return_the_weights_before_dropout():
    assert ("dropped_weights", "before") in facts(flagged)


class Off:
    """Without a rate it makes no generator, so that no rate can be set later."""

    def __init__(self):
        self.dropout = 0.0

    def __call__(self, q, k, v, training=False):
        w = softmax(q, k)
        return (self.drop(w) if training and self.dropout else w) @ v

    def drop(self, w):
        return w * (self.rng.random(w.shape) >= self.dropout) / (1 - self.dropout)


def test_a_call_that_fails_with_a_rate_says_nothing_of_dropout():
    assert facts(Off()) == []


def test_everything_is_put_back():
    rng = np.random.default_rng(0)
    block = Block(rng.normal(size=(8, 24)), rng.normal(size=(8, 8)), 2, attn_pdrop=0.3)
    own, before = block.rng, dict(vars(np.random))
    chance = Chance(block)
    with pytest.raises(KeyError), chance.control():  # noqa: PT012
        assert (block.attn_pdrop, np.random.rand()) == (0, 0.5)
        assert (np.random.default_rng(1).random(3) == 0.5).all()
        assert np.random.RandomState(1).binomial(1, 0.9) == 1
        assert (block(np.ones((1, 2, 8)), train=True) == block(np.ones((1, 2, 8)))).all()
        raise KeyError
    assert (block.attn_pdrop, block.rng) == (0.3, own)
    assert dict(vars(np.random)) == before
    assert len(chance.draws) == 5  # rand, random, binomial and the two of the block


def promised(q, k, v, p=0.1, training=False):
    """Attention with inverted dropout, only in training."""
    w = softmax(q, k)
    return w * (np.random.random(w.shape) >= p) / (1 - p) @ v if training else w @ v


def test_promises_that_are_kept_are_no_mistakes():
    assert [row.says for row in identify(promised).mistakes] == []


def flags(q, k, v, return_weights=True, average=False, need_lse=False, verbose=False):
    w = softmax(q, k)
    found = [w @ v, w.mean(1) if average else w] if return_weights else [w @ v]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return (*found, np.log(np.exp(scores).sum(-1))) if need_lse else tuple(found)


def test_flags_say_what_comes_back():
    _, _, options = find(flags)
    said = {o.argument: (o.value, [(f.path, f.what) for f in o.fits], o.note) for o in options}
    assert said == {
        "return_weights": (True, [("[1]", "weights")], ""),
        "average": (True, [("[1]", "mean weights")], ""),
        "need_lse": (True, [("[2]", "lse")], ""),
        "verbose": (None, [], "changes nothing"),
    }


def average_of_what_is_asked_for(q, k, v, need_weights=False, average_weights=True):
    w = softmax(q, k)
    return (w @ v, w.mean(1) if average_weights else w) if need_weights else w @ v


def test_a_flag_may_need_another():
    _, _, options = find(average_of_what_is_asked_for)
    said = [(o.value, [(f.path, f.what) for f in o.fits]) for o in options]
    assert said == [(True, [("[1]", "mean weights")]), (False, [("[1]", "weights")])]
