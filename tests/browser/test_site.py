"""The built website in a browser: both themes, a phone, the keyboard, nothing from elsewhere."""

import re

import pytest

from tests.browser.conftest import served
from tests.docs.test_site import BUILT, SITE, is_ours

pytestmark = BUILT

PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if is_ours(path) and "_modules" not in path.parts  # they are all alike
)
ALIKE = "api/(?!index|core)|notebooks/(?!0[0-5])"  # pages of a kind of which others are tested
WIDTHS = (768, 390, 320)
LEAST = 11  # px, of any text; indices in formulas may be smaller
LANDING = 400_000  # bytes of the first page with all that it loads
TOO_SMALL = """least => {
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), element = texts.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest("math, script, style")) continue;
    const size = parseFloat(getComputedStyle(element).fontSize) * (element.getScreenCTM?.().a ?? 1);
    if (size > 0 && size < least) found.push(text);  // no size at all: only for screen readers
  }
  return found;
}"""


@pytest.fixture(scope="module")
def address():
    """Serve the site from this machine."""
    with served(SITE) as address:
        yield address


@pytest.fixture
def open_page(visit, address):
    """Return a function that opens a page of the site, which asks no other host."""

    def opened(name, **options):
        here = (address, "data:", "blob:", "about:")
        return visit(f"{address}{name}", *here, may_say=("debug", "info", "log"), **options)

    return opened


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_small_windows_and_asks_no_other_host(open_page, name):
    page = open_page(name, color_scheme="dark")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(TOO_SMALL, LEAST) == []


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("name", [name for name in PAGES if not re.match(ALIKE, name)])
def test_a_page_is_open_to_everyone(open_page, name, theme, width):
    """As axe-core checks it: contrast, names for screen readers, order of headings, keyboard."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    size = {"width": width, "height": 800}
    page = open_page(name, color_scheme=theme, viewport=size)
    asked = {"resultTypes": ["violations"], "preload": False}  # it would ask for more than a reader
    found = axe.Axe().run(page, options=asked).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"]) for each in grave] == []


def test_the_first_page_is_light(visit, address, browser):
    loaded = []
    page = browser.new_context().new_page()
    page.on("response", lambda response: loaded.append(len(response.body())))
    page.goto(f"{address}index.html")
    page.wait_for_load_state("networkidle")
    page.context.close()
    assert len(loaded) > 4
    assert sum(loaded) < LANDING
    assert (SITE / "_static/landing.js").stat().st_size < 15_000


def test_the_first_page_shows_where_it_looks_without_a_script(open_page):
    page = open_page("index.html", java_script_enabled=False)
    assert page.locator(".word[aria-checked=true]").inner_text() == "It"
    assert "It looks at cat (78%) and fish (17%)." in page.locator(".answers").inner_text()
    assert page.locator(".doors a").count() == 3
    assert page.locator(".hour li").count() == 6


def test_a_word_is_chosen_by_click_and_by_key_and_the_fish_comes_alive(open_page):
    page = open_page("index.html")
    answers = page.locator(".answers")
    page.get_by_role("radio", name="ate").click()
    assert "ate looks at cat (44%) and fish (44%)." in answers.inner_text()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.innerText").startswith("fish")
    assert "fish looks at ate (94%)." in answers.inner_text()
    page.get_by_role("switch").check()
    assert "It looks at cat (48%) and fish (48%)." in answers.inner_text()
    page.get_by_role("switch").uncheck()
    assert "It looks at cat (78%) and fish (17%)." in answers.inner_text()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_switch_and_what_it_changes_are_in_the_first_screen(open_page, width, height):
    page = open_page("index.html", viewport={"width": width, "height": height})
    for seen in ("label.switch", ".word >> nth=-1", ".share.h0 >> nth=3"):
        box = page.locator(seen).bounding_box()
        assert box["y"] + box["height"] <= height


def test_an_answer_waits_for_a_prediction_that_is_compared_with_it(open_page):
    page = open_page("notebooks/00_what-a-trained-head-does.html")
    first, second, _ = page.locator(".predict").all()
    answer = first.locator(".predict-answer details:not(.admonition)")  # which is folded code
    assert not answer.is_visible()
    assert not first.locator(".cell_output").is_visible()
    assert not first.locator(".cell_input").is_visible()  # code without its output is a hole
    first.get_by_role("button", name="place 0").press("Enter")
    assert (
        "You chose place 0. The answer is place 9." in first.locator(".predict-said").inner_text()
    )
    assert answer.is_visible()
    assert first.locator(".cell_output").is_visible()
    second.get_by_role("button", name="Show anyway").click()
    assert second.locator(".cell_output").is_visible()
    page = open_page("notebooks/03_many-heads.html")
    first = page.locator(".predict").nth(2)
    first.get_by_role("textbox").fill("40")
    first.get_by_role("textbox").press("Enter")
    assert "You said 40. It is 89." in first.locator(".predict-said").inner_text()
    page = open_page("notebooks/01_one-query.html")
    share = page.locator(".predict[data-answer='0.32']")
    share.get_by_role("textbox").fill("33")  # a share may be written as percent
    share.get_by_role("textbox").press("Enter")
    assert "You said 33. " in share.locator(".predict-said").inner_text()
    assert "it is 32%" in share.locator(".predict-said").inner_text().lower()


def test_a_page_that_derives_asks_first(open_page):
    page = open_page("grouped.html")
    question = page.locator(".predict").last
    assert not page.get_by_text("The outputs are 3, 3, 5, 5").is_visible()
    question.get_by_role("textbox").fill("101")
    question.get_by_role("textbox").press("Enter")
    assert "You said 101. It is 11." in question.locator(".predict-said").inner_text()
    assert page.get_by_text("The outputs are 3, 3, 5, 5").is_visible()


def test_without_a_script_no_answer_is_hidden(open_page):
    page = open_page("notebooks/00_what-a-trained-head-does.html", java_script_enabled=False)
    assert page.locator(".predict .cell_output").first.is_visible()


def test_a_number_is_changed_two_clicks_from_the_first_page(open_page):
    page = open_page("index.html")
    page.get_by_role("link", name="Change any number").click()
    cell = page.get_by_label("fish: alive")
    assert cell.inner_text() == "0"
    cell.click()
    page.keyboard.press("+")
    assert cell.inner_text() == "0.1"


def test_a_frame_in_a_notebook_looks_like_the_site(open_page):
    page = open_page("notebooks/04_through-it-backward.html", color_scheme="light")
    frame = page.frame_locator("iframe").last.locator("body")
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark' }")
    page.wait_for_timeout(300)
    look = (
        "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).fontFamily.split(',')[0]]"
    )
    assert frame.evaluate(look) == page.locator("body").evaluate(look)
    loaded = "() => document.fonts.ready.then(() => [...document.fonts].map(f => f.status))"
    assert "loaded" in frame.evaluate(loaded)


def test_the_theme_reaches_pictures_and_frames(open_page):
    page = open_page("gallery.html", color_scheme="light")
    frame = page.frame_locator("iframe.play").locator("html")
    for theme in ("dark", "light"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        page.wait_for_timeout(300)
        assert frame.get_attribute("data-theme") == theme
        filters = page.evaluate(
            "[...document.querySelectorAll('img, svg')].map(e => getComputedStyle(e).filter)"
        )
        assert set(filters) == {"none"}


PHONE = {"viewport": {"width": 390, "height": 844}}


def test_rows_of_a_wide_table_are_cards_on_a_phone(open_page):
    page = open_page("glossary.html", **PHONE)
    cells = page.locator("table.cards td:not(.empty)")
    assert cells.count() > 200
    assert min(cells.evaluate_all("all => all.map(one => one.clientWidth)")) > 300
    label = "getComputedStyle(document.querySelectorAll('td')[1], '::before').content"
    assert page.evaluate(label) == '"meaning"'
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.evaluate(label) == "none"
    page = open_page("coverage.html", **PHONE)  # has long names
    table = page.locator(".pst-scrollable-table-container").first
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    page = open_page("grouped.html", **PHONE)
    assert page.locator("table.table:not(.cards)").count() > 0  # seven columns of a digit fit


def test_a_shape_stays_on_one_line(open_page):
    page = open_page("attention.html", **PHONE)
    shapes = page.locator("code.shape")
    assert shapes.count() > 10
    assert max(shapes.evaluate_all("all => all.map(one => one.offsetHeight)")) < 30


def test_code_shows_where_it_is_cut(open_page):
    page = open_page("exercises.html", **PHONE)
    page.evaluate("""() => {
      const code = document.querySelector(".bd-article pre");
      code.textContent = "x".repeat(300);
      Object.assign(code.style, { whiteSpace: "pre", overflow: "auto", height: "60px" });
    }""")  # most code wraps
    code = page.locator("pre.cut").first
    assert "linear-gradient" in code.evaluate("one => getComputedStyle(one).maskImage")
    before = page.locator("pre.cut").count()
    code.evaluate("one => { one.scrollLeft = one.scrollWidth }")
    page.wait_for_function(f"document.querySelectorAll('pre.cut').length === {before - 1}")


def test_each_box_of_the_gpt_is_a_link(open_page):
    page = open_page("gpt.html")
    box = page.locator(".gpt li li li", has_text="Softmax")
    side = box.bounding_box()
    box.click(position={"x": side["width"] - 10, "y": side["height"] / 2})
    assert page.url.endswith("softmax.html")


def test_a_frame_is_as_high_as_its_page(open_page):
    page = open_page("gallery.html")
    frame = page.locator("iframe.play")
    frame.scroll_into_view_if_needed()
    page.frame_locator("iframe.play").locator("#story").wait_for()
    page.wait_for_timeout(500)
    inside = page.frames[1].evaluate("document.documentElement.scrollHeight")
    assert inside <= frame.evaluate("one => one.clientHeight")


def test_search_and_terms_lead_to_the_glossary(open_page):
    page = open_page("search.html?q=lse")
    page.wait_for_selector("ul.search a")
    assert page.locator("ul.search a").count() > 3
    page.wait_for_selector("ul.search p.context")
    told = page.locator("ul.search p.context").first.inner_text()
    assert len(told) < 240
    assert ">>>" not in told
    assert told[0] != "."
    page = open_page("attention.html")
    term = page.locator("a.term", has_text="scores").first
    assert term.get_attribute("title").startswith("scaled dot products")
    term.click()
    assert page.url.endswith("glossary.html#term-scores")


def test_a_scene_in_a_page_keeps_its_height(open_page):
    page = open_page("attention.html")
    frame = page.locator("iframe.scene")
    frame.scroll_into_view_if_needed()
    page.frame_locator("iframe.scene").locator("#story-stage .cell").first.wait_for()
    height = frame.bounding_box()["height"]
    page.wait_for_timeout(600)
    assert frame.bounding_box()["height"] == height


def test_no_scene_in_a_page_is_cut_on_a_phone(open_page):
    page = open_page("attention.html", **PHONE)
    page.locator("iframe.scene").scroll_into_view_if_needed()
    page.frame_locator("iframe.scene").locator("#story-stage .cell").first.wait_for()
    page.wait_for_timeout(600)
    inside = page.frames[1].evaluate("document.documentElement.scrollHeight")
    assert inside <= page.locator("iframe.scene").evaluate("one => one.clientHeight")


def test_a_link_to_a_task_opens_it(open_page):
    page = open_page("tasks.html")
    assert not page.get_by_text("def rope_backward(").is_visible()
    page.goto(page.url + "#rope-backward")
    assert page.get_by_text("def rope_backward(").is_visible()


def test_the_first_link_by_keyboard_skips_the_navigation(open_page):
    page = open_page("softmax.html")
    page.keyboard.press("Tab")
    assert "main content" in page.evaluate("document.activeElement.innerText").lower()
