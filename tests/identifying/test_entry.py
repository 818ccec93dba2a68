"""Wrong arguments of identify, and datasheets that once could not be shown."""

import re
from pathlib import Path

import numpy as np
import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.identifying import identify
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.calling.ways import Slot, find_ways
from mha_numpy.identifying.entry import NAMES, _misfits
from mha_numpy.identifying.judging.otherwise import _other, describe_unknown
from mha_numpy.identifying.reporting.datasheet import Named
from mha_numpy.identifying.reporting.rows import ROLES
from mha_numpy.identifying.reporting.sheet import Datasheet
from mha_numpy.identifying.searching.calls import call_way


def attend(q, k, v, window=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    i, j = np.arange(scores.shape[-2])[:, None], np.arange(scores.shape[-1])
    if window is not None:
        scores = np.where(abs(i - j) <= window, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("function", "given", "says"),
    [
        (3, {}, "function: expected a function or a layer; got int"),
        (attend, {"given": {"maks": "window"}}, "'maks'; did you mean 'mask'. roles are D, "),
        (attend, {"given": {"zzzz": "q"}}, "roles are D, S, T, .* is_causal, .* query, .*value"),
        (attend, {"given": {3: "q"}}, "given: there is no role 3; roles are"),
        (attend, {"given": ["mask"]}, "given: expected a dict of roles; got .'mask'"),
        (attend, {"given": {"mask": 3}}, "given: expected the name of an argument; got 3"),
        (attend, {"given": {"mask": "attn"}}, "given: attend has no argument 'attn'"),
        (attend, {"seconds": 0}, "seconds: expected"),
        (attend, {"backward": 3}, "backward: expected a function; got 3"),
    ],
)
def test_wrong_arguments(function, given, says):
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        identify(function, **given)


class Layer:
    """Attention without a causal mask, if no flag is set."""

    def __init__(self, causal=False, use_scale=True, seed=0):
        self.causal, self.use_scale = causal, use_scale

    def __call__(self, q, k, v, key_mask=None, attn_mask=None):
        s = q @ k.swapaxes(-1, -2) / (np.sqrt(q.shape[-1]) if self.use_scale else 1)
        s = np.where(np.tri(*s.shape[-2:], k=-1), s, -1e9) if self.causal else s
        s = s if key_mask is None else np.where(key_mask[:, None, None], s, -1e9)
        s = s if attn_mask is None else np.where(attn_mask, s, -1e9)
        e = np.exp(s - s.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v


def test_flags_of_a_constructor_are_looked_at():
    sheet = identify(Layer)
    said = {(row.setting, row.value): row for row in sheet.rows if "=" in row.argument}
    assert said["scale", "1"].argument == "use_scale=False"
    wrong = said["causal", "past"]
    assert (wrong.argument, wrong.kind) == ("causal=True", "mistake")
    assert "np.tri" in wrong.code
    own = {each.name: each.what for each in sheet.arguments if each.note == "of the constructor"}
    roles = ("is_causal", "flag", "rng")
    assert own == {
        name: ROLES[r] for name, r in zip(("causal", "use_scale", "seed"), roles, strict=True)
    }


def test_what_several_arguments_share_is_said_once():
    text = " ".join(str(identify(Layer())).split())
    assert text.count("True or 1 = the query sees the key") == 1
    assert "mask (key_mask, attn_mask)" in text
    assert "a query with no keys left (key_mask, attn_mask) the mean of all values" in text


def test_what_is_no_attention_is_told_by_what_was_seen():
    subject = Subject(lambda x: x * 2)
    way = next(find_ways(subject, {}))
    seen, _ = call_way(subject, way)
    assert "on that token alone" in describe_unknown(subject, [seen], "")
    turned = seen._replace(way=way._replace(slots={"x": Slot("x", "B D T")}))
    assert "Its output has the shape" in describe_unknown(subject, [turned], "")
    subject.function = lambda x: x * 0
    seen, _ = call_way(subject, way)
    assert "the same for all inputs" in describe_unknown(subject, [seen], "")


def test_a_window_is_compared_with_libraries():
    sheet = identify(attend)
    assert sheet.value("window_given") == "w both"
    assert "2 w + 1 keys" in str(sheet)


def test_a_mask_of_queries_has_their_axis_and_a_flag_does_what_a_row_says():
    def attend(q, k, v, query_mask=None, enable_gqa=False):
        k, v = (x.repeat(q.shape[1] // x.shape[1], 1) if enable_gqa else x for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if query_mask is not None:
            assert query_mask.ndim == 2
            scores = np.where(query_mask[:, None, :, None], scores, -1e30)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    sheet = identify(attend)
    own = {each.name: each for each in sheet.arguments}
    assert own["query_mask"].axes == "(B, T_q)"
    assert own["enable_gqa"].note == ""
    assert sheet.value("groups") == "taken"


def test_a_backward_that_cannot_be_called_is_no_mistake():
    def backward(one, two, three, four, five, six):
        raise ValueError(one)

    sheet = identify(attend, backward=backward)
    assert not sheet.mistakes
    assert "no way to call backward was found" in str(sheet)


def test_the_hint_names_an_argument_at_hand():
    def broken(q, k, what):
        raise ValueError(q)

    assert 'for example given={"value": "what"}' in " ".join(
        str(identify(broken, seconds=0.3)).split()
    )
    assert _other(["q", "k", "v", "mask"], {}) == ', for example given={"bias": "NAME"}'
    assert _other(["q", "k", "v", "mask", "what"], {}) == ', for example given={"bias": "what"}'
    assert _other(["query", "src"], {}) == ', for example given={"memory": "src"}'
    assert _other(["query", "one", "two"], {"one": "key"}) == ', for example given={"value": "two"}'


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, 'example given={"x": "sents"}'),
        ({"x": "sents"}, 'example given={"memory": "NAME"}'),
        ({"x": "sents", "mask": "is_pad"}, "give its role."),
    ],
)
def test_the_hint_names_a_role_that_can_help(given, said):
    class Layer:
        w_qkv = np.ones((2, 6))

        def __call__(self, sents, is_pad=None):
            raise KeyError("sentence")

    sheet = identify(Layer(), given=given, seconds=1)
    assert said in f"{sheet.saw}."
    assert "the likeliest one raised KeyError: 'sentence'" in sheet.saw


def test_stored_params_that_fit_no_call_are_named():
    class Layer:
        def __init__(self):
            self.w_qkv = np.ones((2, 3, 4, 5, 6))

        def __call__(self, sents):
            return sents

    assert (
        "w_qkv (2, 3, 4, 5, 6) = params of queries, keys and values in one"
        in identify(Layer(), seconds=1).saw
    )


def test_the_page_names_roles_that_exist():
    page = (Path(__file__).parents[2] / "docs/identify.md").read_text("utf-8")
    named = re.findall("`([a-z_]+)`", page.split("The roles are")[1].split("\n\n")[0])
    assert len(named) > 20
    assert {*named} <= {*NAMES}


def test_a_role_that_does_not_fit_is_said():
    sheet = Datasheet("f", "numpy", True, "", (Named("a", "unknown"), Named("b", "window")))
    assert [*_misfits(sheet, {"b": "window"})] == []
    assert [*_misfits(sheet, {"a": "scale", "b": "padding"})] == [
        "a was given as: scale. Its numbers do not fit that.",
        "b was given as: mask. Its numbers do not fit that. It acts as: window.",
    ]


def test_the_flag_of_a_convention_is_beside_it():
    def choose(q, k, v, causal=False):
        scores = q @ k.T / np.sqrt(q.shape[-1])
        scores = np.where(np.tri(*scores.shape), scores, -np.inf) if causal else scores
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    assert "causal (causal) " in str(identify(choose))


def test_an_assertion_without_a_text_has_its_line():
    def picky(q, k, v):
        if q.shape[-1] != 12345:
            raise AssertionError
        return q @ k.T @ v

    assert ", raise AssertionError. The arguments" in identify(picky, seconds=0.3).saw


def test_a_setting_that_does_not_exist_has_no_value():
    sheet = Datasheet("f", "numpy", True, "")
    assert sheet.value("scale") is None
    with pytest.raises(ConfigError, match="setting: .*'scael'; did you mean 'scale'"):
        sheet.value("scael")
