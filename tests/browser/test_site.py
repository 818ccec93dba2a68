"""The built website in a browser: both themes, a phone, the keyboard, nothing from elsewhere."""

import pytest

from tests.browser.conftest import served
from tests.docs.test_site import BUILT, SITE, is_ours

pytestmark = BUILT

PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if is_ours(path) and "_modules" not in path.parts  # they are all alike
)
PHONE = {"width": 390, "height": 844}


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
def test_a_page_fits_a_phone_and_asks_no_other_host(open_page, name):
    page = open_page(name, viewport=PHONE, color_scheme="dark")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]


def test_the_first_page_has_a_film_and_three_doors(open_page):
    page = open_page("index.html")
    film = page.locator("img[src$='film.png']")
    assert film.evaluate("image => image.complete && image.naturalWidth") > 0
    assert film.bounding_box()["y"] < page.viewport_size["height"]
    assert page.locator(".doors a").count() == 3


def test_a_number_is_changed_two_clicks_from_the_first_page(open_page):
    page = open_page("index.html")
    page.get_by_role("link", name="Change a number").click()
    controls = page.locator("#controls")
    before = controls.inner_text()
    assert "L = " in before
    page.keyboard.press("+")
    page.wait_for_function("before => document.querySelector('#controls').innerText !== before",
                           arg=before, timeout=5000)  # fmt: skip


def test_the_theme_reaches_pictures_and_frames(open_page):
    page = open_page("gallery.html", color_scheme="light")
    frame = page.frame_locator("iframe.play").locator("html")
    for theme in ("dark", "light"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        page.wait_for_timeout(300)
        assert frame.get_attribute("data-theme") == theme
        is_inverted = page.locator("img[src$='weights.png']").evaluate(
            "image => getComputedStyle(image).filter.includes('invert')"
        )
        assert is_inverted == (theme == "dark")


def test_search_and_terms_lead_to_the_glossary(open_page):
    page = open_page("search.html?q=lse")
    page.wait_for_selector("ul.search a")
    assert page.locator("ul.search a").count() > 3
    page = open_page("attention.html")
    term = page.locator("a.term", has_text="scores").first
    assert term.get_attribute("title").startswith("scaled dot products")
    term.click()
    assert page.url.endswith("glossary.html#term-scores")


def test_the_first_link_by_keyboard_skips_the_navigation(open_page):
    page = open_page("softmax.html")
    page.keyboard.press("Tab")
    assert "main content" in page.evaluate("document.activeElement.innerText").lower()
