"""Edits: each text stands once, each edit matters, each mistake shows; others are refused."""

from collections import Counter

import numpy as np
import pytest
from mha_numpy.teach.diagnosis.families import MISTAKES
from mha_numpy.teach.diagnosis.sources import called_by, read_solutions
from mha_numpy.teach.diagnosis.variant import edited, may_show, places_in_functions, variant

from mha_numpy.checking import agrees
from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis import BANK, MANNERS, TASKS, fingerprints
from mha_numpy.teach.diagnosis import families as families_module
from mha_numpy.teach.diagnosis.edits import apply_edits


def test_edits_are_applied_at_once():
    assert apply_edits("a + b", {"a": "b", "b": "a"}) == "b + a"


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ({"c": "d"}, "'c' stands 0x"),
        ({"a": "d"}, "'a' stands 2x"),
        ({"a + b": "", "b + a": ""}, "expected texts that do not overlap"),
    ],
)
def test_edits_that_cannot_be_made(edits, message):
    with pytest.raises(ConfigError, match=message):
        apply_edits("a + b + a", edits)


def test_names_are_unique():
    assert max(Counter(mistake.name for mistake in [*MISTAKES, *MANNERS]).values()) == 1
    pieces = [piece.name for family in families_module.FAMILIES for piece in family.TASKS]
    assert len(set(pieces)) == len(pieces)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_shows_somewhere_and_says_what_to_do(mistake):
    places = places_in_functions(mistake.edits)  # each text stands just once, in a function
    assert any(mistake.name in fingerprints(piece) for piece in TASKS)
    assert mistake.verdict
    assert mistake.fix
    assert "?" not in mistake.verdict + mistake.fix
    assert "\n" not in mistake.fix
    assert set(places) <= {name for piece in TASKS for name in called_by(piece)}


@pytest.mark.parametrize(
    "mistake", [m for m in MISTAKES if len(m.edits) > 1], ids=lambda mistake: mistake.name
)
def test_every_edit_of_several_matters(mistake):
    """Without one of its edits, a mistake gives other numbers in some piece."""
    for left_out in mistake.edits:
        rest = {old: new for old, new in mistake.edits.items() if old != left_out}
        places, (function,) = places_in_functions(rest), places_in_functions({left_out: ""})
        assert any(
            differs(piece, edited(piece, places), mistake.name)
            for piece in TASKS
            if function in called_by(piece)
        ), left_out


def differs(piece, function, mistake):
    """Return whether a function gives other numbers than a mistake does."""
    for probe in TASKS[piece].probes():
        one, other = tried(function, probe), tried(variant(piece, [mistake]), probe)
        if (one is None) != (other is None) or (one is not None and not agrees(one, other)):
            return True
    return False


def tried(function, probe):
    try:
        with np.errstate(all="ignore"):
            return function(**probe)
    except (ValueError, IndexError, NameError):  # one edit may name what another one makes
        return None


def test_a_mistake_that_lies_elsewhere_cannot_show():
    assert not may_show("rope", "scale missing")
    assert may_show("decode_step", "scale missing")


def test_alternatives_have_no_variant():
    assert variant("make_mask", ["causal, strict", "causal, leaks one key"]) is None
    assert variant("make_mask", ["causal, strict", "padding forgotten"]) is not None


def test_a_text_outside_of_the_functions_is_refused():
    with pytest.raises(ConfigError, match="expected a text in a function"):
        places_in_functions({"class WeightsAndLse(": ""})


def test_an_unedited_function_keeps_its_code():
    function = edited("softmax", places_in_functions(BANK["softmax over queries"].edits))
    assert function.__code__ is read_solutions().cuts["softmax"].function.__code__
