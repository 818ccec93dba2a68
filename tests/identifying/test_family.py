"""Every value of every setting is found again, and so are pairs of a convention and a mistake."""

from itertools import islice, product

import numpy as np
import pytest

from mha_numpy.identifying.family import SETTINGS, Problem, Sizes, evaluate
from mha_numpy.identifying.family.stages import MOST_KEPT
from mha_numpy.identifying.look import look
from mha_numpy.identifying.searching.search import CONVENTIONS, NEEDS, RARE, cost_of
from tests.identifying.foreign import SIGNATURES, make_foreign
from tests.sweeps import every

CAUSAL = {"causal": "past and itself"}
ROTATED = {"rotation": "halves"}
SIGNATURE = {  # of the settings that need other arguments than q, k and v
    "exchanged": "three inputs", "params": "three inputs", "left_out": "params",
    "packing": "packed",
    "split": "wide", "merge": "self", "w_o": "self", "b_o": "params", "after": "self",
    "before": "self",
    "rotation_axis": "grouped params", "grouping": "grouped params", "scale_given": "scaled",
    "bias": "bias", "softcap_at": "bias", "buckets": "table", "most_distance": "table",
    "window_given": "window", "mask": "optional mask", "mask_index": "optional mask",
    "combined": "optional mask", "hide": "optional mask", "rows": "lengths", "lengths": "lengths",
    "rows_by": "lengths", "dropout_mask": "dropped", "head_gate": "gated", "blind": "masked",
    "first_position": "cache",
    ("q_position", "after the cache"): "cache", ("q_position", "from the offset"): "placed",
    ("softmax_axis", "features of batch"): "wide",
    ("left_out", "w_q"): "self", ("left_out", "w_k"): "self", ("left_out", "w_v"): "self",
    ("merge", "mean of heads"): "wide", ("merge", "sum of heads"): "wide",
}  # fmt: skip
NEEDED = {  # before a setting changes anything
    "direction": ROTATED, "rotated": ROTATED, "first_position": ROTATED, "q_position": ROTATED,
    "base": ROTATED, "frequencies": ROTATED, "rotation_axis": ROTATED, "angles": ROTATED,
    "turned": ROTATED, "alignment": CAUSAL, "in_blocks": {**CAUSAL, "blocks": 3},
    "combined": CAUSAL, "softcap_at": {"softcap": 1.5},
    "block": {"normaliser": "streamed, sum not rescaled"},
}  # fmt: skip
NUMBERS = {  # values of the settings that take any number
    "base": (500.0,), "softcap": (2.5,), "window": ((2, None), (1, 1), (3, 0)), "scale": (0.3,),
    "most_distance": (9,), "block": (3,), "turned": (4, 0.25), "before": (2,),
}  # fmt: skip
SAME = {  # what nothing can tell from something else, and why
    ("left_out", "b_k"): ({}, "it adds the same to all scores of a query")
}
SILENT = {("scale_given", "ignored"), ("bias", "ignored"), ("mask", "ignored"),
          ("head_gate", "ignored"), ("dropout_mask", "ignored")}  # fmt: skip


OTHERWISE = {  # see test_as_people_have_them, test_options, and test_own_tokens
    "first mask": "two masks", "second mask": "two masks",
    "additive": "it has params of its own", "k, q": "it has params of its own",
    "x, output": "it has params of its own",
    "heads within each token": "only where a softmax is called",
}  # fmt: skip


def all_cases():
    for setting, values in SETTINGS.items():
        for value in (*values[1:], *NUMBERS.get(setting, ())):
            if value not in OTHERWISE:
                yield setting, value


def signature_of(setting, value):
    return SIGNATURE.get((setting, value)) or SIGNATURE.get(setting, "heads")


def identified(signature, settings):
    """Return what identify finds of a function with these settings: settings, and the rest."""
    numbers = {f"n{i}": n for i, n in enumerate(numbers_in(settings))}
    looked = look(make_foreign(SIGNATURES[signature], settings, **numbers))
    assert looked.found, looked.trouble
    found = dict(looked.found.settings)
    for option in looked.options:
        found |= option.settings
    return found, looked


def numbers_in(settings):
    for value in settings.values():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)):
                yield number


def test_inputs_added_to_heads_are_found():
    assert identified("heads", {"after": "+ x"})[0] == {"after": "+ x"}


@pytest.mark.parametrize("case", every(18, [*zip(all_cases())], 3), ids=str)
def test_value_is_found_again(case):
    setting, value = case
    settings = {**NEEDED.get(setting, {}), setting: value}
    found, looked = identified(signature_of(setting, value), settings)
    if case in SILENT:
        assert "changes nothing" in [option.note for option in looked.options]
    elif setting == "blind":
        assert value in [fact.value for fact in looked.facts if fact.name == "blind"]
    else:
        assert found == SAME.get(case, (settings,))[0]


def pairs(count):
    """Yield a convention and a mistake that one signature can have, at random."""
    special = {*NEEDED, *NUMBERS, "blind"}
    values = [
        case
        for case in all_cases()
        if case[0] not in special and case not in SAME and case not in SILENT
    ]
    conventions = [case for case in values if cost_of(*case) == 1]
    mistakes = [case for case in values if cost_of(*case) > 1]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(conventions) * len(mistakes))
    both = [[*product(conventions, mistakes)][at] for at in order]
    for convention, mistake in islice((pair for pair in both if common(*pair)), count):
        yield common(convention, mistake), dict([convention, mistake])


NO_FACTOR = ("relu of q and k", "abs, sum", "square, sum", "relu, sum", "sum")


def common(*cases):
    """Return the signature that all of them can have, "" if there is none."""
    names = {signature_of(*case) for case in cases}
    if "qk_norm" in dict(cases) and dict(cases).get("normaliser") in NO_FACTOR:
        return ""  # norms that differ by a factor have the same numbers
    if len({setting for setting, _ in cases}) < len(cases):
        return ""
    if len(names) == 2 and "heads" in names:
        names.remove("heads")
        if not SIGNATURES[min(names)].startswith("q, k, v"):
            return ""
    return names.pop() if len(names) == 1 else ""


@pytest.mark.parametrize("pair", every(9, [*zip(pairs(60))], 3), ids=str)
def test_convention_and_mistake_are_found_together(pair):
    signature, settings = pair
    read = {name: value for name, value in settings.items() if not is_unread(name, settings)}
    assert identified(signature, settings)[0] in (read, TWINS.get(tuple(read.items())))


TWINS = {  # pairs that have the numbers of another pair: a sigmoid treats q and k alike
    (("normaliser", "sigmoid"), ("mixed", "weights.T @ v")): {
        "normaliser": "sigmoid",
        "exchanged": "q k",
    },
    (("normaliser", "sigmoid"), ("rows", "padded queries zero")): {
        "normaliser": "sigmoid",
        "rows_by": "both",
    },
    (("causal", "past and itself"), ("window_given", "w-1 both")): {"causal": "past and itself"},
    (("causal", "past and itself"), ("window_given", "w after")): {"causal": "past and itself"},
}
NO_SCORES = (("buckets", "scale_given", "scale", "alibi"), "there are no scores, and no softmax")
UNREAD = {  # by normaliser: settings that cannot change its numbers, and why
    "sigmoid": (("softmax_axis",), "each weight is that of one score alone"),
    "relu of q and k": NO_SCORES,
    "elu(x)+1 of q and k": NO_SCORES,
    "exp of q and k": NO_SCORES,
    "abs, sum": (("scale_given", "scale"), "a factor of all scores cancels"),
    "square, sum": (("scale_given", "scale"), "a factor of all scores cancels"),
    "relu, sum": (("scale_given", "scale"), "a factor of all scores cancels"),
    "sum": (("scale_given", "scale"), "a factor of all scores cancels"),
    "log-softmax": (("mask",), "the log of a weight 0 is -inf: no output is finite"),
}


def is_unread(setting, settings):
    """Return whether another setting of these makes the numbers blind for one."""
    is_apart = settings.get("mixed") == "summed apart"  # all weights of a query sum to 1
    unread = UNREAD.get(settings.get("normaliser"), ((), ""))[0]
    return setting != "mixed" if is_apart else setting in unread


def test_every_cost_and_need_is_of_a_value_that_exists():
    for table in (CONVENTIONS, RARE):
        for setting, values in table.items():
            assert values <= {*SETTINGS[setting]}, setting
    for setting, needed in NEEDS.items():
        assert {setting, *needed} <= SETTINGS.keys()


def test_a_long_search_keeps_only_the_latest_stages():
    q, k, v = np.ones((3, 1, 1, 2, 2))
    sizes = Sizes(B=1, H=1, G=1, T=2, S=2, d=2, e=2)
    problem = Problem(sizes, {"query": q, "key": k, "value": v})
    found = [evaluate(problem, {"scale": float(i)}) for i in range(MOST_KEPT)]
    assert None not in found
    assert len(problem.memo) <= MOST_KEPT + 1
