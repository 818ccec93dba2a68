"""The report of heads as its readers use it: map, one head, cuts, keys, phone, notebook."""

import re

import numpy as np
import pytest

from mha_numpy.look import HEADS, TOKENS
from mha_numpy.models import Bert, induction_by_hand
from mha_numpy.models.text import Tokens
from mha_numpy.show.page import head_report, stored_report
from tests.gradients import randomize
from tests.show.page.test_head_report import STORED

pytestmark = pytest.mark.slow

FLOW, UNIT = "weight \N{MULTIPLICATION SIGN} norm", "1 \N{MINUS SIGN} cosine"
IDS = np.array([[2, 7, 9, 4, 7, 3], [2, 8, 5, 3, 0, 0]])
NAMES = [
    ["[CLS]", "the", "counterrevolutionaries", ".", "the", "[SEP]"],
    ["[CLS]", "a", "dog", "[SEP]"],
]


@pytest.fixture(scope="module")
def drawn():
    model = Bert(30, 16, embed_dim=8, num_heads=2, num_layers=3)
    randomize(model, np.random.default_rng(3))
    return head_report(model, Tokens(IDS, IDS > 0, NAMES), note="The params are random.")


@pytest.fixture
def open_page(show, drawn):
    """Return a function that opens a report."""
    return lambda name="", report=drawn, **options: show(report, name, **options)


def number(text):
    """Return a number, a share from its percents."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def cells(page):
    return [float(text) for text in page.locator("#matrix tbody td").all_inner_texts() if text]


def test_a_head_is_opened_by_a_click_and_by_keys(open_page):
    page = open_page(name="l1h0")
    heading = page.locator("#one-title")
    assert heading.inner_text() == "Layer 1, head 0"
    page.get_by_role("gridcell", name=re.compile("^layer 2, head 1: On this text")).first.click()
    assert heading.inner_text() == "Layer 2, head 1"
    assert page.url.endswith("#l2h1")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert heading.inner_text() == "Layer 2, head 1"  # not before Enter
    assert page.locator("#overview-told").inner_text().startswith("Layer 1, head 0: On this text")
    page.keyboard.press("Enter")
    assert heading.inner_text() == "Layer 1, head 0"
    assert page.locator("#spoken").inner_text() == "Layer 1, head 0 is open."
    rows = np.reshape(cells(page), (6, 6)).sum(axis=1)
    assert abs(rows - 1).max() < 0.04  # weights, of two decimals


def test_a_cell_is_told_in_words(open_page):
    page = open_page(name="l0h1")
    page.locator("#matrix tbody td").nth(6 + 2).hover()
    told = page.locator("#cell-told")
    share, norm, arrives = re.fullmatch(
        r"Layer 0, head 1: the query “the” \(1\) gives ([\d.]+)% of its weight to the key “counter"
        r"revolutionaries” "
        r"\(2\)\. The value there writes a vector of length ([\d.]+), so a length of ([\d.]+) "
        r"arrives\.",
        told.inner_text(),
    ).groups()
    assert float(share) / 100 * float(norm) == pytest.approx(float(arrives), rel=0.1)
    page.locator("#matrix td.chosen").focus()
    page.keyboard.press("ArrowDown")
    assert "the query “counterrevolutionaries” (2)" in told.inner_text()


def test_weight_times_norm_is_another_picture(open_page):
    page = open_page(name="l0h0")
    weights, thumbnail = cells(page), page.locator("#overview canvas").first
    before = thumbnail.evaluate("canvas => canvas.toDataURL()")
    page.get_by_role("button", name=FLOW).click()
    page.locator("#matrix tbody td").nth(6 + 2).hover()
    norm = float(re.search(r"length ([\d.]+),", page.locator("#cell-told").inner_text())[1])
    assert cells(page)[8] == pytest.approx(weights[8] * norm, abs=0.02 + 0.06 * norm)
    assert thumbnail.evaluate("canvas => canvas.toDataURL()") != before
    assert f"largest {FLOW} of the layer" in page.locator("#scale").inner_text()


def test_the_map_shows_each_pattern(open_page):
    page = open_page(name="l0h0")
    for pattern in ("previous", "delimiter", "distance", "entropy"):
        page.locator("#shown").select_option(pattern)
        numbers = [number(text) for text in page.locator("#overview button").all_inner_texts()]
        assert len(numbers) == 6
        row = page.locator("#scores tbody tr").nth(
            ["previous", "itself", "next", "first", "delimiter", "duplicate", "induction",
             "distance", "entropy"].index(pattern)
        )  # fmt: skip
        score = number(row.locator("td").first.inner_text())
        assert numbers[0] == pytest.approx(score, abs=0.051)


def test_another_text_has_its_own_tokens(open_page):
    page = open_page(name="l0h0")
    before = page.locator("#says").inner_text()
    page.locator("#texts select").select_option("1")
    assert page.locator("#matrix thead th").all_inner_texts() == NAMES[1]
    assert len(cells(page)) == 16
    assert page.locator("#says").inner_text() != before
    assert "no queries have one" in page.locator("#scores").inner_text()  # no token comes twice


def test_heads_are_cut_one_after_the_other(open_page):
    page = open_page()
    told, cut = page.locator("#cuts-told"), page.locator("#left .hatched")
    page.locator("#cuts").focus()
    page.keyboard.press("End")
    assert told.inner_text().startswith(f"6 of 6 heads are cut: {UNIT} ")
    assert cut.count() == 6
    page.keyboard.press("ArrowLeft")
    assert cut.count() == 5
    chart = page.locator("#curve svg").bounding_box()
    page.mouse.move(chart["x"] + 52, chart["y"] + 50)  # the left end
    assert told.inner_text() == f"0 of 6 heads are cut: {UNIT} 0; 0 in a random order."
    page.get_by_text("The numbers as a table").click()
    assert page.locator("#curve-numbers tbody tr").count() == 7


def test_importance_is_told_and_leads_to_the_head(open_page):
    page = open_page(name="l0h0")
    grid = page.get_by_role("grid", name=f"Cut by 0: {UNIT}")
    grid.get_by_role("gridcell").nth(3).click()
    assert page.locator("#one-title").inner_text() == "Layer 1, head 1"
    assert page.locator("#one-title").bounding_box()["y"] >= 0  # within sight
    told = page.locator("#worth-told").inner_text()
    cut_by_0 = re.fullmatch(
        rf"Layer 1, head 1: {UNIT} \S+ by its slope, (\S+) when cut by 0, \S+ when .* mean\.", told
    )[1]
    name = grid.get_by_role("gridcell").nth(3).get_attribute("aria-label")
    assert name == f"layer 1, head 1: {cut_by_0}"


def test_what_a_causal_head_may_not_see_is_hatched(open_page):
    ids = np.array([[7, 1, 4, 7, 1]])
    model = induction_by_hand(vocab_size=10, max_tokens=8)
    page = open_page("l1h0", head_report(model, Tokens(ids, ids > 0, [list("71471")])))
    assert page.locator("#matrix td.hatched").count() == 10
    assert page.locator("#texts").is_hidden()
    page.locator("#matrix tbody td").nth(1).hover()
    assert "may not see “1” (1), which comes later" in page.locator("#cell-told").inner_text()
    assert "the loss" in page.locator("#worth-about").inner_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(open_page, width):
    page = open_page(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    cut_off = page.evaluate(
        """() => [...document.querySelectorAll("#heads *")].filter((each) =>
            each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === "hidden"
            && !each.matches(".spoken")).map((each) => each.outerHTML.slice(0, 80))"""
    )
    assert cut_off == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_have_the_colours_of_the_page(open_page, scheme):
    page = open_page(color_scheme=scheme)
    at = ["light", "dark"].index(scheme)
    letters = page.evaluate("getComputedStyle(document.body).color")
    assert letters == "rgb({}, {}, {})".format(*rgb(TOKENS["ink"][at]))
    red, green, blue, alpha = page.evaluate(
        """() => { // the strongest cell of a thumbnail of head 1
            const canvas = document.querySelectorAll("#overview canvas")[1];
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const places = [...Array(width * height).keys()];
            const pixels = places.map((i) => [...data.slice(4 * i, 4 * i + 4)]);
            return pixels.sort((a, b) => b[3] - a[3])[0];
        }"""
    )
    assert np.allclose([red, green, blue], rgb(HEADS[1][0][at]), atol=3)  # alpha rounds them
    assert alpha > 50


def rgb(color):
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))


def test_the_stored_heads_of_a_real_model_are_a_page(show):
    page = show(stored_report(STORED), "l0h2")
    assert page.locator("#title").inner_text().startswith('72 heads on "The cat ate fish.')
    assert page.locator("#overview button").count() == 72
    assert page.locator("#one-title").inner_text() == "Layer 0, head 2"
    assert "100% of its weight is on the token before" in page.locator("#says").inner_text()


def test_a_notebook_gives_it_the_height_that_it_needs(browser, drawn):
    page = browser.new_page()
    page.set_content(f"<body>{drawn._repr_html_()}</body>")
    page.wait_for_function("document.querySelector('iframe').offsetHeight > 1200")
    frame = page.frames[1]
    assert frame.locator("#one-title").inner_text().startswith("Layer ")
    assert page.locator(".mha-stepper-table").is_hidden()
    page.close()
