"""The page of a trace as its readers use it: edits, motion, words, keys, phone, in the dark."""

import re
from dataclasses import asdict

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import causal_mask, step
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.page import stepper
from mha_numpy.show.page.data import describe_trace
from mha_numpy.show.page.document import Page, document
from mha_numpy.show.page.widget import SCRIPTS, STYLES
from mha_numpy.show.template import read
from tests.compare import Tolerance, assert_close

pytestmark = pytest.mark.slow

TOKENS = ["the", "cat", "sat"]
SHOWN = Tolerance(0.0, 0.0051)  # two decimals are written
LOSS = Tolerance(0.0, 0.0011)
RNG = np.random.default_rng(5)
X = np.round(RNG.normal(size=(1, 3, 4)), 1)
D_OUT = np.round(RNG.normal(size=(1, 3, 4)), 1)


def layer():
    made = MultiHeadAttention(4, 2, rng=3)
    for _, param in made.named_params():
        param[...] = np.round(param + 0.1, 1)
    return made


def run(change=None, *, x=X, mask=None, gate=(1.0, 1.0)):
    """Record the layer, forward and backward, with other numbers; return arrays by name."""
    made = layer()
    if change:
        change(made.params)
    with trace() as t:
        made(x, mask=np.ones((3, 3), bool) if mask is None else mask, head_gate=np.array(gate))
        made.backward(D_OUT)
    return t


@pytest.fixture(scope="module")
def drawn():
    return stepper(run(), tokens=TOKENS, note="These params are random.")


@pytest.fixture
def within(visit, tmp_path):
    """Return a function that opens the page of a trace, and leaves what it returns in `page`."""

    def opened():
        html = document("two views", read("page.html"), describe_trace(run()), styles=STYLES,
                        scripts=SCRIPTS, start="window.page = startPage(data);")  # fmt: skip
        path = tmp_path / "within.html"
        path.write_text(html, encoding="utf-8")
        return visit(path.as_uri(), path.as_uri())

    return opened


@pytest.fixture
def open_page(show, drawn):
    """Return a function that opens the page of a trace."""

    def opened(name="", page=drawn, **options):
        view = show(page, name, **options)
        if not name and view.locator("#story").is_visible():
            view.get_by_role("button", name="All arrays").click()
        shown(view)  # at its size
        return view

    return opened


def go(page, name):
    """Open an array by its card, or by its address where it has none."""
    link = page.locator(f"#map a[href='#{name}']")
    if link.is_visible():
        link.click()
    else:
        page.evaluate("name => { location.hash = name; }", name)
        page.wait_for_function(f"document.getElementById('name').textContent === '{name}'")


def go_to_first_number(page):
    """Move to the number at the top left."""
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowUp")


def shown(page):
    """Return the names of the arrays that are on the map, once it is painted."""
    return page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(
          [...document.querySelectorAll("#map a")].filter((link) => link.offsetParent)
            .map((link) => link.dataset.name)))))"""
    )


def numbers(page, name):
    """Return an array as the table of the page has it: one row after the other."""
    go(page, name)
    page.locator("#table").evaluate("details => { details.open = true; }")
    texts = page.locator("#numbers td").all_inner_texts()
    return np.array([float(plain(text).replace("∞", "inf")) for text in texts])


def plain(text):
    """Write a minus as programs do."""
    return text.replace("\N{MINUS SIGN}", "-")


def loss(page):
    return float(re.search(r"= (-?[\d.]+)", plain(page.locator("#loss").inner_text()))[1])


PARTS = {
    "cell": "h2 code", "words": "h2", "arithmetic": ".sum", "editor": ".edit", "undo": ".undo",
    "field": "input[type=number]", "slope-words": ".effect span", "readers": ".readers",
    "close": ".close",
}  # fmt: skip


def part(page, name):
    """Return a part of the panel of one number."""
    return page.locator(f"#panel {PARTS[name]}")


def picture(page):
    return page.locator("#cells").evaluate("canvas => canvas.toDataURL()")


def assert_shows_core(page, t):
    """Compare what the page computed anew with the core."""
    for name in ("weights", "out", "d_w_q", "d_x"):
        assert_close(numbers(page, name), t[name].ravel(), SHOWN)
    assert_close(loss(page), float((t["out"] * D_OUT).sum()), LOSS)


def test_an_edited_number_changes_everything_after_it_until_it_is_as_it_was(open_page):
    page = open_page("w_q")
    page.locator("#cells").focus()
    go_to_first_number(page)
    assert part(page, "cell").inner_text() == "w_q[0, 0]"
    page.keyboard.press("Enter")
    page.keyboard.type("2.5")

    def change(params):
        params["w_q"][0, 0] = 2.5

    assert "arrays changed. goal L = " in page.locator("#spoken").text_content()
    assert_shows_core(page, run(change))
    go(page, "w_q")
    part(page, "field").press("Escape")
    go_to_first_number(page)
    part(page, "undo").click()
    assert_shows_core(page, run())


def test_a_number_says_how_fast_it_moves_while_the_last_changed_one_does(open_page):
    page = open_page("w_q")
    page.locator("#cells").focus()
    go_to_first_number(page)
    assert "Tangent" not in part(page, "slope-words").inner_text()
    page.keyboard.press("+")
    assert "Tangent" not in part(page, "slope-words").inner_text()  # of itself
    go(page, "out")
    page.locator("#cells").focus()
    page.keyboard.press("ArrowRight")
    words = plain(part(page, "slope-words").inner_text())
    shown = re.search(r"Tangent ([+-][\d.]+): how fast it moves while w_q\[0, 0\] grows\.", words)
    row, column = map(int, re.findall(r"\d+", part(page, "cell").inner_text())[-2:])

    def out(by):
        def change(params):
            params["w_q"][0, 0] += by

        return run(change)["out"]

    slope = (out(0.1 + 1e-6) - out(0.1 - 1e-6)) / 2e-6
    assert_close(float(shown[1]), slope[0, row, column], Tolerance(0.0, 1e-2))
    go(page, "v")
    page.locator("#cells").focus()
    page.keyboard.press("ArrowRight")
    assert "Tangent" not in part(page, "slope-words").inner_text()  # w_q does not reach it


def test_an_edit_of_a_computed_number_is_added_and_said(open_page):
    page = open_page("scores")
    box = page.locator("#cells").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 3)
    before = float(part(page, "field").input_value())
    page.locator("#cells").focus()
    page.keyboard.press("+")
    assert_close(float(part(page, "field").input_value()), before + 0.1, Tolerance(0.0, 1e-3))
    assert "+ 0.1 added by you" in part(page, "arithmetic").inner_text()
    page.keyboard.press("Backspace")
    assert "added by you" not in part(page, "arithmetic").inner_text()
    page.keyboard.press("+")
    page.get_by_role("button", name="Start again").click()
    assert_shows_core(page, run())


def test_heads_causality_and_scale_are_switched(open_page):
    page = open_page()
    page.get_by_role("checkbox", name="head 1").uncheck()
    assert_shows_core(page, run(gate=(1.0, 0.0)))
    page.get_by_role("checkbox", name="head 1").check()
    page.get_by_label("causal").check()
    assert_shows_core(page, run(mask=causal_mask(3, 3)))
    page.get_by_label("causal").uncheck()
    assert_shows_core(page, run())
    page.get_by_role("slider", name="scale").fill("0")
    assert_close(numbers(page, "weights"), np.full(18, 1 / 3), SHOWN)
    assert_close(numbers(page, "d_q"), np.zeros(12), SHOWN)


def test_another_view_shares_the_trace_and_hears_of_every_change(within):
    page = within()
    heard = page.evaluate(
        """() => {
          const { trace, change, edit, undo, reset, setSwitch, open, controls } = page;
          const [view, heard] = [document.getElementById("page"), []];
          const w_q = trace.byName.get("w_q");
          const nameOf = (id) => trace.arrays[id].name;
          change((differing) => heard.push([...differing].map(nameOf)));
          view.hidden = true;
          edit(w_q, 0, 2.5);
          undo(w_q, 0);
          controls.set("causal", true);
          reset();
          setSwitch("no-scale");
          setSwitch(null);
          open(trace.byName.get("d_w_q"), 0);
          view.hidden = false;
          return heard;
        }"""
    )
    assert [bool(names) for names in heard] == [True] * 6
    assert heard[0] == heard[1]
    assert {"w_q", "scores", "d_x"} <= set(heard[0])
    assert "w_q" not in heard[2]
    assert {"weights", "out"} <= set(heard[2])
    assert page.locator("#name").inner_text() == "d_w_q"
    page.wait_for_function("document.getElementById('cells').clientWidth > 500")
    assert_shows_core(page, run())


WORDS = """() => {
  window.words = [];
  window.painted = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (this.canvas.id === "cells") {
      window.words.push([text, x, y]);
      const { width } = this.measureText(text);
      const left = x - { left: 0, center: width / 2, right: width }[this.textAlign];
      window.painted.push({ text, left, right: left + width, font: this.font });
    }
    fillText.call(this, text, x, y);
  };
}"""


def words_painted(page, action, milliseconds):
    """Return every word that the stage paints after an action, and where."""
    page.evaluate(WORDS)
    action()
    page.wait_for_timeout(milliseconds)
    return page.evaluate("() => window.words")


@pytest.mark.parametrize("name", ["q_by_token", "q", "merged"])
def test_each_number_moves_from_its_old_place_to_its_new_one(open_page, name):
    page = open_page(name)
    still = words_painted(page, lambda: page.keyboard.press("ArrowLeft"), 200)
    arrived = picture(page)
    places = {}
    for word, *place in still:
        places.setdefault(word, set()).add(tuple(place))
    ends = {word: sorted(two) for word, two in places.items() if "." in word and len(two) == 2}
    assert len(ends) >= 5

    on_the_way = 0
    for word, *place in words_painted(page, page.locator("#again").click, 4000):
        if word in ends:
            (a, b), at = np.array(ends[word]), np.array(place)
            share = (at - a) @ (b - a) / ((b - a) @ (b - a))
            assert_close(at, a + share * (b - a), Tolerance(0.0, 1.0))
            on_the_way += 0.05 < share < 0.95
    assert on_the_way > 5
    assert picture(page) == arrived


def test_a_motion_can_be_interrupted_and_is_left_out_where_less_is_asked_for(open_page):
    page = open_page("q_by_token", reduced_motion="reduce")
    arrived = picture(page)
    page.locator("#again").click()
    page.wait_for_timeout(300)
    assert picture(page) == arrived

    page = open_page("q_by_token")
    page.locator("#again").click()
    page.wait_for_timeout(50)
    page.keyboard.press("Escape")  # stops the motion; the cell stays chosen
    page.wait_for_timeout(300)
    assert picture(page) == arrived


def test_the_arithmetic_of_a_product_is_right(open_page):
    page = open_page("q_projected")
    told = part(page, "arithmetic").inner_text()
    left, right = plain(told).replace("·", "*").replace("+ -", "-").rsplit("=", 1)
    index = eval(part(page, "cell").inner_text().removeprefix("q_projected"))
    assert len(re.findall(r"\*", left)) == 4
    assert_close(eval(left), run()["q_projected"][tuple(index)], SHOWN)
    assert_close(float(right), eval(left), SHOWN)
    assert re.match(r"(the|cat|sat): number \d, head \d\n", part(page, "words").inner_text())


def test_the_arithmetic_of_softmax_has_the_powers_and_their_sum(open_page):
    page = open_page("weights")
    told = part(page, "arithmetic")
    powers = [float(plain(power)) for power in told.locator("sup").all_inner_texts()]
    weight = float(told.locator("b").inner_text())
    assert len(powers) == 4
    assert_close(np.exp(powers[0]) / np.exp(powers[1:]).sum(), weight, Tolerance(0.0, 0.02))


def test_what_is_long_is_shortened_with_its_count(open_page):
    made = MultiHeadAttention(32, 2, rng=0)
    with trace() as t:
        made(RNG.normal(size=(1, 2, 32)))
    page = open_page("q_projected", stepper(t))
    assert "… 22 more terms …" in part(page, "arithmetic").inner_text()


def test_a_number_in_the_arithmetic_leads_to_its_cell(open_page):
    page = open_page("weights")
    source = part(page, "arithmetic").locator("[role=link]").first
    name = source.get_attribute("title").partition(":")[0]
    before = picture(page)
    source.hover()
    page.wait_for_timeout(100)
    assert picture(page) != before
    source.click()
    assert part(page, "cell").inner_text() == name
    assert page.locator("#name").inner_text() == "scores"


def test_a_number_that_only_moved_shows_how_it_came_about_and_leads_back(open_page):
    page = open_page("q")
    value = part(page, "arithmetic").locator("b").inner_text()
    assert len(part(page, "arithmetic").locator("[role=link]").all()) == 9
    assert part(page, "readers").inner_text().startswith("It only moved here from q_by_token.")
    part(page, "readers").get_by_role("button", name="q_by_token").click()
    assert page.locator("#name").inner_text() == "q_by_token"
    assert part(page, "arithmetic").locator("b").inner_text() == value


def test_a_gradient_is_a_slope(open_page):
    page = open_page("x_q")
    name = part(page, "cell").inner_text()
    index = tuple(eval(name.removeprefix("x_q")))
    told = plain(part(page, "slope-words").inner_text())
    about, truth = map(float, re.findall(r"by (?:about )?([+-][\d.]+\d)", told))
    moved = X.copy()
    moved[index] += 0.1
    t = run()
    changed = ((run(x=moved)["out"] - t["out"]) * D_OUT).sum()
    assert_close(about, 0.1 * t["d_x"][index], Tolerance(0.0, 6e-4))
    assert_close(truth, float(changed), Tolerance(0.0, 6e-4))
    page.locator("#cells").focus()
    page.keyboard.press("g")
    assert page.locator("#name").inner_text() == "d_x"
    assert part(page, "cell").inner_text() == name.replace("x_q", "d_x")


def test_all_arrays_by_the_keyboard(open_page):
    page = open_page("", reduced_motion="reduce")
    page.get_by_label("every step").check()
    on_map = [array["name"] for array in describe_trace(run())["arrays"]]
    assert set(shown(page)) == set(on_map)
    go(page, "x_q")
    found = [page.locator("#name").inner_text()]
    for _ in on_map[1:]:
        page.keyboard.press(".")
        found.append(page.locator("#name").inner_text())
        assert page.url.endswith(f"#{found[-1]}")
    assert found == on_map
    page.keyboard.press(",")
    assert page.locator("#name").inner_text() == found[-2]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "cells"
    assert page.locator("#number").is_hidden()  # no cell is chosen
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.name") == found[-2]


def test_what_does_nothing_is_not_shown_as_a_source_either(open_page):
    page = open_page("weights")
    words = {word for word, *_ in words_painted(page, lambda: page.keyboard.press("ArrowUp"), 200)}
    assert "scores" in words
    assert "masked" not in words
    assert "np.exp(scores)" in page.locator("#equation").inner_text()
    part(page, "arithmetic").locator("[role=link]").first.click()
    assert page.locator("#name").inner_text() == "scores"
    assert part(page, "readers").inner_text() == "It goes into weights."
    page.get_by_label("causal").check()
    assert part(page, "readers").inner_text() == "It goes into masked."


def test_the_map_leaves_out_what_does_nothing_until_it_does_something(open_page):
    page = open_page()
    forward = ["x_q", *[f"{kind}_{x}" if kind else x for x in "qkv" for kind in ("w", "b", "")],
               "scale", "scores", "weights", "heads", "w_o", "b_o", "out"]  # fmt: skip
    gradients = {"d_x", "d_out", *(f"d_{name}" for name in forward if name not in ("x_q", "scale"))}
    assert [name for name in shown(page) if name[:2] != "d_"] == forward
    assert {name for name in shown(page) if name[:2] == "d_"} == gradients
    page.get_by_label("gradients", exact=True).uncheck()
    assert shown(page) == forward

    page.get_by_label("causal").check()
    assert set(shown(page)) == {*forward, "mask", "masked"}
    page.get_by_role("checkbox", name="head 1").uncheck()
    assert set(shown(page)) == {*forward, "mask", "masked", "head_gate", "gated"}
    changed = page.locator("#map a.changed").evaluate_all(
        "all => all.map(({ dataset }) => dataset.name)"
    )
    assert "weights" in changed
    assert "w_q" not in changed
    page.get_by_role("button", name="Start again").click()
    assert shown(page) == forward
    assert page.locator("#map a.changed").count() == 0

    page.get_by_label("every step").check()
    arrays = describe_trace(run())["arrays"]
    assert set(shown(page)) == {each["name"] for each in arrays if each["pass"] != "backward"}


@pytest.mark.parametrize("sequence", [0, 1])
def test_it_opens_at_the_largest_gradient_of_the_sequence(open_page, sequence):
    made = layer()
    with trace() as t:
        made(RNG.normal(size=(2, 3, 4)))
        made.backward(RNG.normal(size=(2, 3, 4)))
    page = open_page("", stepper(t, sequence=sequence))
    go(page, "scores")
    shown = np.abs(t["d_scores"][sequence])
    index = np.unravel_index(shown.argmax(), shown.shape)
    assert part(page, "cell").inner_text() == f"scores[{', '.join(map(str, (sequence, *index)))}]"


def test_a_number_is_a_tab_away_and_each_group_is_one(open_page):
    page = open_page()
    page.keyboard.press("Tab")  # from the button that opened all arrays
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.id") == "cells"
    assert part(page, "cell").inner_text().startswith("scores[")
    for group in ("#map", "#tabs", "#number .sum"):
        assert page.locator(f"{group} [tabindex='0']").count() == 1
    page.locator("#map [tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.name") == "d_scores"
    page.keyboard.press("Enter")
    assert page.locator("#name").inner_text() == "d_scores"


def test_columns_have_names_where_they_mean_something(show):
    from mha_numpy.show.walk.example import MEANING, example_setting

    setting = example_setting()
    with trace() as t:
        setting.layer(setting.inputs["x_q"])
    data = {**describe_trace(t), "tokens": setting.tokens, "features": setting.features,
            "story": {"meaning": asdict(MEANING)}}  # fmt: skip
    html = document("x", read("page.html"), data, styles=STYLES, scripts=SCRIPTS,
                    start="startPage(data);")  # fmt: skip
    page = show(Page(html, ""), "q_projected", width=1600)
    words = words_painted(page, lambda: page.keyboard.press("Escape"), 200)
    assert {word for word, *_ in words} >= {*setting.tokens, *setting.features, *MEANING.matched[0]}
    named = "|".join(name for names in MEANING.matched for name in names)
    assert re.search(f": ({named}), head", part(page, "words").inner_text())


def test_no_word_is_smaller_than_13_pixels_and_no_number_smaller_than_11(open_page, wide):
    """A cell that says 4.5 in small type teaches more than an empty one."""
    for name in ("", "scores", "q_projected", "weights"):
        for width in (390, 1280):
            page = open_page(name, wide, width=width)
            sizes = page.evaluate(
                """() => {
                  const hasWords = (node) => node.nodeType === 3 && node.textContent.trim();
                  return [...document.querySelectorAll("#page *")]
                    .filter((each) => [...each.childNodes].some(hasWords))
                    .map((each) => [each.outerHTML, parseFloat(getComputedStyle(each).fontSize)]);
                }"""
            )
            words_painted(page, lambda page=page: page.keyboard.press("ArrowLeft"), 200)
            for painted in page.evaluate("() => window.painted"):
                sizes.append((painted["text"], size(painted["font"])))
            least = [11 if re.fullmatch("[\N{MINUS SIGN}.\\d]+", text) else 13 for text, _ in sizes]
            assert [each for each, px in zip(sizes, least, strict=True) if each[1] < px] == []


def test_the_axes_of_weights_and_the_meaning_of_a_mask_are_written_on_the_stage(open_page):
    page = open_page("weights")
    words = {word for word, *_ in words_painted(page, lambda: go(page, "masked"), 500)}
    assert words >= {"row = query, column = key", "True = may attend", *TOKENS}


def size(font):
    """Return the pixels of a font."""
    return float(re.search(r"([\d.]+)px", font)[1])


def test_all_fractions_of_an_array_have_the_same_decimals_and_all_numbers_the_same_size(open_page):
    with trace() as t:
        step("x", np.array([[-0.001, 0.4, 3.0], [-0.41, 0.0, -2.5]]), "T_q D")
    page = open_page("x", stepper(t))
    words_painted(page, lambda: page.keyboard.press("ArrowLeft"), 200)
    painted = page.evaluate("() => window.painted")
    cells = {each["text"]: size(each["font"]) for each in painted if "." in each["text"]}
    assert min(cells.values()) >= 13
    assert {plain(text) for text in cells} == {"0.00", "0.40", "-0.41", "-2.50"}
    assert {"0", "3"} <= {each["text"] for each in painted}
    assert len(set(cells.values())) == 1


SENTENCE = [
    "The", "animal", "didn't", "cross", "the", "street", "because",
    "it", "was", "too", "tired",
]  # fmt: skip


@pytest.fixture(scope="module")
def wide():
    made = MultiHeadAttention(16, 4, rng=3)
    with trace() as t:
        made.backward(made(RNG.normal(size=(1, 11, 16))))
    return stepper(t, tokens=SENTENCE)


@pytest.mark.parametrize("name", ["scores", "weights", "heads"])
def test_the_stage_is_labelled_and_stays_as_large_after_a_question(open_page, wide, name):
    page = open_page(name, wide, reduced_motion="reduce")
    pressed = page.locator("#tabs [aria-pressed=true]")
    assert "head " in pressed.inner_text()  # all four together have no room for their numbers
    page.get_by_role("button", name="all heads").click()
    size = "() => [cells.width, cells.height]"
    before = page.evaluate(size)
    menu = page.get_by_label("What if ...?")
    for act in (
        lambda: menu.select_option(index=2),
        page.get_by_role("button", name="Start again").click,
    ):
        words = {word for word, *_ in words_painted(page, act, 200)}
        assert page.evaluate(size) == before
        assert words >= {*SENTENCE, "● head 0", "◆ head 3"}
        for each in page.evaluate("() => window.painted"):
            assert 0 <= each["left"] < each["right"] <= before[0], each
    assert page.evaluate("() => scrollY") == 0
    page.locator("#tabs button").nth(1).click()
    assert pressed.all_inner_texts() == ["\N{BLACK CIRCLE} head 0"]


def test_a_mask_is_told_in_words(open_page):
    page = open_page("masked")
    page.get_by_label("causal").check()
    page.locator("#cells").focus()
    for key in [*["ArrowUp", "ArrowLeft"] * 6, "ArrowRight"]:
        page.keyboard.press(key)
    told = part(page, "arithmetic").inner_text()
    assert told.strip() == "hidden, so it becomes \N{MINUS SIGN}\N{INFINITY}"
    part(page, "arithmetic").locator(".number").first.hover()
    page.get_by_label("causal").uncheck()
    told = part(page, "arithmetic").inner_text()
    assert re.fullmatch(r"visible, so the number stays: -?\d\.\d\d", plain(told).strip())


def test_the_dark_is_dark(open_page):
    light, dark = (open_page("scores", color_scheme=scheme) for scheme in ("light", "dark"))
    shade = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    assert light.evaluate(shade) > 240
    assert dark.evaluate(shade) < 40
    assert picture(light) != picture(dark)


def test_a_phone_shows_one_head_and_never_scrolls_sideways(open_page):
    page = open_page("x_q", width=380, height=800, has_touch=True, reduced_motion="reduce")
    wide = "() => document.documentElement.scrollWidth"
    for _ in range(page.locator("#map a").count() - 1):
        assert page.evaluate(wide) <= 380, page.locator("#name").inner_text()
        page.locator("#cells").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("#panel").bounding_box()["height"] <= 0.44 * 800 + 1
        page.keyboard.press(".")
    page.evaluate("() => { location.hash = 'weights'; }")
    tabs = page.locator("#tabs button")
    assert tabs.all_inner_texts() == ["● head 0", "■ head 1"]
    tabs.nth(1).tap()
    page.locator("#cells").focus()
    page.keyboard.press("ArrowLeft")
    assert part(page, "cell").inner_text().startswith("weights[0, 1, ")


def test_an_array_is_in_sight_at_once_and_its_gradient_beside_it(open_page):
    page = open_page("scores", height=800)
    box = page.locator("#cells").bounding_box()
    assert box["y"] < 280
    assert box["y"] + box["height"] < 800
    assert page.locator("#map").bounding_box()["x"] < box["x"]
    own, twin = (page.locator(f"#map a[href='#{name}']") for name in ("scores", "d_scores"))
    assert own.get_attribute("aria-current") == "true"
    assert own.bounding_box()["y"] + own.bounding_box()["height"] < 800
    assert twin.bounding_box()["y"] == own.bounding_box()["y"]


def test_on_a_phone_the_panel_comes_where_a_number_is_chosen_and_leaves_room(open_page, wide):
    size = {"width": 390, "height": 844}
    page = open_page("d_scores", wide, **size, has_touch=True, reduced_motion="reduce")
    panel = page.locator("#panel")
    assert panel.is_hidden()
    box = page.locator("#cells").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] * 0.75, box["y"] + min(200, box["height"] * 0.3))
    assert part(page, "editor").is_visible()
    assert panel.bounding_box()["height"] <= 0.4 * 844
    assert panel.evaluate("panel => panel.scrollHeight - panel.clientHeight") <= 0  # all is seen
    part(page, "close").tap()
    assert panel.is_hidden()


def test_on_a_phone_the_button_to_the_next_array_stays_under_the_finger(open_page, wide):
    page = open_page("x_q", wide, width=390, height=844, has_touch=True)
    for _ in range(12):
        page.locator("#next").tap(timeout=2000)
        page.wait_for_timeout(50)
        assert 0 <= page.locator("#next").bounding_box()["y"] < 300
    assert page.evaluate("() => scrollY") > 0 or page.locator("#cells").bounding_box()["y"] < 300


def test_where_the_page_cannot_compute_everything_nothing_is_edited(open_page):
    with trace() as t:
        x = step("x", RNG.normal(size=(3, 4)), "T_q D")
        step("y", np.sort(x), "T_q D", "np.sort(x)")
    page = open_page("", stepper(t))
    assert "cannot compute" in page.locator("#controls").inner_text()
    assert part(page, "editor").is_hidden()
    page.locator("#cells").focus()
    page.keyboard.press("+")
    page.keyboard.press("Enter")
    assert re.search("It was recorded|was given", part(page, "arithmetic").inner_text())


def test_wide_arrays_fit_into_a_phone(open_page):
    made = MultiHeadAttention(200, 2, rng=3)
    with trace() as t:
        made.backward(made(RNG.normal(size=(1, 3, 200))))
    page = open_page("w_q", stepper(t, tokens=TOKENS), width=390, height=844)
    box = page.locator("#cells").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2 + 99, box["y"] + 60)  # a pixel for each number
    assert re.fullmatch(r"w_q\[\d+, 199\]", part(page, "cell").inner_text())
