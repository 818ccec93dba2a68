"""Options: what arguments do that may be left out."""

import numpy as np
import pytest

from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.facts.options import UNCLEAR, look_at_options
from mha_numpy.identifying.look import find_base
from tests.identifying.foreign import make_foreign


def options_of(function):
    subject = Subject(function)
    found, _, _ = find_base(subject, {})
    options = look_at_options(subject, found, {})
    return {option.argument: option for option in options}


@pytest.mark.parametrize(
    ("options", "settings", "told"),
    [
        ("mask=None", {}, {"mask": ("mask", {})}),
        ("mask=None", {"mask": "true = blocked"}, {"mask": ("mask", {"mask": "true = blocked"})}),
        ("valid_lens=None", {"lengths": "j <= n"},
         {"valid_lens": ("lengths", {"lengths": "j <= n"})}),
        ("window=None", {"window_given": "w+1 before"},
         {"window": ("window", {"window_given": "w+1 before"})}),
        ("mask=None, is_causal=False", {"causal": "past and itself", "combined": "or"},
         {"mask": ("mask", {}),
          "is_causal": ("is_causal", {"causal": "past and itself", "combined": "or"})}),
    ],
)  # fmt: skip
def test_option_is_understood(options, settings, told):
    found = options_of(make_foreign(f"q, k, v, {options}", settings))
    assert {name: (option.role, option.settings) for name, option in found.items()} == told


def test_a_block_that_is_usually_longer_than_the_keys():
    def attend(q, k, v, Bc=16):
        m, total, out = -np.inf, 0.0, 0.0
        for j in range(0, k.shape[-2], Bc):
            s = q @ k[..., j : j + Bc, :].swapaxes(-1, -2) / q.shape[-1] ** 0.5
            old, m = m, np.maximum(m, s.max(-1, keepdims=True))
            total = total * np.exp(old - m) + np.exp(s - m).sum(-1, keepdims=True)
            out = out + np.exp(s - m) @ v[..., j : j + Bc, :]
        return out / total

    settings = options_of(attend)["Bc"].settings
    assert settings == {"normaliser": "streamed, output not rescaled"}


@pytest.mark.parametrize(("word", "combined"), [("if", "and"), ("elif", "first mask")])
def test_two_masks_hide_what_either_of_them_hides(word, combined):
    lines = f"""
def attend(q, k, v, hide=None, pad=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if hide is not None:
        s = np.where(hide, -np.inf, s)
    {word} pad is not None:
        s = np.where(pad[:, None, None], -np.inf, s)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v
"""
    names = {"np": np}
    exec(lines, names)
    assert options_of(names["attend"])["hide"].settings.get("combined", "and") == combined


def test_a_scale_that_nobody_reads_changes_nothing():
    option = options_of(make_foreign("q, k, v, scale=None", {"scale_given": "ignored"}))["scale"]
    assert (option.found, option.note) == (None, "changes nothing")


def test_an_option_that_is_no_attention_is_not_clear():
    def attend(q, k, v, mask=None):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        e = np.exp(s)
        return e / e.sum(-1, keepdims=True) @ v + (0 if mask is None else 7)

    option = options_of(attend)["mask"]
    assert (option.found, option.note) == (None, UNCLEAR)


def test_a_flag_that_needs_a_mask_is_tried_with_it():
    def attend(q, k, v, mask=None, is_causal=False, grouped=False):
        if is_causal and mask is None:
            raise ValueError("a hint, for a mask")
        s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        e = np.exp(s if mask is None else np.where(mask, s, -np.inf))
        return e / e.sum(-1, keepdims=True) @ v

    options = options_of(attend)
    assert options["is_causal"].note == "changes nothing if only mask is passed too"
    assert options["grouped"].note == "changes nothing"
