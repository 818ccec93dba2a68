"""The story in a real browser: what it says is what the scenes say, and what is changed travels."""

import re

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_forward
from mha_numpy.show.page import stepper
from mha_numpy.show.scenes import still
from mha_numpy.show.scenes.still import Cell
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.example import FEATURES
from mha_numpy.show.walk.page import page_of
from tests.show.scenes.stories import told
from tests.sweeps import sweep

pytestmark = pytest.mark.slow

MINUS = "\N{MINUS SIGN}"
SCENES = ["words", "roles", "scores", "weights", "mix", "join"]
IT, CAT, FISH = 4, 1, 3
DESK = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844, "has_touch": True}
OTHERS = {
    "own": {"text": "to be or not", "heads": 4, "dim": 8},
    "cross": {"text": "the black cat", "cross": "le chat noir dort", "heads": 2, "dim": 8},
    "grouped": {"text": "to be or not", "causal": True, "heads": 4, "kv_heads": 2, "dim": 16},
    "long": {"text": " ".join(f"w{i}" for i in range(32)), "heads": 12, "dim": 24},
}


@pytest.fixture(scope="module")
def seen():
    return walk()


@pytest.fixture(scope="module")
def story(seen):
    return told(seen)


@pytest.fixture(scope="module")
def drawn(seen):
    return page_of(seen)


def other(name):
    options = dict(OTHERS[name])
    return walk(options.pop("text"), **options)


def page_named(name, drawn):
    return drawn if name == "example" else page_of(other(name))


@pytest.fixture
def open_story(show, drawn):
    """Return a function that opens the story of the example."""
    return lambda place="", page=drawn, **options: show(
        page, place, reduced_motion="reduce", **options
    )


SHOWN = """() => {
  const text = (selector) =>
    document.querySelector(selector).innerText.replace(/\\s+/g, " ").trim();
  const rows = [...document.querySelectorAll("#story-stage tbody tr:not(.line, .sum)")];
  return {
    title: text("#story-title"), says: text("#story-says"),
    rows: rows.map((row) => row.querySelector("th").firstChild.textContent),
    cells: [...document.querySelectorAll("#story-stage [data-key]")].map((cell) => [
      cell.dataset.key, cell.ariaLabel, cell.classList.contains("hatched")]),
  };
}"""


def go(page, place):
    page.evaluate(
        """(place) => new Promise((done) => {
          if (location.hash === "#" + place) return done();
          addEventListener("hashchange", () => setTimeout(done), { once: true });
          location.hash = place;
        })""",
        place,
    )


def assert_shows(page, expected):
    """Compare the page with a still: its title, its sentence, its words and its numbers."""
    shown = page.evaluate(SHOWN)
    assert shown["title"] == expected.title
    assert shown["says"] == expected.text
    lines = [line for table in expected.tables for line in table.rows if not line.is_rule]
    assert shown["rows"] == [line.word for line in lines]
    cells = [cell for line in lines for cell in line.cells if isinstance(cell, Cell)]
    assert len(shown["cells"]) == len(cells)
    for (_, label, is_hatched), cell in zip(shown["cells"], cells, strict=True):
        assert is_hatched == cell.is_hidden
        number = re.search(r": ([^:,]+)(, should \w+)?$", label)[1]
        assert number == ("hidden" if cell.is_hidden else cell.text), label


@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_every_scene_says_and_shows_what_its_still_does(open_story, story, back):
    page = open_story()
    for scene in SCENES:
        for word, name in enumerate(story.tokens):
            for head in range(story.num_heads):
                go(page, f"{scene}/{name}/{head}" + "/back" * back)
                assert_shows(page, still(story, scene, word=word, head=head, back=back))
        if scene != "words":
            page.get_by_label("all words").check()
            everything = still(story, scene, word=5, head=1, everything=True, back=back)
            assert_shows(page, everything)
            page.get_by_label("one word").check()


@pytest.mark.parametrize("name", OTHERS)
def test_the_stories_of_other_sentences_are_told_alike(open_story, name):
    seen = other(name)
    story = told(seen)
    page = open_story(page=page_of(seen))
    for scene in SCENES:
        for word in {0, story.opens[0], len(story.tokens) - 1}:
            for back in (False, True):
                head = story.opens[1]
                go(page, f"{scene}/@{word}/{head}" + "/back" * back)
                assert_shows(page, still(story, scene, word=word, head=head, back=back))
    assert "nothing here is trained" in page.locator("#story-note").text_content()


def test_what_is_changed_travels_through_the_scenes_after_it(open_story, seen):
    page = open_story()
    assert page.locator("#story-scenes .moved").count() == 0
    page.get_by_role("button", name="Try: make fish alive").click()
    assert page.locator("#story-scenes .moved").count() == 6
    assert page.get_by_label("Scene 4: Share, changed").count() == 1
    assert page.locator("#story-stage .mine").count() == 1
    assert "It was 0." in page.locator("#story-panel .effect").inner_text()

    def change(inputs):
        inputs["x_q"][0, FISH, FEATURES.index("alive")] = 1

    changed = told(seen, change)
    for scene in SCENES:
        go(page, f"{scene}/It/0")
        assert_shows(page, still(changed, scene, word=IT, head=0))
    assert page.locator("#story-stage .moved").count() > 0
    go(page, "words/It/0")
    page.locator("#story-stage .mine").click()
    page.get_by_role("button", name="Undo", exact=True).click()
    assert page.locator("#story-scenes .moved").count() == 0


def test_a_change_marks_only_what_depends_on_it(open_story):
    page = open_story("mix/It/0")
    page.get_by_role("button", name="Try: let cat give twice as much thing").click()
    moved = page.locator("#story-scenes .moved").all_inner_texts()
    assert moved == ["Ask, offer, give", "Mix", "Join"]
    page.get_by_role("button", name="Undo: let cat give").click()
    assert page.locator("#story-scenes .moved").count() == 0


@pytest.mark.parametrize("scene", SCENES)
def test_every_scene_has_a_change_to_try_that_is_undone(open_story, scene):
    page = open_story(f"{scene}/It/0")
    button = page.locator("#story-try")
    before = page.evaluate(SHOWN)
    button.click()
    assert page.evaluate(SHOWN) != before
    assert button.inner_text().startswith("Undo: ")
    button.click()
    assert page.evaluate(SHOWN) == before


def test_keys_choose_change_and_go_on(open_story):
    page = open_story("scores/It/0")
    chosen = lambda: page.evaluate("document.activeElement.ariaLabel")  # noqa: E731
    page.locator("#story-stage .cell").first.focus()
    assert chosen() == "It asks for: thing: 2"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert chosen() == "The offers: action: 0"
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert chosen() == "The offers: action: 0.2"
    assert page.locator("#story-panel h2").inner_text() == "The offers: action head 0"
    page.keyboard.press("-")
    assert chosen() == "The offers: action: 0.1"
    page.keyboard.press("Backspace")
    assert chosen() == "The offers: action: 0"
    page.keyboard.press("Escape")
    assert page.locator("#story-panel .chosen").is_hidden()
    page.keyboard.press("ArrowRight")  # no cell takes it any more
    assert page.evaluate("location.hash") == "#weights/It/0"
    page.keyboard.press("p")
    page.keyboard.press("p")
    assert page.evaluate("location.hash") == "#roles/It/0"
    assert page.locator("#story-stage [tabindex='0']").count() == 1


def test_the_way_back_has_a_goal_that_small_steps_bring_nearer(open_story, seen):
    page = open_story()
    page.get_by_role("switch", name="Show what should change").check()
    assert page.evaluate("location.hash") == "#join/It/0/back"
    goal = lambda: float(page.locator("#story-aim strong").inner_text())  # noqa: E731
    first = goal()
    assert first == pytest.approx(float((seen.trace["out"] * seen.d_out).sum()), abs=1e-3)
    assert page.locator("#story-stage .pulled").count() == 4  # alive and food, received and new
    for _ in range(5):
        page.get_by_role("button", name="Take a small step").click()
    assert goal() > first + 0.1
    go(page, "roles/It/0/back")
    assert "more here" not in page.locator("#story-says").inner_text()
    page.get_by_label("It asks for: alive").click()
    effect = page.locator("#story-panel .effect").inner_text()
    about, truth = re.findall(r"[+-]\d+(?:\.\d+)?", effect.replace(MINUS, "-"))[1:3]
    assert float(about) == pytest.approx(float(truth), abs=0.006)
    page.get_by_role("button", name="Start again").click()
    assert goal() == first
    assert page.get_by_label("It asks for: alive: 1, should rise").count() == 1


def test_what_belongs_to_a_scene_is_switched_there(open_story):
    page = open_story("weights/It/0")
    page.get_by_label("hide later words").check()
    assert page.locator("#story-stage .hatched").count() == 2  # score and share of purred
    page.get_by_label("hide later words").uncheck()
    page.locator("#story-options input[type=range]").fill("0")
    assert "6 words, 17% each" in page.locator("#story-says").inner_text()
    go(page, "join/It/0")
    page.locator("#story-options").get_by_label("head 0").uncheck()
    says = page.locator("#story-says").inner_text()
    assert "its row has 0 for alive, 0 for food" in says
    assert "While head 0 is off, nothing from it gets through" in says
    go(page, "roles/It/0")
    page.locator("#story-options").get_by_label("What if ...?").select_option("cut-first")
    assert "after the projection" in page.locator("#story-options p").inner_text()


def test_all_arrays_are_a_click_away_and_have_addresses(open_story):
    page = open_story("w_q")
    assert page.locator("#page").is_visible()
    assert page.locator("#story-main").is_hidden()
    page.get_by_role("button", name="The story").click()
    assert page.locator("#page").is_hidden()
    assert page.locator("#story-title").is_visible()
    page.get_by_label("fish: alive: 0").click()
    page.locator("#story-panel summary").click()
    assert page.locator("#story-panel details code").inner_text().startswith("x_q[0, 3, 4]")
    page.get_by_role("button", name="Open this array").click()
    assert page.locator("#page").is_visible()
    assert page.locator("#name").inner_text() == "x_q"
    assert page.locator("#panel h2").inner_text().split("\n") == ["fish: alive", "x_q[0, 3, 4]"]
    page.get_by_role("button", name="The story").click()
    assert page.locator("#story-panel h2").inner_text().startswith("fish: alive")


SIZES = """() => [...document.querySelectorAll("#story *")].filter((element) => element.offsetWidth
  && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
  .map((element) => [element, parseFloat(getComputedStyle(element).fontSize)])
  .map(([element, size]) => [size, element.outerHTML.slice(0, 80)])
  .filter(([size]) => size > 0 && size < 13)"""
TARGETS = """() => [...document.querySelectorAll("#story :is(button, label, select)")]
  .filter((element) => element.offsetWidth && !element.closest(".scrub li, summary")
    && element.offsetHeight < (element.matches(".cell") ? 24 : 44))
  .map((element) => element.outerHTML.slice(0, 80))"""

OUTSIDE = """() => [...document.querySelectorAll("#story :is(button, label, select, input)")]
  .filter((element) => element.offsetWidth && !element.closest(".sentence")
    && element.getBoundingClientRect().right > innerWidth)
  .map((element) => element.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("width", sweep([390, 320, 1280, 768], 0, every=2))
def test_nothing_scrolls_sideways_and_nothing_is_small(open_story, drawn, width):
    size = {"width": width, "height": 844}
    for name in ("example", "own", "long"):
        page = open_story(page=page_named(name, drawn), **size, has_touch=width < 700)
        for scene in SCENES:
            for back in ("", "/back"):
                go(page, f"{scene}/@0/0{back}")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, scene)
                assert page.evaluate(SIZES) == [], (name, scene)
                assert page.evaluate(OUTSIDE) == [], (name, scene)
                if width < 700:
                    assert page.evaluate(TARGETS) == [], (name, scene)


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_scene_is_seen_in_one_window(open_story, size):
    page = open_story(**size)
    tops, heights = set(), set()
    for scene in SCENES:
        for back in ("", "/back"):
            go(page, f"{scene}/It/0{back}")
            page.wait_for_timeout(100)
            assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 1, scene
            tops.add(page.locator(".board").bounding_box()["y"])
            heights.add(page.locator("#story-stage .cell").first.bounding_box()["height"])
        page.locator("#story-back").uncheck()
        button = page.locator("#story-try")
        button.click()
        assert page.evaluate("scrollY") == 0
        button.click()
    go(page, "join/It/0/back")
    page.get_by_role("button", name="Take a small step").click()
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 1
    if size is DESK:
        assert len(tops) == len(heights) == 1
        assert heights.pop() >= 44


def test_arcs_over_the_sentence_follow_what_is_changed(open_story, seen):
    page = open_story("scores/It/0")

    def shares():
        paths = page.locator(".sentence path").all()
        return [
            float(path.evaluate("(path) => path.style.getPropertyValue('--v')")) for path in paths
        ]

    weights = seen.trace["weights"][0, :, IT]
    np.testing.assert_allclose(shares(), np.where(weights < 0.005, 0, weights).ravel(), atol=1e-6)
    page.get_by_role("button", name="Try: give fish the highest score").click()
    head = shares()[: len(weights[0])]
    assert np.argmax(head) == FISH


def test_arcs_follow_words_that_move_when_a_font_arrives(open_story):
    page = open_story("weights/It/0")
    ends = "document.querySelector('#story-words svg path').getAttribute('d')"
    before = page.evaluate(ends)
    page.add_style_tag(content=".sentence { font-family: monospace !important; }")
    page.wait_for_timeout(300)
    assert page.evaluate(ends) != before


def test_the_last_scene_leads_to_the_way_back(open_story):
    page = open_story("mix/cat/1")
    page.get_by_role("button", name="Next scene").click()
    page.get_by_role("button", name="The way back").click()
    assert page.get_by_role("switch").is_checked()
    assert page.evaluate("location.hash") == "#join/It/0/back"
    assert page.locator("#story-next").is_disabled()
    page.get_by_role("switch").uncheck()
    assert page.evaluate("location.hash") == "#join/cat/1"


def moving(page, kind):
    return page.evaluate(
        "(kind) => document.getAnimations().filter((each) => kind in each.effect.getKeyframes()[0]"
        " && each.effect.target.matches('.cell')).length", kind,
    )  # fmt: skip


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_numbers_travel_from_scene_to_scene_and_changes_to_what_follows(show, drawn, motion):
    page = show(drawn, "scores/It/0", reduced_motion=motion)
    page.get_by_role("button", name="Next scene").click()
    assert moving(page, "transform") == (6 if motion != "reduce" else 0)  # the scores
    page.wait_for_timeout(700)
    page.get_by_role("button", name="Try: lower the score of cat").click()
    flying = page.locator("#story-stage .dot").count()
    assert flying == (8 if motion != "reduce" else 0)  # six shares, two scenes
    page.wait_for_timeout(1200)
    assert page.locator(".dot").count() == 0


def test_the_matrix_behind_a_row_opens_as_a_sum(open_story):
    page = open_story("roles/It/0")
    page.get_by_role("button", name="w_q", exact=True).click()
    assert page.evaluate("document.activeElement.dataset.times") == "w_q"
    assert "the columns add up to the new row" in page.locator("#story-says").inner_text()
    assert page.locator("#story-stage .cell").count() == 8 * (1 + 4) + 4
    page.get_by_label("w_q: stand-in to food: 0").click()
    page.locator("#story-panel input[type=number]").fill("3")
    assert page.get_by_label("It asks for: food: 3").count() == 1
    page.get_by_role("radio", name="Head 1").check()
    assert page.get_by_label("w_q: place x to place x: 4").count() == 1
    page.get_by_role("button", name="w_q", exact=True).click()
    assert page.locator("#story-stage .cell").count() == 8 + 12


def test_the_switch_comes_back_and_starting_again_takes_back_every_change(open_story):
    page = open_story("weights/cat/1")
    page.get_by_label("cat looking at ate: ").first.click()
    page.keyboard.press("+")
    page.get_by_role("switch").check()
    assert page.evaluate("location.hash") == "#join/It/0/back"
    page.get_by_role("button", name="Take a small step").click()
    assert "also undoes your own changes" in page.locator("#story-steps").inner_text()
    page.get_by_role("button", name="Start again").click()
    assert page.get_by_role("button", name="Start again").is_disabled()
    page.get_by_role("switch").uncheck()
    assert page.evaluate("location.hash") == "#weights/cat/1"
    assert page.locator("#story-stage .mine").count() == 0


def test_the_goal_is_a_subtraction_of_two_numbers_of_the_row(open_story):
    goal = open_story("join/It/0/back").locator("#story-aim .goal").inner_text()
    assert goal == f"Goal for It: alive {MINUS} food = 0.777 {MINUS} 0.173 = 0.604."


def test_what_was_tried_is_offered_to_be_undone_until_it_is(open_story):
    page = open_story("scores/It/0")
    button = page.locator("#story-try")
    assert button.inner_text() == "Try: give fish the highest score, and watch its share"
    button.click()
    go(page, "weights/It/0")
    go(page, "scores/It/0")
    assert button.inner_text() == "Undo: give fish the highest score"
    page.get_by_label("It looking at fish").click()
    page.locator("#story-panel .undo").click()
    assert button.inner_text().startswith("Try: give fish")


def test_only_a_number_that_is_written_otherwise_is_marked_as_changed(open_story):
    page = open_story("scores/It/0")
    page.get_by_label("It looking at purred").click()
    page.locator("#story-panel input[type=number]").fill("-0.004")
    assert page.get_by_label("It looking at purred: 0.00").count() == 1
    assert page.locator("#story-scenes .moved").all_inner_texts() == ["Compare"]


def test_arrow_keys_change_the_scene_outside_of_fields_and_cells(open_story):
    page = open_story("words/It/0")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == "#roles/It/0"
    page.locator("#story-next").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("location.hash") == "#roles/It/0"
    page.locator("#story-stage .cell").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == "#roles/It/0"


def test_on_all_words_it_is_said_which_rows_have_arrows(open_story):
    page = open_story("scores/It/0/back")
    assert "Only the row of" not in page.locator("#story-says").inner_text()
    page.get_by_label("all words").check()
    assert "Only the row of It has arrows" in page.locator("#story-says").inner_text()
    rows = page.locator("#story-stage tr", has=page.locator(".pulled"))
    assert rows.locator("th").all_inner_texts() == ["It"]


def test_a_zero_that_was_computed_looks_like_a_zero(open_story):
    page = open_story("join/It/0")
    for cell in page.locator("#story-stage .cell").all():
        is_zero = cell.inner_text().strip("0.") == ""
        assert ("nil" in cell.get_attribute("class").split()) == is_zero


def test_an_address_ends_in_only_for_one_scene_in_another_page(open_story):
    page = open_story("scores/It/0/only")
    assert page.locator("#story-stage .cell").count() > 0
    assert page.locator("#story-title").is_visible()
    for hidden in (".scrub", ".brand", "#story-expert", "#story-wish"):
        assert page.locator(hidden).is_hidden()
    page.keyboard.press("n")
    page.get_by_label("cat", exact=True).check()
    assert page.evaluate("location.hash") == "#scores/cat/0/only"


def test_on_a_phone_the_panel_is_a_sheet_above_the_scrubber(open_story):
    page = open_story("scores/It/0", **PHONE)
    page.get_by_label("It looking at purred").click()
    box, bar = page.locator("#story-panel").bounding_box(), page.locator(".scrub").bounding_box()
    assert box["height"] <= 0.46 * PHONE["height"] + 1
    assert box["y"] + box["height"] <= bar["y"] + 2
    page.wait_for_timeout(100)
    cell = page.get_by_label("It looking at purred").bounding_box()
    assert cell["y"] + cell["height"] <= box["y"]
    page.get_by_role("button", name="Close").click()
    assert page.locator("#story-panel").is_hidden()


def test_a_trace_without_x_and_out_is_a_shorter_story_without_a_wish(open_story):
    x = np.random.default_rng(0).normal(size=(3, 4))
    with trace() as t:
        attention_forward(x, x, x)
    page = open_story(page=stepper(t, tokens=["the", "cat", "sat"]))
    scenes = page.locator("#story-scenes li").all_inner_texts()
    assert scenes == ["Ask, offer, give", "Compare", "Share", "Mix"]
    assert page.locator("#story-wish").is_hidden()
    for _ in range(3):
        assert page.locator("#story-stage .cell").count() > 0
        page.get_by_role("button", name="Next scene").click()


def test_a_trace_that_is_no_story_opens_on_its_arrays(open_story):
    with trace() as t:
        attention_forward(*[np.eye(3)] * 3)
        attention_forward(*[np.eye(3)] * 3)
    page = open_story(page=stepper(t))
    assert page.locator("#page").is_visible()
    assert page.locator("#story").is_hidden()


def test_the_story_plays_until_it_is_touched(open_story):
    page = open_story()
    page.clock.install()
    page.get_by_role("button", name="Play the story").click()
    page.clock.fast_forward(5100)
    page.clock.fast_forward(5100)
    assert page.evaluate("location.hash") == "#scores/It/0"
    page.locator("#story-title").click()
    page.clock.fast_forward(20000)
    assert page.evaluate("location.hash") == "#scores/It/0"


def test_in_a_notebook_the_frame_is_as_high_as_the_story(visit, drawn, tmp_path):
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{drawn._repr_html_()}</body>", encoding="utf-8")
    page = visit(
        path.as_uri(), path.as_uri(), "about:srcdoc", viewport={"width": 900, "height": 700}
    )
    frame = page.frame_locator("iframe")
    frame.locator("#story-title").wait_for()
    page.wait_for_timeout(500)
    outer = page.locator("iframe").bounding_box()
    bar = frame.locator(".scrub").bounding_box()
    assert abs(outer["y"] + outer["height"] - bar["y"] - bar["height"]) < 30
    assert frame.locator("#story-stage").bounding_box()["height"] > 200


def column(page, kind):
    """Return what a column has between its numbers, in plain characters."""
    plain = {"\N{NO-BREAK SPACE}": " ", "\N{MULTIPLICATION SIGN}": "*", MINUS: "-", "\n": ""}
    texts = page.locator(f"#story-stage .how.{kind}").all_inner_texts()
    return [text.translate(str.maketrans(plain)) for text in texts]


def test_the_arithmetic_between_numbers_follows_what_is_changed(open_story):
    page = open_story("scores/It/0")
    assert column(page, "sum") == ["sum * 0.5", "0", "6 + 3 = 9", "0", "6", "2", "0"]
    page.get_by_label("It asks for: action: 0").click()
    page.locator("#story-panel input[type=number]").fill("-2")
    assert column(page, "sum")[3] == "-6"
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_label("It looking at fish").click()
    page.keyboard.press("+")
    assert column(page, "sum")[2:5] == ["6 + 3 = 9", "0", "set by you"]
    page.get_by_role("button", name="Undo", exact=True).click()
    go(page, "weights/It/0")
    assert column(page, "power") == ["escore ÷ 115.8", "1", "90.0", "1", "20.1", "2.72", "1"]
    page.get_by_label("hide later words").check()
    assert column(page, "power")[4:] == ["20.1", "2.72", "0"]
    assert column(page, "powers") == ["114.8"]
    go(page, "mix/It/0")
    products = page.locator("#story-stage .made").all_inner_texts()
    assert products[4:8] == ["0.78", "0", "0.78", "0"]
    assert len(products) == 24


def test_on_the_way_back_a_slope_is_worked_out_from_the_next(open_story):
    page = open_story("weights/It/0/back")
    assert column(page, "chain")[1] == "0.78 * (1 - 0.60) = +0.31"
    assert column(page, "average")[-1] == "0.777 - 0.173 = 0.604"
    go(page, "scores/It/0/back")
    assert column(page, "asked") == ["0.92 * 0.5 = +0.462"]
    assert column(page, "sum") == ["slope of alive", "0", "3 * 0.308 = 0.92", "0", "0", "0", "0"]
    page.get_by_label("It asks for: food").click()
    assert column(page, "sum")[0] == "slope of food"
    assert column(page, "asked") == ["-0.83 * 0.5 = -0.417"]


def test_arithmetic_that_is_not_what_happened_is_left_out(open_story):
    x = np.random.default_rng(0).normal(size=(3, 4))
    with trace() as t:
        attention_forward(x, x, x, softcap=1.5)
    page = open_story("weights/@0/0", page=stepper(t, tokens=["the", "cat", "sat"]))
    assert page.locator("#story-stage :is(.power, .powers)").count() == 0
    assert page.locator("#story-stage .sign").all_inner_texts() == ["→"] * 3


def test_a_phone_has_the_sums_but_not_the_products(open_story):
    page = open_story("scores/It/0", **PHONE)
    assert column(page, "sum")[2] == "6 + 3 = 9"
    go(page, "mix/It/0")
    assert page.locator("#story-stage .made").count() == 0
    assert page.locator(".tap span", has_text="less than 0").is_visible()
