"""Where a cell came from, checked by truth: change one number and see which others change."""

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import (
    MultiHeadParams,
    RopeOptions,
    attention_backward,
    attention_forward,
    constant,
    multi_head_attention_backward,
    multi_head_attention_forward,
    step,
)
from mha_numpy.errors import ConfigError
from mha_numpy.layers import MultiHeadAttention
from tests.checking.tracing.whole import trace_attention
from tests.sweeps import sweep

# pairwise different, as far as a head may be
B, H, H_KV, T_Q, T_K, D, KDIM, VDIM, D_K, D_V, D_OUT = 2, 4, 2, 3, 5, 7, 6, 9, 8, 1, 10


def some_params(rng, *, kdim=KDIM, vdim=VDIM):
    shapes = [(D, H * D_K), (kdim, H_KV * D_K), (vdim, H_KV * D_V), (H * D_V, D_OUT)]
    arrays = [0.4 * rng.normal(size=s) for inputs, n in shapes for s in ((inputs, n), (n,))]
    return dict(zip(MultiHeadParams._fields, arrays, strict=True))


def arrays_of_self_attention(rng):
    return {
        "x_q": rng.normal(size=(B, T_Q, D)), **some_params(rng, kdim=D, vdim=D),
        "d_out": rng.normal(size=(B, T_Q, D_OUT)),
    }  # fmt: skip


def arrays_of_cross_attention(rng):
    return {
        "x_q": rng.normal(size=(B, T_Q, D)), "x_k": rng.normal(size=(B, T_K, KDIM)),
        "x_v": rng.normal(size=(B, T_K, VDIM)), **some_params(rng),
        "d_out": rng.normal(size=(B, T_Q, D_OUT)),
    }  # fmt: skip


def run_multi_head(arrays, options):
    """Trace a layer's two passes; `arrays` are inputs, params and d_out by name."""
    inputs = {name: arrays[name] for name in ("x_q", "x_k", "x_v") if name in arrays}
    params = MultiHeadParams(**{name: arrays[name] for name in MultiHeadParams._fields})
    with trace() as t:
        _, cache = multi_head_attention_forward(
            **inputs, params=params, num_heads=H, num_kv_heads=H_KV, **options
        )
        multi_head_attention_backward(arrays["d_out"], cache)
    return t


def reach(t, seeds):
    """Say of every cell of every step on which cells of the seeds it depends, as derived.

    Returns a bool array (*shape, number of seed cells) for each step and param.
    """
    total = sum(array.size for array in seeds.values())
    first, starts = 0, {}
    for name, array in seeds.items():
        own = np.zeros((array.size, total), bool)
        own[np.arange(array.size), first + np.arange(array.size)] = True
        starts[name] = own.reshape(*array.shape, total)
        first += array.size
    reached = {}
    for s in t:
        origin = t.origin_of(s)
        if s.name == "visible":  # made of positions
            reached[s.number] = np.zeros((*s.array.shape, total), bool)
            continue
        assert origin.form != "unknown", s
        if origin.form == "input":
            reached[s.number] = starts.get(s.name, np.zeros((*s.array.shape, total), bool))
            continue
        reached[s.number] = np.zeros((*s.array.shape, total), bool)
        for index in np.ndindex(s.array.shape):
            if origin.condition and not value_of(origin.condition, index):
                continue  # hidden, whatever its source
            for source in origin.sources:
                read = reached[source.step.number]
                if source.is_constant:
                    none = np.zeros((*source.step.array.shape, total), bool)
                    read = starts.get(source.name, none)
                cells = read[np.ix_(*source.at(index))]
                reached[s.number][index] |= cells.any(axis=tuple(range(cells.ndim - 1)))
    return reached


def value_of(source, index):
    return source.step.array[tuple(span.start for span in source.at(index))]


def assert_changes_as_derived(run, arrays, options, *, exactly=lambda step_name, seed: True):
    """Change each number of the arrays in turn: what changes has to be what was derived.

    Nothing may change that was not derived; and all that was derived has to, where `exactly` says
    so, for a derived source may be multiplied by an exact zero.
    """
    before = run(arrays, options)
    reached = reach(before, arrays)
    at = 0
    for name, array in arrays.items():
        for index in np.ndindex(array.shape):
            changed_array = array.copy()
            changed_array[index] += 0.75
            after = run({**arrays, name: changed_array}, options)
            assert [s.name for s in after] == [s.name for s in before]
            for s, other in zip(before, after, strict=True):
                same = np.isclose(s.array, other.array, rtol=1e-11, atol=1e-13)
                derived = reached[s.number][..., at]
                assert not (~same & ~derived).any(), (s.name, "not derived from", name, index)
                if exactly(s.name, name):
                    assert np.array_equal(~same, derived), (s.name, "not changed by", name, index)
            at += 1


def in_general(step_name, seed):
    """Leave out what cancels: b_k and b_v add the same to a whole row, of weights that sum to 1."""
    return seed not in ("b_k", "b_v") and step_name not in ("d_b_k", "d_b_v")


@pytest.mark.slow
@pytest.mark.parametrize("arrays_of", [arrays_of_self_attention, arrays_of_cross_attention])
def test_all_of_a_layer(rng, arrays_of):
    assert_changes_as_derived(run_multi_head, arrays_of(rng), {}, exactly=in_general)


@pytest.mark.parametrize("rope", sweep([None, RopeOptions(), RopeOptions(rotary_dim=4)], 0))
def test_nothing_else_changes_where_much_is_zero(rng, rope):
    """A hidden cell has a weight of exactly 0, and position 0 turns by no angle."""
    arrays = arrays_of_self_attention(rng)
    options = {"is_causal": True, "rope": rope}
    early = ("x_q", "q_projected", "q_by_token", "q_unrotated")
    assert_changes_as_derived(
        run_multi_head, arrays, options,
        exactly=lambda step_name, seed: step_name in early,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rope", "pair"),
    [
        (RopeOptions(), {1: 5, 5: 1}),
        (RopeOptions(rotary_dim=4), {1: 3, 3: 1, 5: 5}),
        (RopeOptions(interleaved=True), {4: 5, 5: 4}),
        (RopeOptions(rotary_dim=4, interleaved=True), {0: 1, 3: 2, 4: 4}),
    ],
)
def test_pairs_of_a_rotation(rng, rope, pair):
    t = run_multi_head(arrays_of_self_attention(rng), {"rope": rope, "q_offset": 1})
    for own, other in pair.items():
        features = dict.fromkeys([own, other])
        cells = " and ".join(f"q_unrotated[1,2,1,{i}]" for i in features)
        turned = ", two features that turn together" * (len(features) - 1)
        told = f"q[1,2,1,{own}] came from {cells} and cos_q[1,{own}] and sin_q[1,{own}]{turned}"
        assert t.explain("q", (1, 2, 1, own)) == told


@pytest.mark.parametrize("leading", [(), (3,), (2, 4)])
def test_attention_at_every_rank_with_options(rng, leading):
    kv = (*leading[:1], H_KV) if len(leading) == 2 else leading
    arrays = {
        "q": rng.normal(size=(*leading, T_Q, 4)),
        "k": rng.normal(size=(*kv, T_K, 4)),
        "v": rng.normal(size=(*kv, T_K, 2)),
        "bias": rng.normal(size=(*leading[1:], 1, T_K)),
        "d_heads": rng.normal(size=(*leading, T_Q, 2)),
    }
    if len(leading) == 2:
        arrays["d_gated"] = arrays.pop("d_heads")
        arrays["head_gate"] = rng.normal(size=leading)
    options = {"softcap": 2.0, "dropout_mask": rng.uniform(0.5, 1.5, (*leading, T_Q, T_K))}

    def run(arrays, options):
        inputs = {name: array for name, array in arrays.items() if name[:2] != "d_"}
        (d_out,) = (array for name, array in arrays.items() if name[:2] == "d_")
        with trace() as t:
            _, cache = attention_forward(**inputs, **options)
            attention_backward(d_out, cache)
        return t

    assert_changes_as_derived(run, arrays, options)


def test_views_are_the_same_memory(rng):
    arrays = arrays_of_self_attention(rng)
    t = run_multi_head(arrays, {})
    seen = 0
    for s in t:
        origin = t.origin_of(s)
        if origin.form != "moved":
            continue
        (source,) = origin.sources
        for index in np.ndindex(s.array.shape):
            before = tuple(span[0] for span in source.at(index))
            assert s.array[index] == source.step.array[before]
            if s.memory.startswith("view"):
                assert _address(s.array, index) == _address(source.step.array, before)
                seen += 1
    assert seen > 100


def _address(array, index):
    first = array.__array_interface__["data"][0]
    return first + sum(i * n for i, n in zip(index, array.strides, strict=True))


def test_one_copy_on_the_way_is_told():
    w = np.arange(6.0).reshape(2, 3)
    with trace() as t:
        step("w", w, "T D")
        step("x", w, "T D", "w")
        step("y", w.reshape(6).copy(), "T*D", "x.reshape(T * D)")
        step("z", t["y"].reshape(2, 3), "T D", "y.reshape(T, D)")
    assert [s.memory for s in t] == ["input", "is w", "copy of x", "view of y"]
    told = "is an input; it is the same number as w[1,1]"
    assert t.explain("x", (1, 1)) == f"x[1,1] {told}, under another name"
    assert t.explain("y", (4,)) == f"y[4] {told}, copied"
    assert t.explain("z", (1, 1)) == f"z[1,1] {told}, copied"


@pytest.fixture
def grouped(rng):
    """4 query heads of width 4 that share 2 key/value heads, causal."""
    layer = MultiHeadAttention(16, 4, 2, rng=0)
    with trace() as t:
        out = layer(rng.normal(size=(2, 5, 16)), is_causal=True)
        layer.backward(rng.normal(size=out.shape))
    return t


@pytest.mark.parametrize(
    ("name", "index", "words"),
    [
        ("x_q", (0, 2, 1), "is an input"),
        ("x_k", (0, 2, 1),
         "is an input; "
         "it is the same number as x_q[0,2,1], under another name"),
        ("q_projected", (0, 2, 5), "came from x_q[0,2,:] and column 5 of w_q and entry 5 of b_q"),
        ("q", (0, 1, 2, 1),
         "came from x_q[0,2,:] and column 5 of w_q and entry 5 of b_q; "
         "it is the same number as q_projected[0,2,5], moved without copying"),
        ("scores", (0, 3, 2, 1), "came from q[0,3,2,:] and k[0,1,1,:]"),
        ("masked", (0, 1, 2, 3), "is hidden: the mask puts -inf in its place"),
        ("masked", (0, 1, 3, 3), "came from scores[0,1,3,3]"),
        ("weights", (0, 1, 2, 3), "came from masked[0,1,2,:], the whole row"),
        ("heads", (1, 2, 4, 3), "came from weights[1,2,4,:] and v[1,1,:,3]"),
        ("merged", (1, 4, 11),
         "came from weights[1,2,4,:] and v[1,1,:,3]; "
         "it is the same number as heads[1,2,4,3], copied"),
        ("d_merged", (1, 4, 11), "came from d_out[1,4,:] and row 11 of w_o"),
        ("d_w_o", (3, 2), "came from merged[:,:,3] and d_out[:,:,2]"),
        ("d_b_o", (2,), "came from d_out[:,:,2]"),
        ("d_scores", (0, 1, 2, 0), "came from weights[0,1,2,:] and d_weights[0,1,2,:], whole rows"),
        ("d_k", (0, 1, 3, 2), "came from d_scores[0,2:4,:,3] and q[0,2:4,:,2]"),
        ("d_weights", (0, 1, 2, 4), "is hidden: the mask puts 0 in its place"),
        ("d_weights", (0, 1, 2, 1), "came from d_heads[0,1,2,:] and v[0,0,1,:]"),
        ("d_x", (1, 3, 7), "came from d_x_q[1,3,7] and d_x_kv[1,3,7]"),
    ],
)  # fmt: skip
def test_in_words(grouped, name, index, words):
    cell = ",".join(map(str, index))
    assert grouped.explain(name, index) == f"{name}[{cell}] {words}"


def test_no_group_reads_a_whole_axis_of_heads(rng):
    x = rng.normal(size=(1, 2, 3, 4))
    t = trace_attention(rng, x, x[:, :1].copy(), x[:, 1:].copy())
    assert t.explain("d_k", (0, 0, 2, 1)).endswith("came from d_scores[0,:,:,2] and q[0,:,:,1]")


def test_extra_keys(rng):
    arrays = arrays_of_cross_attention(rng)
    extra = {f"extra_{x}": rng.normal(size=(2, H_KV * d)) for x, d in (("k", D_K), ("v", D_V))}
    t = run_multi_head(arrays, extra)
    for name, index, words in (
        ("k_extra", (1, 0, 1, 3), "came from extra_k[1,3]"),
        ("d_k_tokens", (1, 0, 4, 2), "came from d_k[1,0,4,2]"),
        ("d_v_extra", (1, 0, 1, 0), "came from d_v[1,0,6,0]"),
    ):
        assert words in t.explain(name, index).replace(", unchanged", "")


class TestWhatIsNotOnRecord:
    def words(self, axes, equation, **operands):
        with trace() as t:
            for name, (own, shape) in operands.items():
                step(name, np.ones(shape), own)
            step("y", np.zeros([3, 4, 5, 6][: len(axes.split())]), axes, equation)
        return t.explain("y", (1,) * len(axes.split()))

    def test_free_text(self):
        assert self.words("T D", "the mean of x near here", x=("T D", (3, 4))) == (
            "y[1,1] was computed by `the mean of x near here`; from which cells is not on record"
        )

    @pytest.mark.parametrize(
        ("axes", "equation", "x"),
        [
            ("T D", "relu(x)", ("T D", (3, 4))),  # a function that is not NumPy's
            ("T D", "np.sort(x)", ("T D", (3, 4))),  # a function that is not cell by cell
            ("T D", "x * 2", ("T F", (3, 7))),  # of another shape
            ("T D", "x @ w", ("T F", (3, 7))),  # w is not on record
            ("T D", "x + noise", ("T D", (3, 4))),
            ("T D", "x[::2]", ("S D", (6, 4))),
            ("T D", "np.divmod(x, 2)[0]", ("T D", (3, 4))),  # which returns two arrays
            ("T D", "np.where(x > 0, x, 0)", ("T D", (3, 4))),  # what hides has no name
            ("T D", "np.where(x, x, x)", ("T D", (3, 4))),
            ("T D", "x[..., x[0] > 0]", ("T D", (3, 4))),
            ("T D", "x.sum(axis=-1, where=x > 0)", ("T D F", (3, 4, 5))),
            ("T D", "x.cumsum(axis=0)", ("T D", (3, 4))),
            ("T D", "x.reshape(T * D, 2).T.reshape(T, D, 2).sum(axis=2)", ("N", (24,))),
        ],
    )
    def test_no_cells_are_guessed(self, axes, equation, x):
        expected = f"y[1,1] was computed from x, by `{equation}`; from which cells is not on record"
        assert self.words(axes, equation, x=x) == expected

    def test_memory_of_another_without_an_equation(self):
        x = np.ones((3, 4))
        with trace() as t:
            step("x", x, "T D")
            step("y", x[::-1], "T D")
        assert t.explain("y", (0, 0)) == (
            "y[0,0] is of a view of x; how it lies there is not on record"
        )

    def test_of_several_forward_passes_backward_may_mean_any(self, rng):
        with trace() as t:
            for q in rng.normal(size=(2, 3, 4)):
                out, cache = attention_forward(q, q.copy(), q.copy())
            attention_backward(rng.normal(size=out.shape), cache)
        assert t.explain("scores", (0, 1)) == "scores[0,1] came from q[0,:] and k[1,:]"
        assert "not on record" in t.explain("d_q", (0, 1))


@pytest.mark.parametrize(
    ("shape", "axes", "equation", "words"),
    [
        ((12,), "N", "x.reshape(T, D)", "same number as x[5]"),
        ((2, 6), "A E", "x.reshape(T, D)", "same number as x[0,5]"),  # 12 numbers, cut elsewhere
        ((3, 2, 2), "T A E", "x.reshape(T, D)", "same number as x[1,0,1]"),
        ((3, 1, 4), "T 1 D", "x.reshape(T, D)", "same number as x[1,0,1]"),
        ((3, 4, 5), "T D F", "x.sum(axis=-1)", "came from x[1,1,:]"),
        ((3, 4, 5), "T D F", "x.max(axis=(2,))", "came from x[1,1,:]"),
        ((4, 3), "D T", "-x.T", "came from x[1,1]"),
        ((3, 4), "T D", "w * (w > x)", "came from w[1,1] and x[1,1]"),
        ((3, 2), "T D", "x.repeat(2, axis=-1) * 1", "came from x[1,0]"),
        ((3, 2), "T D", "2 * x[..., np.arange(4) % 2 - 1]", "came from x[1,0]"),
        ((3, 1), "T 1", "np.ones((3, 4)) * x", "came from x[1,0]"),
        ((3, 4), "T D", "np.matmul(x, x.T) @ x", "came from x[:,:]"),
        ((4,), "D", "np.exp(w) + x", "came from x[1] and w[1,1]"),
        ((3, 5), "T F", "x @ np.exp(b)", "came from x[1,:] and column 1 of b"),
        ((3,), "T", "np.maximum(w, x[..., None])", "came from w[1,1] and x[1]"),
    ],
)
def test_equations_of_ones_own(shape, axes, equation, words):
    with trace() as t:
        step("w", np.ones((3, 4)), "T D")
        constant("b", np.ones((5, 4)), "F D")
        step("x", np.ones(shape), axes)
        step("y", np.ones((3, 4)), "T D", equation)
    assert words.split(" and ")[-1] in t.explain("y", (1, 1))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0), r"index: expected a cell of q, 0 <= B < 2, .*0 <= d_k < 4; got \(0, 0\)"),
        ((0, 0, 5, 0), r"0 <= T_q < 5"),
        ((0, 0, -1, 0), r"0 <= T_q < 5"),
        ((0, 0, 1.5, 0), "index: expected an integer; got 1.5"),
        (3, "index: expected integers; got 3"),
    ],
)
def test_wrong_use(grouped, index, message):
    with pytest.raises(ConfigError, match=message):
        grouped.explain("q", index)


def test_an_input_under_two_names(rng):
    x = rng.normal(size=(3, 4))
    with trace() as t:
        attention_forward(x, x, x)
    same = "k[0,0] is an input; it is the same number as q[0,0], under another name"
    assert t.explain("k", (0, 0)) == same
