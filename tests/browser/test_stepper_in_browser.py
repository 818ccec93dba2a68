"""The stepper as its readers use it: keys, slider, pointing, in a page and in a notebook."""

import re

import numpy as np
import pytest

from mha_numpy.core import RopeOptions, step
from mha_numpy.draw import stepper
from mha_numpy.tracing import trace
from tests.draw.helpers import recorded, recorded_rank_2

pytestmark = pytest.mark.slow

TRACES = {
    "causal": lambda: recorded(is_causal=True)[0],
    "grouped": lambda: recorded(B=2, T=6, D=24, H=6, H_kv=2)[0],
    "rope": lambda: recorded(rope=RopeOptions())[0],
    "rank 2": recorded_rank_2,
}


@pytest.fixture(scope="module", params=TRACES)
def recording(request):
    return TRACES[request.param]()


@pytest.fixture
def open_page(browser, tmp_path):
    """Return a function that opens HTML from a file, and fails on any complaint or request."""
    complaints, opened = [], []

    def open_html(html, **viewport):
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": 1000, "height": 800, **viewport})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url)
                if request.url != path.as_uri() else None)  # fmt: skip
        page.goto(path.as_uri())
        opened.append(page)
        return page

    yield open_html
    for page in opened:
        page.close()
    assert complaints == []


SHOWN = """() => {
  const shown = {};
  for (const id of ["position", "name", "equation", "memory", "dtype", "pass", "value", "words"])
    shown[id] = document.getElementById(id).textContent;
  for (const id of ["axes", "shape", "strides", "index"])
    shown[id] = [...document.querySelectorAll(`#${id} td`)].map(cell => cell.textContent);
  shown.lit = Object.fromEntries([...document.querySelectorAll(".source")].map(source => [
    source.querySelector("button, .param").textContent,
    Number(source.querySelector("canvas").dataset.lit)]));
  return shown;
}"""


def row(page, name):
    return page.locator(f"#{name} td").all_inner_texts()


def assert_shows(page, t, number):
    """Check all that is told of a step against the trace."""
    s, shown = t.steps[number], page.evaluate(SHOWN)
    assert shown["position"] == f"{number + 1} of {len(t)}"
    assert shown["name"] == s.name
    assert shown["axes"] == s.axes.split()
    assert shown["shape"] == [str(n) for n in s.array.shape]
    assert shown["strides"] == [str(n) for n in s.array.strides]
    assert shown["equation"] == (f"= {s.equation}" if s.equation else "")
    assert shown["memory"] == s.memory
    assert shown["dtype"] == str(s.array.dtype)
    assert shown["pass"] == ("backward" if s.is_backward else "forward")


def test_the_arrow_keys_reach_every_step(open_page, recording):
    page = open_page(stepper(recording).to_html())
    for number in range(len(recording)):
        assert_shows(page, recording, number)
        page.keyboard.press("ArrowRight")
    assert_shows(page, recording, len(recording) - 1)
    page.keyboard.press("ArrowLeft")
    assert_shows(page, recording, len(recording) - 2)
    page.keyboard.press("Home")
    assert_shows(page, recording, 0)
    page.keyboard.press("End")
    assert_shows(page, recording, len(recording) - 1)


def test_slider_and_buttons(open_page, recording):
    page = open_page(stepper(recording).to_html())
    slider = page.get_by_role("slider", name="Step")
    for number in (3, len(recording) - 1, 0):
        slider.fill(str(number + 1))
        assert_shows(page, recording, number)
    slider.focus()
    page.keyboard.press("ArrowRight")  # one step, not two
    assert_shows(page, recording, 1)
    page.get_by_role("button", name="Next step").click()
    assert_shows(page, recording, 2)
    page.get_by_role("button", name="Previous step").click()
    assert_shows(page, recording, 1)


def lit_cells(t, s, index):
    """Count the cells of each array that a cell lights, one sequence of the batch."""
    lit = {}
    origin = t.origin_of(s)
    at = index
    while origin.form == "moved":
        (source,) = origin.sources
        s, at = source.step, tuple(span[0] for span in source.at(at))
        lit = {s.name: {at}}
        origin = t.origin_of(s)
    hides = origin.condition
    if hides and not hides.step.array[tuple(span.start for span in hides.at(at))]:
        return {name: len(cells) for name, cells in lit.items()}
    for source in origin.sources:
        spans = [[0] if axis == "B" and len(span) > 1 else list(span)
                 for axis, span in zip(source.axes, source.at(at), strict=True)]  # fmt: skip
        cells = {tuple(cell) for cell in np.stack(np.meshgrid(*spans), -1).reshape(-1, len(spans))}
        lit.setdefault(source.name, set()).update(cells)
    return {name: len(cells) for name, cells in lit.items()}


def assert_tells(page, t, s):
    """Check what is told and lit of the cell that is pointed at; return its index."""
    shown = page.evaluate(SHOWN)
    index = tuple(int(i) for i in shown["index"])
    name, value = shown["value"].split(" = ")
    assert name == f"{s.name}[{','.join(map(str, index))}]"
    if np.isfinite(s.array[index]):
        assert float(value.replace("almost ", "")) == pytest.approx(
            float(s.array[index]), rel=1e-3, abs=1e-8 * np.abs(s.array[np.isfinite(s.array)]).max()
        )
    else:
        assert value == str(s.array[index])
    assert shown["words"] == t.explain(s.name, index)
    assert {name: n for name, n in shown["lit"].items() if n} == lit_cells(t, s, index)
    return index


def test_the_cell_cursor_tells_where_cells_came_from(open_page, recording):
    """With keys alone: from the first cell on, right and down through every array."""
    page = open_page(stepper(recording).to_html())
    for s in recording:
        for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowRight"):
            page.keyboard.press(f"Shift+{key}")
            assert_tells(page, recording, s)
        page.keyboard.press("Escape")
        assert page.inner_text("#value") == ""
        page.keyboard.press("ArrowRight")


def test_the_cursor_reaches_every_cell(open_page):
    t = recorded(is_causal=True)[0]
    page = open_page(stepper(t).to_html())
    page.get_by_role("slider").fill("6")  # q: (1, 2, 5, 4), a block for each head
    assert page.inner_text("#name") == "q"
    seen = set()
    for line in range(5):  # both blocks stand side by side
        for _ in range(2 * 4):
            page.keyboard.press("Shift+ArrowRight" if line % 2 == 0 else "Shift+ArrowLeft")
            seen.add(tuple(row(page, "index")))
        page.keyboard.press("Shift+ArrowDown")
        seen.add(tuple(row(page, "index")))
    assert len(seen) == t["q"].size
    page.keyboard.press("Shift+ArrowDown")  # stays at the end
    assert row(page, "index") == ["0", "1", "4", "3"]


def test_pointing_pinning_and_letting_go(open_page):
    t = recorded(is_causal=True)[0]
    page = open_page(stepper(t).to_html())
    page.get_by_role("slider").fill("15")
    masked = t.steps[14]
    assert masked.name == "masked"
    seen = set()
    left, top = (page.locator("#array").bounding_box()[side] for side in "xy")
    for x in range(20, 160, 13):
        for y in range(20, 320, 13):
            page.mouse.move(left + x, top + y)
            if page.evaluate("document.getElementById('value').textContent"):
                seen.add(assert_tells(page, t, masked))
    assert len(seen) == masked.array.size
    page.mouse.move(left + 40, top + 30)
    page.mouse.down()
    page.mouse.up()
    pinned = page.inner_text("#words")
    assert "Pinned." in page.inner_text("#reading")
    page.mouse.move(left + 100, top + 200)
    page.mouse.move(900, 20)
    assert page.inner_text("#words") == pinned
    page.keyboard.press("Escape")
    assert page.inner_text("#value") == ""
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    assert "Pinned." in page.inner_text("#reading")


def test_a_hidden_cell_says_so(open_page):
    t = recorded(is_causal=True)[0]
    page = open_page(stepper(t).to_html())
    page.get_by_role("slider").fill("15")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#value") == "masked[0,0,0,2] = -inf"
    assert "is hidden: the mask puts -inf in its place" in page.inner_text("#words")
    assert page.locator(".source canvas").get_attribute("data-lit") == "0"


def test_the_name_of_a_source_leads_to_it(open_page):
    t = recorded()[0]
    page = open_page(stepper(t).to_html())
    page.get_by_role("slider").fill("13")
    page.get_by_role("button", name="k", exact=True).click()
    assert page.inner_text("#name") == "k"


def test_by_tab_key_everything_is_reached_and_seen(open_page):
    page = open_page(stepper(recorded()[0]).to_html())
    page.get_by_role("slider").fill("13")
    page.get_by_role("button", name="Previous step").focus()
    seen = []
    for _ in range(6):
        focus = page.evaluate(
            "(() => { const e = document.activeElement;"
            " return [e.id || e.textContent, getComputedStyle(e).outlineStyle]; })()"
        )
        seen.append(focus)
        page.keyboard.press("Tab")
    assert [name for name, _ in seen] == ["previous", "slider", "next", "array", "q", "k"]
    assert {outline for _, outline in seen[1:]} == {"solid"}


@pytest.mark.parametrize("width", [320, 400, 800, 1400])
def test_nothing_is_wider_than_the_page(open_page, recording, width):
    page = open_page(stepper(recording).to_html(), width=width)
    for _ in range(len(recording)):
        page.keyboard.press("Shift+ArrowRight")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, page.inner_text("#name")
        page.keyboard.press("ArrowRight")


def test_a_large_array_scrolls_in_its_own_room(open_page):
    t = recorded(T=16, D=64, H=8)[0]
    page = open_page(stepper(t).to_html(), width=320)
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    for _ in range(70):
        page.keyboard.press("Shift+ArrowRight")
    room = page.locator(".array .scroll")
    assert room.evaluate("e => e.scrollWidth > e.clientWidth && e.scrollLeft > 0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


HOST = '<!DOCTYPE html><body style="margin:0"><p>before</p>{}<p>after</p></body>'


def test_in_a_notebook_the_frame_fits_its_content(open_page, recording):
    page = open_page(HOST.format(stepper(recording)._repr_html_()), width=800)
    (frame,) = (f for f in page.frames if f.parent_frame is page.main_frame)
    frame.wait_for_selector("#name:not(:empty)")
    assert page.locator(".mha-stepper table").is_hidden()
    frame.locator("#array").click(position={"x": 30, "y": 30})
    for _ in range(len(recording)):
        page.wait_for_function(
            "height => document.querySelector('iframe').clientHeight === height",
            arg=frame.evaluate(
                "Math.ceil(document.documentElement.getBoundingClientRect().height)"
            ),
        )
        assert frame.evaluate(
            "document.documentElement.scrollHeight <= window.innerHeight"
            " && document.documentElement.scrollWidth <= window.innerWidth"
        )
        page.keyboard.press("ArrowRight")
    assert frame.inner_text("#position").startswith(str(len(recording)))


def test_two_steppers_in_one_page(open_page):
    both = [stepper(t)._repr_html_() for t in (recorded()[0], recorded_rank_2())]
    page = open_page(HOST.format("".join(both)))
    page.wait_for_function(
        "[...document.querySelectorAll('iframe')].every(f => f.clientHeight !== 640)"
    )
    for frame in page.frames[1:]:
        assert frame.evaluate("document.documentElement.scrollHeight <= window.innerHeight")
        frame.locator("#slider").fill("14")
    page.wait_for_function(
        "(([one, other]) => one.clientHeight > other.clientHeight + 50)"
        "(document.querySelectorAll('iframe'))"
    )
    assert page.locator("table").count() == 2
    assert not any(table.is_visible() for table in page.locator("table").all())


def test_where_scripts_are_taken_out_the_table_is_seen(open_page, recording):
    html = stepper(recording)._repr_html_()
    for tag in ("script", "iframe"):
        html = re.sub(rf"<{tag}.*?</{tag}>", "", html, flags=re.DOTALL)
    page = open_page(HOST.format(html))
    assert page.locator("table").is_visible()
    assert page.locator("tr").count() == len(recording) + 1


def test_beside_a_trusted_stepper_an_untrusted_one_keeps_its_table(open_page):
    """As where one cell of a notebook from elsewhere has been run."""
    stripped, whole = (stepper(t)._repr_html_() for t in (recorded()[0], recorded_rank_2()))
    for tag in ("script", "iframe"):
        stripped = re.sub(rf"<{tag}.*?</{tag}>", "", stripped, flags=re.DOTALL)
    page = open_page(HOST.format(stripped + whole))
    page.wait_for_function("document.querySelector('iframe').clientHeight !== 640")
    assert [table.is_visible() for table in page.locator("table").all()] == [True, False]


def test_hostile_names_are_shown_as_they_are(open_page):
    names = ["</script><script>document.title='x'</script>", "\"'><img src=x onerror=1>", "<!--"]
    with trace() as t:
        for i, name in enumerate(names):
            step(name, np.ones((2, 3)) + i, "T D", f"<b>{name}</b>")
    page = open_page(stepper(t).to_html())
    for number in range(len(names)):
        assert_shows(page, t, number)
        page.keyboard.press("Shift+ArrowRight")
        assert page.inner_text("#words") == t.explain(names[number], (0, 0))
        page.keyboard.press("ArrowRight")


def test_odd_arrays_are_shown(open_page):
    with trace() as t:
        step("empty", np.zeros((0, 3)), "T D")
        step("scalar", np.float64(2.5), "")
        step("odd", np.array([np.nan, np.inf, -np.inf, 0.0, 1e-30, 1.0]), "D")
    page = open_page(stepper(t).to_html())
    assert page.inner_text("#legend") == "No cells."
    page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#value") == ""
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert page.inner_text("#value") == "scalar[] = 2.500"
    page.keyboard.press("ArrowRight")
    values = []
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
        values.append(page.inner_text("#value").split(" = ")[1])
    assert values == ["nan", "inf", "-inf", "0", "almost 0", "1.000"]
