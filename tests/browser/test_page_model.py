"""What the page computes with, in a real browser: its arrays, stories, slopes and edits."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import (
    FullMultiHeadParams,
    QKNormOptions,
    RopeOptions,
    attention_backward,
    attention_backward_jvp,
    attention_forward,
    attention_jvp,
    causal_mask,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from mha_numpy.show.page.data import describe_trace, items_of
from mha_numpy.show.template import read
from tests.compare import Tolerance, assert_close
from tests.core.configurations import attention_configuration

pytestmark = pytest.mark.slow

CLOSE = Tolerance(1e-9, 1e-12)
RNG = np.random.default_rng(11)
SEEDS = range(8)


class Problem(NamedTuple):
    """Inputs and params of an attention, to be run with other numbers, too."""

    inputs: dict
    options: dict

    def run(self, **changed):
        """Return everything in the page's order, forward and backward of these numbers."""
        given = self.inputs | changed
        d_out = given.pop("d_out")
        with trace() as t:
            if "w_q" in given:
                params = FullMultiHeadParams(*(given.pop(name, None) for name in NAMES))
                _, cache = multi_head_attention_forward(**given, params=params, **self.options)
                multi_head_attention_backward(d_out, cache)
            else:
                _, cache = attention_forward(**given, **self.options)
                attention_backward(d_out, cache)
        return t


NAMES = FullMultiHeadParams._fields


def layer(D=8, H=4, H_kv=None, d=2, B=1, T_k=None, *, biases=True, more=None, **options):
    """Return a problem of a layer, with more inputs if wanted."""
    H_kv = H_kv or H
    inputs = {"x_q": normal(B, T, D)} | ({} if T_k is None else {"x_k": normal(B, T_k, D)})
    for letter, n in zip("qkvo", (H, H_kv, H_kv, H), strict=True):
        w = normal(D, n * d)
        inputs[f"w_{letter}"] = w.T if letter == "o" else w
    if biases:
        inputs |= {f"b_{letter}": normal(inputs[f"w_{letter}"].shape[1]) for letter in "qkvo"}
    inputs |= {**(more or {}), "d_out": normal(B, T, D)}
    return Problem(inputs, {"num_heads": H, "num_kv_heads": H_kv, **options})


def alone(seed):
    """Return a random problem of attention without projections."""
    inputs, options = attention_configuration(seed)
    if "mask" in options:
        inputs["mask"] = options.pop("mask")
    shape = (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
    return Problem(inputs | {"d_out": normal(*shape)}, options)


def normal(*shape):
    return RNG.normal(size=shape)


T = 5
MASK = RNG.random((T, T)) < 0.7
MASK[1] = False  # sees nothing
HIDING = np.where(RNG.random((T, T)) < 0.3, -np.inf, normal(T, T))
ROPE = RopeOptions()
PROBLEMS = {
    "self": layer(),
    "no biases": layer(biases=False),
    "cross": layer(T_k=3),
    "causal": layer(is_causal=True),
    "window": layer(window=(2, 1)),
    "grouped": layer(H_kv=2),
    "multi-query, cross": layer(H_kv=1, T_k=7, more={"mask": np.tile(MASK, 2)[:, :7]}),
    "softcap and bias": layer(softcap=2.0, more={"bias": normal(4, T, T)}),
    "bias of a head": layer(H_kv=2, more={"bias": normal(4, 1, 1)}),
    "hiding bias": layer(more={"bias": HIDING}),
    "gates": layer(more={"head_gate": normal(4)}),
    "gates of each sequence": layer(B=2, more={"head_gate": normal(2, 4)}),
    "the walk's": layer(more={"mask": causal_mask(T), "head_gate": normal(4)}),
    "mask and causal": layer(is_causal=True, more={"mask": MASK}),
    "rope": layer(rope=ROPE, is_causal=True),
    "part of rope": layer(H=2, d=6, rope=ROPE._replace(rotary_dim=2)),
    "interleaved": layer(H=2, d=4, rope=ROPE._replace(interleaved=True)),
    "part of rope, interleaved, grouped": layer(
        H_kv=2, d=4, B=2, rope=RopeOptions(rotary_dim=2, interleaved=True)
    ),
    "batch": layer(B=2, H_kv=2, is_causal=True, q_offset=np.array([0, 1])),
    "large scores": layer(scale=60.0),
    **{f"attention alone {seed}": alone(seed) for seed in SEEDS},  # ranks 4, 3, 2, and options
    "norms, a gate and a sink": layer(
        H_kv=2,
        d=4,
        rope=ROPE,
        qk_norm=QKNormOptions(),
        more={"gain_q": normal(4), "gain_k": normal(4), "w_gate": normal(8, 4), "sink": normal(4)},
    ),
}


@pytest.fixture(scope="module")
def page(browser):
    """A page that holds the model and nothing else."""
    opened = browser.new_page()
    opened.add_script_tag(content="".join(map(read, ("arrays.js", "equations.js", "trace.js"))))
    opened.add_script_tag(content=HELPERS)
    yield opened
    opened.close()


HELPERS = """
const numbersOfAll = (t) => t.arrays.map(({ data }) => Array.from(data));
const off = (a, b) => (Object.is(a, b) || a === b ? 0 : Math.abs(a - b));
// The largest difference between a cell and its story, of the size of its array.
function worstStory(t) {
  let worst = [0, ""];
  for (const array of t.arrays) {
    const size = Math.max(1, ...array.data.map(Math.abs).filter(Number.isFinite));
    array.data.forEach((value, place) => {
      const told = t.story(array, unflatten(place, array.shape));
      const error = told ? off(told.value, value) / size : 0;
      if (!(error <= worst[0])) worst = [error, array.name];
    });
  }
  return worst;
}
"""


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def assert_equal_to(t, arrays):
    """Check the page's numbers against a trace."""
    for item, numbers in zip(items_of(t)[0], arrays, strict=True):
        assert_close(np.reshape(numbers, item.array.shape), item.array, CLOSE, name=item.name)


def test_every_array_and_every_story_is_the_core_s(page, problem):
    t = problem.run()
    computed, (error, name), is_live = page.evaluate(
        """(given) => {
          const t = openTrace(given);
          return [numbersOfAll(t), worstStory(t), t.isLive];
        }""",
        describe_trace(t),
    )
    assert is_live
    assert_equal_to(t, computed)
    assert error < 1e-9, name


def test_after_edits_it_equals_the_core_on_the_edited_numbers(page, problem):
    rng = np.random.default_rng(3)
    t = problem.run()
    edited, edits = {name: np.array(x) for name, x in problem.inputs.items()}, []
    for name in rng.choice([name for name in edited if name != "d_out"], 6):
        array = edited[name]
        place = int(rng.integers(array.size))
        is_bool = array.dtype == bool
        value = bool(not array.flat[place]) if is_bool else float(rng.normal())
        array.flat[place] = value
        edits.append([str(name), place, float(value)])
    start, changed, (error, name), back = page.evaluate(
        """([given, edits]) => {
          const t = openTrace(given), start = numbersOfAll(t);
          for (const [name, place, value] of edits) t.set(t.byName.get(name), place, value);
          const changed = numbersOfAll(t), worst = worstStory(t);
          t.reset();
          return [start, changed, worst, numbersOfAll(t)];
        }""",
        [describe_trace(t), edits],
    )
    assert_equal_to(problem.run(**edited), changed)
    assert error < 1e-9, name
    for before, after in zip(start, back, strict=True):
        assert_close(after, before, "exact")


def test_a_gradient_is_the_slope_of_the_loss(page, problem):
    """Of inputs, params and everything computed between them and the loss."""
    t = problem.run()
    slopes, is_same = page.evaluate(
        """(given) => {
          const t = openTrace(given), before = t.arrays.map(({ data }) => data.slice());
          const found = [], step = 1e-5;
          for (const array of t.arrays) {
            const gradient = t.gradientOf(array);
            if (!gradient || array.pass === "backward") continue;
            for (let n = 0; n < 6; n++) {
              const place = (n * 7) % array.data.length, value = array.data[place];
              if (!t.isEditable(array, place)) continue;
              const [more, less] = t.lossAt(array.id, place, [value + step, value - step]);
              found.push([array.name, (more - less) / (2 * step), gradient.data[place]]);
            }
          }
          const isSame = ({ data, id }) => data.every((n, i) => Object.is(n, before[id][i]));
          return [found, t.arrays.every(isSame)];
        }""",
        describe_trace(t),
    )
    assert is_same
    names, measured, told = zip(*slopes, strict=True)
    has_layer = "w_q" in problem.inputs
    assert set(names) >= ({"x_q", "w_v", "scores", "merged"} if has_layer else {"q", "v"})
    size = max(1, *map(abs, told))
    for name, slope, gradient in zip(names, measured, told, strict=True):
        assert abs(slope - gradient) < 1e-5 * size, name


def test_a_tangent_is_that_of_forward_mode(page):
    """Of every step after a number of q, k or v, and of the gradients too."""
    problem = alone(0)
    inputs = {name: problem.inputs[name] for name in ("q", "k", "v")}
    t = Problem(inputs | {"d_out": problem.inputs["d_out"]}, {}).run()
    _, cache = attention_forward(**inputs)
    for name, x in inputs.items():
        found = page.evaluate(
            """([given, name]) => {
              const t = openTrace(given), mover = { id: t.byName.get(name), place: 1 };
              const before = t.arrays.map(({ data }) => data.slice());
              const tangents = (of) => Array.from(t.arrays[t.byName.get(of)].data.keys(), (place) =>
                t.tangentAt(mover, { id: t.byName.get(of), place }));
              const names = ["heads", "d_q", "d_k", "d_v"];
              const found = Object.fromEntries(names.map((of) => [of, tangents(of)]));
              const isSame = ({ data, id }) => data.every((n, i) => Object.is(n, before[id][i]));
              const still = t.tangentAt(mover, { id: t.byName.get("d_heads"), place: 0 });
              return { ...found, isSame: t.arrays.every(isSame), still };
            }""",
            [describe_trace(t), name],
        )
        assert found["isSame"]
        assert found["still"] is None or np.isnan(found["still"])
        unit = np.zeros(x.size)
        unit[1] = 1
        tangents = {name: unit.reshape(x.shape)}
        moved = attention_backward_jvp(tangents, problem.inputs["d_out"], cache)
        expected = {"heads": attention_jvp(tangents, cache).out_dot, **moved._asdict()}
        for of in ("heads", "d_q", "d_k", "d_v"):
            # NaN: no change gets there
            measured = np.array([0.0 if n is None else n for n in found[of]])
            measured = np.nan_to_num(measured)
            assert_close(measured, expected[of].ravel(), Tolerance(1e-6, 1e-6), name=of)


def test_an_edit_of_a_computed_number_is_added(page):
    """What comes before it still matters, also for the gradients."""
    problem = PROBLEMS["the walk's"]
    seen = page.evaluate(
        """(given) => {
          const t = openTrace(given), [q, x, d, mask] =
            ["q", "x_q", "d_x", "mask"].map((name) => t.arrays[t.byName.get(name)]);
          const [before, slope] = [q.data[3], d.data[0]];
          t.set(q.id, 3, 7);
          const found = { set: q.data[3], story: t.story(q, unflatten(3, q.shape)).op };
          t.set(q.id, 3, 8);  // once more: not from 7 on
          t.set(x.id, 0, x.data[0] + 1);
          const moved = q.data[3] - 8;
          t.reset(q.id, 3);
          found.moved = q.data[3] - before - moved;
          found.isEdited = [t.isEdited(), (t.reset(), t.isEdited())];
          found.back = [q.data[3] - before, d.data[0] - slope];
          t.setMany(mask.id, [[1, 1], [2, 1]]);
          found.mask = [...mask.data.slice(0, 4)];
          return found;
        }""",
        describe_trace(problem.run()),
    )
    assert abs(seen.pop("moved")) < 1e-12
    assert abs(seen.pop("set") - 7) < 1e-12
    assert seen == {
        "story": "edited", "isEdited": [True, False], "back": [0, 0],
        "mask": [1, 1, 1, 0],
    }  # fmt: skip


def test_a_row_that_comes_to_see_nothing(page):
    """It has no weights, and the page's equations give what the core gives."""
    problem = PROBLEMS["the walk's"]
    computed, (error, name) = page.evaluate(
        """(given) => {
          const t = openTrace(given);
          t.set(t.byName.get("mask"), 0, 0);  // the first token saw itself alone
          return [numbersOfAll(t), worstStory(t)];
        }""",
        describe_trace(problem.run()),
    )
    mask = problem.inputs["mask"].copy()
    mask[0, 0] = False
    assert_equal_to(problem.run(mask=mask), computed)
    assert error < 1e-9, name


def test_what_can_be_edited(page):
    problem = PROBLEMS["part of rope"]
    t = PROBLEMS["causal"].run()
    seen = page.evaluate(
        """([causal, rope]) => {
          const editable = (t) => t.arrays.filter((a) => t.isEditable(a)).map(({ name }) => name);
          const [one, other] = [causal, rope].map(openTrace);
          const hidden = ["scores", "masked", "weights"].map((name) => {
            const array = one.arrays[one.byName.get(name)];
            return [0, 1].map((place) => one.isEditable(array, place));
          });
          return [editable(one), editable(other), hidden];
        }""",
        [describe_trace(t), describe_trace(problem.run())],
    )
    names, of_rope, hidden = seen
    assert set(names) == {item.name for item in items_of(t)[0] if not item.is_backward}
    assert "cos_q" in of_rope
    assert "pairs" not in of_rope
    assert hidden == [[True, True], [True, False], [True, False]]  # place 1 is a later token


def test_what_the_page_cannot_compute_is_shown_and_not_edited(page):
    t = PROBLEMS["self"].run()
    steps = {step.name: place for place, step in enumerate(t.steps)}
    scores = t.steps[steps["scores"]]
    t.steps[steps["scores"]] = replace(scores, equation="np.einsum('bhqd,bhkd->bhqk', q, k)")
    is_live, editable, computed = page.evaluate(
        """(given) => {
          const t = openTrace(given);
          return [t.isLive, t.arrays.some((array) => t.isEditable(array)), numbersOfAll(t)];
        }""",
        describe_trace(t),
    )
    assert (is_live, editable) == (False, False)
    assert_equal_to(t, computed)


SWITCHED = """([given, id]) => {
  const t = openTrace(given), before = numbersOfAll(t);
  t.setSwitch(id);
  const found = numbersOfAll(t), worst = worstStory(t), w = t.arrays[t.byName.get("w_q")];
  const [more, less] = t.lossAt(w.id, 1, [w.data[1] + 1e-5, w.data[1] - 1e-5]);
  const slopes = [(more - less) / 2e-5, t.gradientOf(w).data[1]];
  const w_o = t.arrays[t.byName.get("w_o")];
  t.set(w_o.id, 0, 3);
  t.setSwitch(null);
  const isKept = w_o.data[0] === 3;
  t.reset();
  const isBack = numbersOfAll(t).every((data, k) => data.every((n, i) => n === before[k][i]));
  return { found, worst, slopes, isKept, isBack };
}"""


def own_blocks(w, H):
    """Keep the blocks where a head meets its own part of x."""
    rows, columns = (np.arange(n) // (n // H) for n in w.shape)
    return w * (rows[:, None] == columns)


class TestSwitches:
    @pytest.fixture(params=["grouped", "batch", "part of rope, interleaved, grouped"])
    def layer(self, request):
        return PROBLEMS[request.param]

    @pytest.fixture
    def switched(self, page, layer):
        """A function that returns the arrays under a switch, and checks what holds for all."""
        t = layer.run()
        data = describe_trace(t)

        def switch(name):
            seen = page.evaluate(SWITCHED, [data, name])
            assert seen["worst"][0] < 1e-9
            assert abs(np.subtract(*seen["slopes"])) < 1e-4 * max(1, abs(seen["slopes"][0]))
            assert seen["isKept"]
            assert seen["isBack"]
            return seen["found"]

        return switch

    def test_x_cut_first(self, layer, switched):
        heads = {"q": layer.options["num_heads"]}
        edited = {
            f"w_{x}": own_blocks(
                layer.inputs[f"w_{x}"], heads.get(x, layer.options["num_kv_heads"])
            )
            for x in "qkv"
        }
        assert_equal_to(layer.run(**edited), switched("cut-first"))

    @pytest.mark.parametrize("name", ["no-scale", "by-sqrt-D"])
    def test_scales(self, layer, switched, name):
        scale = 1 if name == "no-scale" else layer.inputs["x_q"].shape[-1] ** -0.5
        other = layer._replace(options={**layer.options, "scale": scale})
        assert_equal_to(other.run(), switched(name))

    def test_head_by_head(self, layer, switched):
        assert_equal_to(layer.run(), switched("head-by-head"))

    def test_shared_keys_and_values(self, layer, switched):
        edited = {}
        for name in ("w_k", "w_v", "b_k", "b_v"):
            of_heads = layer.inputs[name].reshape(*layer.inputs[name].shape[:-1], 2, -1)
            mean = of_heads.mean(axis=-2, keepdims=True).repeat(2, axis=-2)
            edited[name] = mean.reshape(layer.inputs[name].shape)
        assert_equal_to(layer.run(**edited), switched("multi-query"))

    def test_a_latent(self, layer, switched):
        both = np.concatenate([layer.inputs["w_k"], layer.inputs["w_v"]], axis=1)
        down, sizes, up = np.linalg.svd(both, full_matrices=False)
        rank = min(both.shape[1] // 4, 8)
        w_k, w_v = np.split((down[:, :rank] * sizes[:rank]) @ up[:rank], 2, axis=1)
        expected, found = layer.run(w_k=w_k, w_v=w_v), switched("latent")
        for step, array in zip(items_of(expected)[0], found, strict=True):  # columns in float32
            assert_close(np.array(array), step.array.ravel().astype(float), "float32")

    def test_a_sink(self, layer, switched):
        t = layer.run()
        found = dict(zip([s.name for s in items_of(t)[0]], switched("sink"), strict=True))
        other = layer._replace(options={**layer.options, "sink": np.zeros(4)}).run()
        for name in ("weights", "out", "d_scores", "d_w_q", "d_w_v"):
            assert_close(np.array(found[name]), other[name].ravel(), CLOSE)

    def test_without_the_transpose(self, layer, switched):
        t = layer.run()
        arrays = dict(zip([s.name for s in items_of(t)[0]], switched("no-transpose"), strict=True))
        for letter in "qkv":
            name = f"{letter}_unrotated" if f"{letter}_unrotated" in arrays else letter
            assert_close(arrays[name], t[f"{letter}_projected"].ravel(), CLOSE)
            other = arrays[f"d_{letter}_by_token"]
            assert_close(arrays[f"d_{name}"], np.array(other), CLOSE)


def test_a_window(page):
    problem = PROBLEMS["causal"]
    found = page.evaluate(SWITCHED, [describe_trace(problem.run()), "window-2"])["found"]
    names = [s.name for s in items_of(problem.run())[0]]
    other = problem._replace(options={**problem.options, "window": (1, None)}).run()
    for name in ("visible", "weights", "out", "d_w_k"):
        assert_close(np.array(found[names.index(name)]), other[name].ravel().astype(float), CLOSE)


def test_what_a_switch_passes_by_is_not_edited(page):
    t = PROBLEMS["self"].run()
    editable = page.evaluate(
        """(given) => {
          const t = openTrace(given), names = ["q_projected", "q_by_token", "q"];
          const look = () => names.map((name) => t.isEditable(t.arrays[t.byName.get(name)]));
          return [look(), (t.setSwitch("head-by-head"), look()), (t.setSwitch(null), look())];
        }""",
        describe_trace(t),
    )
    assert editable == [[True] * 3, [False, False, True], [True] * 3]


def test_where_x_has_no_part_for_each_head_it_cannot_be_cut_first():
    odd, cross = layer(D=9), layer(D=8, T_k=3)
    ids = [[switch["id"] for switch in describe_trace(p.run())["switches"]]
           for p in (odd, cross, PROBLEMS["attention alone 0"])]  # fmt: skip
    today = ["grouped", "multi-query", "latent", "sink"]  # there is no mask, so no window
    assert ids == [
        ["no-transpose", "head-by-head", "by-sqrt-D", "no-scale", *today],
        ["cut-first", "no-transpose", "head-by-head", "by-sqrt-D", "no-scale", *today],
        [],
    ]
