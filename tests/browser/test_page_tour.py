"""The guided tour in a real browser: every card is done as a reader does it, and noticed."""

import re

import numpy as np
import pytest

from mha_numpy.checking.tracing import trace
from mha_numpy.core import attention_forward
from mha_numpy.layers import MultiHeadAttention
from mha_numpy.show.page import stepper
from mha_numpy.show.page.document import read
from mha_numpy.show.walk import walk
from mha_numpy.show.walk.page import page_of

pytestmark = pytest.mark.slow

CARDS = 12
PHONE = {"width": 380, "height": 780}


@pytest.fixture(scope="module")
def example():
    """Return the page of the sentence that the walk begins with."""
    return page_of(walk())


def in_map(name):
    return lambda page: page.locator(f'#map a[href="#{name}"]').click()


def keys(*pressed):
    def press(page):
        for key in pressed:
            page.keyboard.press(key)

    return press


def click_start(page):
    page.locator(".train-start").click()


ACTIONS = {
    "What comes in": keys("ArrowRight"),
    "Three roles": in_map("w_k"),
    "One query meets all keys": keys("ArrowRight", "ArrowLeft"),  # to the start, the largest
    "Shares that sum to 1": lambda page: page.locator("#controls .slider input").fill("0"),
    "A mix of values": lambda page: page.get_by_label("causal").click(),
    "Cut into heads": keys(".", "."),
    "Merged by w_o": lambda page: page.get_by_label("head 1").click(),
    "One number for everything": keys("+"),
    "Backward, through softmax": in_map("d_weights"),
    "Back to the params": keys("ArrowDown"),
    "Change one number": keys("Enter", "2", "Enter"),
    "How params are learned": click_start,
}


def title_of(page):
    return page.locator(".tour-head h3").inner_text()


def is_done(page):
    return "done" in page.locator(".tour-card").get_attribute("class").split()


CONTROLS = {  # what a card asks the reader to use, beside cells
    "Three roles": ".lit",
    "Shares that sum to 1": "#controls .slider input",
    "A mix of values": "#controls .lit",
    "Cut into heads": ".lit",
    "Merged by w_o": "#controls .lit",
    "One number for everything": "[data-part=slider], #loss",
    "Backward, through softmax": ".lit",
    "Change one number": "[data-part=field]",
    "How params are learned": ".train-start",
}


def is_free(page, selector):
    """Return whether a finger meets all these elements at their middle."""
    return page.evaluate(
        """selector => [...document.querySelectorAll(selector)].every(element => {
          const { x, y, width, height } = element.getBoundingClientRect();
          const found = document.elementFromPoint(x + width / 2, y + height / 2);
          return element.contains(found);
        })""",
        selector,
    )


def assert_leaves_free(page, title):
    """Expect that the card covers neither the stage nor what it asks the reader to use."""
    if title in CONTROLS:
        assert is_free(page, CONTROLS[title]), title
    seen = page.evaluate("""() => {
      const { top, bottom, left } = cells.getBoundingClientRect();
      const rows = [...Array(innerHeight).keys()].filter(y => y > top && y < bottom);
      return rows.filter(y => document.elementFromPoint(left + 5, y) === cells).length;
    }""")
    assert seen > 120 or title == "How params are learned", (title, seen)


@pytest.fixture
def page(show, example):
    return show(example, height=800, reduced_motion="reduce")


@pytest.mark.parametrize("size", [{"height": 800}, PHONE], ids=["desktop", "phone"])
def test_every_card_notices_what_it_asked_for(show, example, size):
    page = show(example, **size, reduced_motion="reduce")
    before = page.locator("#loss").inner_text()
    page.get_by_role("button", name="Take the tour").click()
    for number, (title, act) in enumerate(ACTIONS.items(), start=1):
        assert title_of(page) == title
        assert page.locator(".tour-count").inner_text() == f"{number} of {CARDS}"
        assert not is_done(page)
        assert page.locator("#loss").inner_text() == before  # the last card's changes are gone
        if size is PHONE:
            assert_leaves_free(page, title)
        act(page)
        page.locator(".tour-card.done").wait_for(timeout=60_000)
        if size is PHONE and title in CONTROLS:
            assert is_free(page, CONTROLS[title])
        assert page.locator(".tour-seen").inner_text()
        page.locator(".tour-next").click()
    assert page.locator(".tour-card").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= size.get("width", 1280)


def test_what_was_not_asked_for_does_not_count(page):
    page.get_by_role("button", name="Take the tour").click()
    page.keyboard.press("n")
    assert title_of(page) == "Three roles"
    page.keyboard.press("ArrowRight")
    in_map("scores")(page)
    assert not is_done(page)
    page.keyboard.press("n")
    page.keyboard.press("ArrowDown")  # another score, but not the largest of its row
    assert title_of(page) == "One query meets all keys"
    assert not is_done(page)


def test_it_is_left_and_taken_up_again(page):
    page.get_by_role("button", name="Take the tour").click()
    keys("n", "n", "n", "p")(page)
    assert title_of(page) == "One query meets all keys"
    assert page.locator("#map a.lit").count() == 3
    page.get_by_role("button", name="Leave the tour").click()
    assert page.locator(".tour-card").is_hidden()
    assert page.locator(".lit").count() == 0
    page.get_by_role("button", name=f"Go on with the tour (3 of {CARDS})").click()
    assert title_of(page) == "One query meets all keys"


def test_what_the_reader_changed_before_a_card_stays(page):
    page.locator("#controls .slider input").fill("1")
    before = page.locator("#loss").inner_text()
    page.get_by_role("button", name="Take the tour").click()
    keys("n", "n")(page)
    assert page.locator("#loss").inner_text() == before


def test_without_a_tour_the_cards_are_a_text(page):
    cards = page.locator(".tour-list li")
    assert cards.count() == CARDS
    cards.nth(8).get_by_role("button").click()
    assert title_of(page) == "Backward, through softmax"
    assert page.locator("#name").inner_text() == "d_scores"


def test_other_traces_have_the_cards_that_fit_them(show):
    titles = list(ACTIONS)
    no_mask_no_gates = {"A mix of values", "Merged by w_o", *titles[7:10]}
    for forward, left_out in [
        (lambda: MultiHeadAttention(8, 2)(np.ones((1, 3, 8))), no_mask_no_gates),
        (lambda: attention_forward(np.eye(3), np.eye(3), np.eye(3)), {*titles[:2], *titles[4:11]}),
    ]:
        with trace() as t:
            forward()
        page = show(stepper(t))
        shown = page.locator(".tour-list button").all_inner_texts()
        assert shown == [title for title in titles[:-1] if title not in left_out]


def test_cards_are_short(browser):
    page = browser.new_page()
    page.add_script_tag(content=read("tour.js"))
    cards = page.evaluate("CARDS.map(({ title, text, ask, seen }) => ({ title, text, ask, seen }))")
    page.close()
    assert 10 <= len(cards) <= CARDS
    for card in cards:
        words = len(re.findall(r"\S+", f"{card['text']} {card['ask']}"))
        assert 35 <= words <= 70, (card["title"], words)
        assert len(card["seen"].split()) <= 35
