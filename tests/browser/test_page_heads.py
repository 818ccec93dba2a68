"""The report of heads as its readers use it: map, one head, cuts, keys, phone, notebook."""

import re
from itertools import pairwise

import numpy as np
import pytest

from mha_numpy.look import HEADS, TOKENS
from mha_numpy.models import Bert, induction_by_hand
from mha_numpy.models.text import Tokens
from mha_numpy.show.page import head_report, stored_report
from tests.gradients import randomize
from tests.show.page.test_head_report import STORED

pytestmark = pytest.mark.slow

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


def cells(page):
    return [float(text) for text in page.locator("#matrix tbody td").all_inner_texts() if text]


def head(page, layer, head):
    return page.locator("#overview button").nth(2 * layer + head)


def test_a_head_is_shown_by_pointing_and_kept_by_a_click_or_enter(open_page):
    page = open_page(name="l1h0")
    heading = page.locator("#one-title")
    assert heading.inner_text() == "Layer 1, head 0"
    head(page, 2, 1).hover()
    assert heading.inner_text() == "Layer 2, head 1"
    page.locator("#title").hover()
    assert heading.inner_text() == "Layer 1, head 0"
    head(page, 2, 1).click()
    page.locator("#title").hover()
    assert heading.inner_text() == "Layer 2, head 1"
    assert page.url.endswith("#l2h1")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert heading.inner_text() == "Layer 1, head 0"
    assert page.url.endswith("#l2h1")  # not before Enter
    page.keyboard.press("Enter")
    assert page.url.endswith("#l1h0")
    rows = np.reshape(cells(page), (6, 6)).sum(axis=1)
    assert abs(rows - 1).max() < 0.04  # weights, of two decimals


def test_a_word_has_an_arc_to_each_word_as_thick_as_its_share(open_page):
    page = open_page(name="l0h1")
    word = page.locator("#sentence .word").nth(2)
    word.click()
    row = cells(page)[12:18]  # of two decimals
    arcs = page.locator("#sentence path").evaluate_all(
        "all => all.map((arc) => Number(arc.style.getPropertyValue('--share')))"
    )
    assert np.allclose(arcs, [share for share in row if share >= 0.005], atol=0.006)
    said = page.locator("#sentence .share").all_inner_texts()
    assert [bool(text) for text in said] == [share >= 0.05 for share in row]
    assert all(abs(int(text[:-1]) / 100 - row[j]) < 0.011 for j, text in enumerate(said) if text)
    assert page.locator("#told").inner_text().startswith("counterrevolutionaries looks most at ")
    page.keyboard.press("ArrowRight")
    assert page.locator("#sentence [aria-checked=true]").inner_text().endswith(".")
    assert page.locator("#told").inner_text().startswith(". looks ")


def test_a_cell_is_told_in_words_and_chooses_the_word_of_its_row(open_page):
    page = open_page(name="l0h1")
    page.locator("#matrix tbody td").nth(6 + 2).hover()
    told = page.locator("#cell-told")
    share = re.fullmatch(
        r"the gives ([\d.]+)% of its weight to counterrevolutionaries\.", told.inner_text()
    )[1]
    assert float(share) / 100 == pytest.approx(cells(page)[8], abs=0.011)
    assert page.locator("#sentence [aria-checked=true]").inner_text().endswith("the")
    page.locator("#matrix td.chosen").focus()
    page.keyboard.press("ArrowDown")
    assert told.inner_text().startswith("counterrevolutionaries gives ")


def test_weight_times_norm_is_another_picture(open_page):
    page = open_page(name="l0h0")
    weights, thumbnail = cells(page), page.locator("#overview canvas").first
    before = thumbnail.evaluate("canvas => canvas.toDataURL()")
    page.get_by_text("For the curious: pieces of words").click()
    page.get_by_label("what arrives").check()
    page.locator("#matrix tbody td").nth(6 + 2).hover()
    norm = float(re.search(r"length ([\d.]+),", page.locator("#cell-told").inner_text())[1])
    assert cells(page)[8] == pytest.approx(weights[8] * norm, abs=0.02 + 0.06 * norm)
    assert thumbnail.evaluate("canvas => canvas.toDataURL()") != before


def test_a_family_fades_all_other_heads_and_opens_its_clearest(open_page, drawn):
    page = open_page()
    families = np.ravel(drawn.data["texts"][0]["families"]).tolist()
    (family, (words, _)) = next(
        each for each in drawn.data["families"].items() if each[0] in families
    )
    chips = page.locator("#families button")
    assert sum(map(int, chips.locator("small").all_inner_texts())) == len(families)
    chips.first.click()
    assert page.locator("#one-family").inner_text() == f"looks at {words}"
    assert page.locator("#overview .faded").count() == len(families) - families.count(family) > 0
    chips.first.click()  # again what is there at first: heads that look at something particular
    quiet = families.count("first") + families.count("many")
    assert page.locator("#overview .faded").count() == (quiet if quiet < len(families) else 0)


def test_another_text_has_its_own_tokens(open_page):
    page = open_page(name="l0h0")
    page.locator("#texts select").select_option("1")
    words = ["start", "a", "dog", "end"]
    assert page.locator("#matrix thead th").all_inner_texts() == words
    assert page.locator("#sentence .word span").all_inner_texts() == words
    assert len(cells(page)) == 16


def test_pieces_of_a_word_are_one_word(open_page):
    page = open_page("l2h0", stored_report(STORED))
    words = page.locator("#sentence .word span").all_inner_texts()
    assert " ".join(words) == (
        "start the animal didn't cross the street because it was too tired . end"
    )
    assert page.locator("#matrix thead th").all_inner_texts() == words
    boxes = [word.bounding_box() for word in page.locator("#sentence .word").all()[10:13]]
    gaps = [b["x"] - a["x"] - a["width"] for a, b in pairwise(boxes)]
    assert gaps[1] < 1 < 5 < gaps[0]  # too tired.
    page.locator("#texts select").select_option("1")
    assert "purred" in page.locator("#sentence .word span").all_inner_texts()


def test_only_words_have_the_colour_of_the_head(open_page):
    page = open_page(report=stored_report(STORED))
    colors = page.locator("#matrix tbody td").evaluate_all(
        "all => all.map((cell) => getComputedStyle(cell).getPropertyValue('--tone'))"
    )
    asides = [0, 12, 13]  # the start, the full stop and the end
    family, grey = colors[1], colors[0]
    assert family != grey
    assert colors == [grey if i % 14 in asides else family for i in range(196)]
    row = page.locator("#matrix tbody tr").nth(8).locator("td")
    filled = row.nth(2).evaluate("cell => cell.style.background")
    assert re.search(r" 100(\.0)?%", filled)  # 0.68 is this head's largest share on a word


def test_heads_are_cut_one_after_the_other(open_page):
    page = open_page()
    told, cut = page.locator("#cuts-told"), page.locator("#zero .cut")
    assert cut.count() == 0  # at first, the model is whole
    page.locator("#cuts").focus()
    page.keyboard.press("End")
    assert told.inner_text().startswith("6 of 6 heads silent. The change is ")
    assert cut.count() == 6
    page.keyboard.press("ArrowLeft")
    assert cut.count() == 5
    chart = page.locator("#curve svg").bounding_box()
    page.mouse.move(chart["x"] + 52, chart["y"] + 50)  # the left end
    assert told.inner_text() == (
        "0 of 6 heads silent. The change is 0 (0 if you silence them in random order)."
    )


def test_each_square_has_what_changes_without_its_head(open_page, drawn):
    page = open_page()
    page.get_by_text("how this is measured").click()
    assert "the cosine between" in page.locator("#measure").inner_text()
    shown = page.locator("#zero button").nth(3).get_attribute("aria-label")
    change = float(shown.removeprefix("layer 1, head 1: ").replace("\N{MINUS SIGN}", "-"))
    assert change == pytest.approx(drawn.data["worth"]["zero"][1][1], rel=0.06)


def test_what_a_cut_changes_is_told_and_leads_to_the_head(open_page):
    page = open_page(name="l0h0")
    grid = page.get_by_role("grid", name="Without one head: change")
    grid.get_by_role("gridcell").nth(3).click()
    assert page.locator("#one-title").inner_text() == "Layer 1, head 1"
    assert page.locator("#one-title").bounding_box()["y"] >= 0  # within sight
    told = page.locator("#worth-told").inner_text()
    change = re.match(r"Without layer 1, head 1: change (\S+)\. It would go as ", told)[1]
    name = grid.get_by_role("gridcell").nth(3).get_attribute("aria-label")
    assert name == f"layer 1, head 1: {change}"


def test_what_a_causal_head_may_not_see_is_hatched(open_page):
    ids = np.array([[7, 1, 4, 7, 1]])
    model = induction_by_hand(vocab_size=10, max_tokens=8)
    page = open_page("l1h0", head_report(model, Tokens(ids, ids > 0, [list("71471")])))
    assert page.locator("#matrix td.hatched").count() == 10
    assert page.locator("#texts").is_hidden()
    page.locator("#matrix tbody td").nth(1).hover()
    assert page.locator("#cell-told").inner_text().endswith(" look at 1, which comes later.")
    assert "its loss" in page.locator("#worth-about").inner_text()


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
def test_pictures_have_the_colours_of_the_page(open_page, drawn, scheme):
    page = open_page(color_scheme=scheme)
    at = ["light", "dark"].index(scheme)
    letters = page.evaluate("getComputedStyle(document.body).color")
    assert letters == "rgb({}, {}, {})".format(*rgb(TOKENS["ink"][at]))
    red, green, blue, alpha = page.evaluate(
        """() => { // layer 1, head 0: its strongest cell on words; a full stop has a stronger one
            const canvas = document.querySelectorAll("#overview canvas")[2];
            const [width, height] = [2, 6];
            const { data } = canvas.getContext("2d").getImageData(1, 0, width, height);
            const places = [...Array(width * height).keys()];
            const pixels = places.map((i) => [...data.slice(4 * i, 4 * i + 4)]);
            return pixels.sort((a, b) => b[3] - a[3])[0];
        }"""
    )
    color = drawn.data["families"][drawn.data["texts"][0]["families"][1][0]][1]
    assert np.allclose([red, green, blue], rgb(HEADS[color][0][at]), atol=3)  # alpha rounds them
    assert alpha == 255  # the largest share on a word has full colour


def rgb(color):
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))


def test_the_stored_heads_of_a_real_model_open_on_it_and_animal(show):
    page = show(stored_report(STORED))
    assert page.locator("#overview button").count() == 72
    assert page.locator("#one-title").inner_text() == "Layer 3, head 1"
    told = page.locator("#told")
    assert told.inner_text().startswith("it looks at animal (68%)")
    assert page.locator("#overview .faded").count() == 56  # of 72
    for name, says in (
        ("verb to object", "cross looks at street (60%)"),
        ("word before", "tired looks at too (100%)"),
        ("Who does", "it looks at animal (68%)"),
    ):
        find = page.locator("#finds button", has_text=name)
        find.click()
        assert told.inner_text().startswith(says)
        assert find.get_attribute("aria-pressed") == "true"
        assert page.locator("#finds [aria-pressed=true]").count() == 1
    page.locator("#texts select").select_option("1")
    page.locator("#sentence .word").nth(6).click()
    assert told.inner_text().startswith("it looks most at ate (31%), cat (26%)")  # less than half
    page = show(stored_report(STORED), "l0h2")
    assert page.locator("#one-family").inner_text() == "looks at the word before"


def test_a_notebook_gives_it_the_height_that_it_needs(browser, drawn):
    page = browser.new_page()
    page.set_content(f"<body>{drawn._repr_html_()}</body>")
    page.wait_for_function("document.querySelector('iframe').offsetHeight > 1200")
    frame = page.frames[1]
    assert frame.locator("#one-title").inner_text().startswith("Layer ")
    assert page.locator(".mha-stepper-table").is_hidden()
    page.close()
