"""The pages of a class in a browser: open to everyone, on a phone, and without a mouse."""

from dataclasses import replace

import pytest

from mha_numpy.teach.classroom.alike import Pair
from mha_numpy.teach.classroom.feedback import write_results
from mha_numpy.teach.classroom.overrides import Override
from mha_numpy.teach.classroom.results import Grades
from mha_numpy.teach.classroom.settled import settle
from tests.teach.classroom.test_feedback import result
from tests.teach.classroom.test_late import HW

PAIR = Pair("ada", "bob", 0.9)
PAGES = ["class.html", "feedback/ada.html", "feedback/bob.html", "alike/ada--bob.html"]
CODE = f"def softmax(scores, mask):\n    powers = np.exp(scores)\n    return powers{' + 0' * 40}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    given = [
        Override("ada", "softmax", 1.0, comment="come and see me"),
        Override("ada", comment="a long comment, " * 20),
        Override("bob", points=3.0),
    ]
    late = {"is_late": True, "handed_in": "2030-06-01T12:01:00"}
    odd = {"trouble": ["x.py cannot be read"], "earlier": [result("bob")]}
    found = [
        settle(one, HW, given)
        for one in (
            result("ada", 1.6, name="Ada Lovelace", codes={"softmax": CODE}, **late),
            replace(result("bob", codes={"softmax": CODE.replace("powers", "p")}), **odd),
            result("eve", 4, "right"),
            result("zoe", 0, "not there", is_isolated=False),
        )
    ]
    hw = replace(HW, marks={"shape": 10, "values": 80, "robustness": 10, "slip": 40})
    write_results(Grades(hw, found, [PAIR], 0, ["?: no student"]), out)
    return out


@pytest.fixture
def open_page(visit, folder):
    def opened(name, **options):
        return visit((folder / name).as_uri(), folder.as_uri(), **options)

    return opened


@pytest.mark.slow
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_open_to_everyone(open_page, name, theme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    size = {"width": width, "height": 800}
    page = open_page(name, color_scheme=theme, viewport=size)
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(open_page, name):
    page = open_page(name, viewport={"width": 390, "height": 800})
    for width in (768, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_from_the_class_to_a_pair_and_back_with_the_keyboard_alone(open_page):
    page = open_page("class.html")
    link = page.get_by_role("link", name="side by side")
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/ada--bob.html")
    page.set_viewport_size({"width": 390, "height": 800})
    code = page.get_by_role("region", name="softmax")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert code.evaluate("one => one === document.activeElement")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.wide').scrollLeft > 0")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/class.html")
