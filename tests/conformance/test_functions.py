"""Functions of other conventions: declared they pass, undeclared they are told which one it is."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mha_numpy import attention_backward, attention_forward, scaled_dot_product_attention
from mha_numpy.conformance import cases
from mha_numpy.conformance.conventions import load, make_conventions, read_conventions
from mha_numpy.conformance.running import make_contender, reason_to_skip
from mha_numpy.conformance.verdict import explain, find_hint, find_trouble
from mha_numpy.errors import ConfigError

CASES = {case.name: case for case in cases()}


def troubles(function, table=None):
    """Return the trouble of each case that runs, by its name."""
    contender = make_contender(function, make_conventions(table or {}))
    runs = [case for case in cases() if not reason_to_skip(contender, case)]
    return {case.name: find_trouble(contender, case) for case in runs}


def failing(function, table=None):
    return [name for name, trouble in troubles(function, table).items() if trouble]


def hint(function, name, table=None):
    contender = make_contender(function, make_conventions(table or {}))
    return find_hint(contender, CASES[name], find_trouble(contender, CASES[name]))


def blocked(q, k, v, mask=None, **options):
    return scaled_dot_product_attention(q, k, v, mask=None if mask is None else ~mask, **options)


def tokens_first(q, k, v, **options):
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, **options).swapaxes(1, 2)


def tiled(q, k, v, **options):
    k, v = (np.tile(x, (1, q.shape[1] // k.shape[1], 1, 1)) for x in (k, v))
    return scaled_dot_product_attention(q, k, v, **options)


def bottom_right(q, k, v, **options):
    T_q, T_k = q.shape[2], k.shape[2]
    return scaled_dot_product_attention(q, k, v, q_offset=T_k - T_q, **options)


def blind(number_of, q, k, v, **options):
    """Attend; a row that sees nothing has another number, unless there are no keys."""
    out, cache = attention_forward(q, k, v, **options)
    if k.shape[2] == 0:
        return out
    v = v.repeat(q.shape[1] // v.shape[1], axis=1)
    return np.where(np.isneginf(cache.lse)[..., None], number_of(v), out)


def blind_nan(q, k, v, **options):
    return blind(lambda v: np.nan, q, k, v, **options)


def blind_mean(q, k, v, **options):
    return blind(lambda v: v.mean(axis=2, keepdims=True), q, k, v, **options)


def narrow(q, k, v, **options):
    return scaled_dot_product_attention(*(x.astype(np.float32) for x in (q, k, v)), **options)


def counting(q, k, v, is_causal=False, window=None):
    window = None if window is None else (window - 1, 0)
    return scaled_dot_product_attention(q, k, v, is_causal=is_causal, window=window)


ALL = {
    name: name
    for name in ["mask", "bias", "is_causal", "q_offset", "window", "softcap", "scale", "sink"]
}
ALL |= {"head_gate": "head_gate"}
WITHOUT = {**ALL}  # what a function of its own alignment has
del WITHOUT["q_offset"]
OTHERS = [  # function, what it declares, its arguments, a case that fails without
    (blocked, {"mask": "true = blocked"}, ALL, "padding"),
    (tokens_first, {"layout": "B T H d"}, ALL, "plain"),
    (tiled, {"grouping": "tile"}, ALL, "grouped-mask-bias"),
    (bottom_right, {"causal_alignment": "bottom-right"}, WITHOUT, "causal-top-left"),
    (blind_nan, {"blind_rows": "nan"}, ALL, "blind-row"),
    (blind_mean, {"blind_rows": "mean"}, ALL, "blind-sequence"),
    (narrow, {"dtype": "float32"}, ALL, "plain"),
]


@pytest.mark.parametrize(("function", "words", "names", "case"), OTHERS)
def test_other_conventions_pass_if_declared_and_are_recognised_if_not(function, words, names, case):
    table = {"arguments": {name: name for name in names}}
    ran = troubles(function, table | words)
    assert len(ran) > 50
    assert {name: trouble for name, trouble in ran.items() if trouble} == {}
    ((name, word),) = words.items()
    assert hint(function, case, table) == (
        f'with {name} = "{word}" it agrees: correct the function, or declare this'
    )


def test_two_mistakes_are_recognised_together():
    def function(q, k, v, mask=None):
        return blind_nan(q, k, v, mask=None if mask is None else ~mask)

    assert 'with mask = "true = blocked" and blind_rows = "nan" it' in hint(function, "blind-row")


def test_a_window_as_one_number():
    ran = troubles(counting, {"window": "count"})
    assert ran["window-causal"] == ran["and-window-causal"] == ""
    assert "window-both" not in ran
    assert "window-causal" in failing(counting)


def test_numbers_that_spread_are_a_convention():
    def spreading(q, k, v, mask=None):
        return scaled_dot_product_attention(q, k, v, mask=mask) + 0 * v.sum()

    with np.errstate(invalid="ignore"):
        assert failing(spreading) == ["hidden-nan", "hidden-inf"]
        assert hint(spreading, "hidden-nan").startswith('declare hidden_numbers = "read"')
        assert failing(spreading, {"hidden_numbers": "read"}) == []


def test_ours_passes_every_case_but_rope():
    ran = troubles(scaled_dot_product_attention)
    assert {*CASES} - {*ran} == {"rope-halves", "rope-pairs"}
    assert not any(ran.values())


def test_gradients_weights_and_lse_are_compared(monkeypatch):
    def forward(q, k, v, mask=None):
        out, cache = attention_forward(q, k, v, mask=mask)
        return out, cache.weights, cache.lse, cache

    module = SimpleNamespace(right=attention_backward)
    module.wrong = lambda d_out, cache: attention_backward(d_out, cache)._replace(d_k=2 * d_out)
    monkeypatch.setitem(sys.modules, "backwards", module)
    table = {"returns": ["out", "weights", "lse", "cache"], "backward": "backwards:right"}
    assert failing(forward, table) == []
    assert troubles(forward, table | {"backward": "backwards:wrong"})["plain"].startswith("d_k: ")
    swapped = table | {"returns": ["out", "lse", "weights", "cache"]}
    assert troubles(forward, swapped)["plain"].startswith("weights: expected shape (1, 2, 3, 3)")


def tokens_first_backward(d_out, q, k, v, **options):
    q, k, v, d_out = (x.swapaxes(1, 2) for x in (q, k, v, d_out))
    grads = attention_backward(d_out, attention_forward(q, k, v, **options)[1])
    return [grad.swapaxes(1, 2) for grad in grads[:3]]


def tiled_backward(d_out, q, k, v, **options):
    G, H_kv = q.shape[1] // k.shape[1], k.shape[1]
    k, v = (np.tile(x, (1, G, 1, 1)) for x in (k, v))
    d_q, d_k, d_v, d_bias, *_ = attention_backward(d_out, attention_forward(q, k, v, **options)[1])
    d_k, d_v = (x.reshape(len(x), G, H_kv, *x.shape[2:]).sum(axis=1) for x in (d_k, d_v))
    return {"d_q": d_q, "d_k": d_k, "d_v": d_v, "d_bias": d_bias}


@pytest.mark.parametrize(
    ("forward", "backward", "words"),
    [
        (tokens_first, tokens_first_backward, {"layout": "B T H d"}),
        (tiled, tiled_backward, {"grouping": "tile"}),
    ],
)
def test_gradients_are_converted_as_what_they_are_gradients_of(forward, backward, words):
    table = {"arguments": ALL, **words}
    contender = make_contender(forward, make_conventions(table))._replace(backward=backward)
    for name in ("plain", "grouped-mask-bias", "multi-query", "bias-B-H-T_q-T_k"):
        assert find_trouble(contender, CASES[name]) == ""
    wrong = contender._replace(backward=lambda *given, **o: [1.5 * x for x in given[1:]])
    assert find_trouble(wrong, CASES["plain"]).startswith("d_q: 12 of 12 numbers differ, most at")


def test_one_argument_for_mask_and_bias_and_arguments_that_exclude_each_other():
    def merged(q, k, v, attn_mask=None, is_causal=False):
        name = "bias" if attn_mask is None or attn_mask.dtype.kind == "f" else "mask"
        assert not (attn_mask is not None and is_causal)
        options = {name: attn_mask, "is_causal": is_causal}
        return scaled_dot_product_attention(q, k, v, **options)

    table = {"arguments": {"mask": "attn_mask", "bias": "attn_mask"}}
    assert failing(merged, table) == ["and-mask-causal"]
    ran = troubles(merged, table | {"exclusive": [["mask", "is_causal"]]})
    assert ran["hidden-query"] == ran["grouped-mask-bias"] == ""
    assert not any(ran.values())


def test_constants_are_passed_and_other_arguments_are_named():
    def function(q, k, v, flag, is_causal=True, p=0.0):
        assert flag == "yes"
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    table = {"constants": {"flag": "yes", "is_causal": False}}
    assert failing(function, table) == []
    assert make_contender(function, make_conventions(table)).unused() == ["p"]


def test_a_function_that_takes_only_float32():
    def function(q, k, v, bias=None):
        assert {x.dtype.name for x in (q, k, v) if x is not None} == {"float32"}
        return scaled_dot_product_attention(q, k, v, bias=bias)

    assert failing(function, {"dtype": "float32"}) == []


def test_an_error_is_one_line_with_the_line_of_the_function():
    def function(q, k, v, mask=None):
        raise ValueError("no\nway")

    trouble = troubles(function)["plain"]
    assert trouble.startswith("it raised ValueError: no way (test_functions.py, line ")
    assert troubles(lambda q, k, v: (q, q))["plain"] == (
        "it returned 2 results, and returns names 1: out"
    )


def test_a_failure_shows_the_inputs_of_the_head_with_the_largest_difference():
    case = CASES["grouped-mask-bias"]._replace(name="wrong")
    contender = make_contender(tiled, make_conventions({"arguments": ALL}))
    trouble = find_trouble(contender, case)
    lines = explain(case, trouble, "a hint").splitlines()
    assert lines[:2] == [trouble, "    tests: mask and bias belong to query heads"]
    assert (
        '    needs: grouping = "repeat": query head h reads key/value head h // (H / H_kv)' in lines
    )
    at = lines.index("    hint: a hint") + 1
    b, h = int(trouble.split("[")[1][0]), int(trouble.split("[")[1][3])
    assert lines[at] == f"    inputs of sequence {b}, query head {h}, key/value head {h // 3}:"
    assert lines[at + 1] == f"      q = {case.inputs['q'][b, h].tolist()}"
    assert lines[at + 2] == f"      k = {case.inputs['k'][b, h // 3].tolist()}"
    assert len("\n".join(lines)) < 1200


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"masks": 1}, "there is no entry 'masks'; did you mean 'mask'?"),
        ({"mask": "1 = attend"}, r"mask: expected one of \('true = attend', 'true = blocked'\)"),
        ({"framework": "tf"}, "framework: expected one of"),
        ({"returns": "out"}, "returns: expected a list; got 'out'"),
        ({"returns": ["o"]}, "returns: expected one of"),
        ({"exclusive": [["mask", "causal"]]}, "exclusive: expected one of"),
        ({"arguments": {"attn_mask": "mask"}}, "arguments: expected one of"),
        ({"arguments": ["mask"]}, r"arguments: expected a table, \[arguments\]; got"),
        ({"backward": 3}, "backward: expected package.module:function; got 3"),
    ],
)
def test_wrong_entries_are_named(table, message):
    with pytest.raises(ConfigError, match=message):
        make_contender(blocked, make_conventions(table))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("math", "attention: expected package.module:function; got 'math'"),
        ("no_such:f", r"attention: cannot import no_such \(ModuleNotFoundError: "),
        ("math:sine", "attention: math has no 'sine'; did you mean 'sin'"),
        ("math:pi", "attention: expected a function; math:pi is 3.14"),
    ],
)
def test_a_function_that_is_not_there(path, message):
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "bad.toml").write_text("mask = ")
    with pytest.raises(ConfigError, match=r"conventions: expected TOML in .*bad.toml; "):
        read_conventions(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="conventions: cannot read"):
        read_conventions(tmp_path / "no.toml")


def test_the_page_shows_what_a_tiled_function_is_told():
    def attention(q, k, v, mask=None, is_causal=False):
        return tiled(q, k, v, mask=mask, is_causal=is_causal)

    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text(encoding="utf-8")
    ran = troubles(attention)
    wrong = failing(attention)
    assert wrong == ["grouped"]
    counts = f"cases: {len(ran) - 1} agree, 1 differ, {len(cases()) - len(ran)} skipped\n"
    assert counts in page
    lines = explain(CASES["grouped"], ran["grouped"], hint(attention, "grouped")).splitlines()
    assert "\n".join(lines[:6]) in page
