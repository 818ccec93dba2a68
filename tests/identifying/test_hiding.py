"""Masks of attention whose scores are unknown."""

import numpy as np
import pytest

from mha_numpy.identifying import identify


def gossip(qq, kk, vv, hide=None, first=None):
    """Borrow weights from the head before, as far as a query is unsure, which masks change."""
    scores = qq @ kk.swapaxes(-1, -2) / np.sqrt(qq.shape[-1])
    if hide is not None:
        scores = np.where(hide, -1e9, scores)
    if first is not None:
        hidden = np.arange(kk.shape[2]) >= first[:, None]
        scores = np.where(hidden[:, None, None], -1e9, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    unsure = -(weights * np.log(weights + 1e-12)).sum(-1, keepdims=True) / 4
    return ((1 - unsure) * weights + unsure * np.roll(weights, 1, axis=1)) @ vv


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"mask": "hide"}, {"mask": "hide", "lengths": "first"}])
def test_what_hides_is_known_where_scores_are_not(given):
    sheet = identify(gossip, given=given)
    own = {each.name: (each.what, each.axes) for each in sheet.arguments}
    assert "does not know its scores" in sheet.saw
    assert own["hide"] == ("mask", "(B, 1, T_q, T_k)")
    assert sheet.value("mask") == "true = blocked"
    if "lengths" in given:
        assert own["first"] == ("lengths of the sequences", "(B,)")
    assert sheet.is_as_given


@pytest.mark.slow
def test_a_wrong_role_leads_to_no_less():
    sheet = identify(gossip, given={"window": "hide"})
    assert "does not know its scores" in sheet.saw
    assert not sheet.is_as_given
    assert any("hide was given as: window" in note for note in sheet.notes)
