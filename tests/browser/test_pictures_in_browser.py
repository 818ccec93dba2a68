"""Pictures in a browser: they follow system or page, nothing is cut, the film moves by itself."""

import re
from base64 import b64decode
from itertools import pairwise

import numpy as np
import pytest

from mha_numpy.look import css_tokens, tokens
from mha_numpy.show.pictures import (
    arrows,
    bar_chart,
    film,
    line_chart,
    matrices,
    origin_film,
    shape_film,
    sharing_map,
    weights_by_head,
)
from mha_numpy.show.scenes import story_of
from mha_numpy.show.walk import walk
from mha_numpy.tables import Table
from tests.show.pictures.helpers import SENTENCE, recorded, turned, two_splits

pytestmark = pytest.mark.slow

MEASURE = """figures => figures.flatMap(svg => {
  const page = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].map(text => {
    const box = text.getBoundingClientRect();
    const size = parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a;
    const turned = (text.getAttribute("transform") || "").includes("rotate(-90");
    const outside = Math.max(page.left - box.left, page.top - box.top,
                             box.right - page.right, box.bottom - page.bottom);
    return [text.textContent, turned ? 13 : size, outside];
  });
})"""


def story():
    seen = walk()
    return story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning)


def every_picture():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(12), (2, 12))
    yield weights_by_head(weights, SENTENCE)
    yield matrices({"x": rng.normal(size=(6, 4)), "w": rng.normal(size=(8, 8))}, row_labels=None)
    yield shape_film(recorded()[0], tokens=SENTENCE[:5])
    yield origin_film(two_splits(), 2)
    yield sharing_map(8, 2)
    yield arrows(turned(8), title="Turned")
    yield bar_chart({"grouped": 2.5, "multi-head": 20}, title="Cache")
    lines = {"one": np.arange(4.0), "a name that is much too long to be at the end": np.ones(4)}
    yield line_chart([1, 2, 4, 8], lines, title="t", x_label="x", y_label="y", log_x=True)


def svgs_in(html):
    found = re.findall(r'data:image/svg\+xml;base64,([^"]+)"', html)
    return [b64decode(each).decode() for each in found]


@pytest.mark.parametrize("width", [390, 800])
def test_no_text_is_small_or_cut(browser, width):
    page = browser.new_page(viewport={"width": width, "height": 800})
    for picture in every_picture():
        drawn = picture.panels if width == 390 else [w for w in picture.wide if w]
        drawings = "".join(f"<div>{drawing.svg()}</div>" for drawing in drawn)
        page.set_content(f"<style>svg {{ max-width: 100%; height: auto; }}</style>{drawings}")
        for text, size, outside in page.eval_on_selector_all("svg.mha-picture", MEASURE):
            assert size > 12.9, (picture.title, text)
            assert outside < 1, (picture.title, text)
    page.close()


@pytest.mark.parametrize(("system", "is_dark"), [("light", False), ("dark", True)])
def test_an_image_follows_the_system_and_an_inline_picture_the_page(browser, system, is_dark):
    picture = weights_by_head(np.full((1, 2, 2), 0.5), ["a", "b"])
    (svg,) = svgs_in(picture._repr_html_())
    card = [f"rgb{tuple(bytes.fromhex(color[1:]))}" for color in tokens()["card"]]
    page = browser.new_page(color_scheme=system)

    def ground():
        return page.eval_on_selector(".ground", "rect => getComputedStyle(rect).fill")

    page.set_content(svg)
    assert ground() == card[is_dark]
    for theme in ("light", "dark"):
        page.set_content(f"<style>{css_tokens()}</style>{svg}")
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        assert ground() == card[theme == "dark"]
    page.close()


def test_a_page_with_room_shows_the_wider_drawing(browser):
    picture = weights_by_head(np.full((1, 12, 12), 1 / 12), SENTENCE)
    sizes = {390: picture.panels[0].size[0], 800: picture.wide[0].size[0]}
    for width, expected in sizes.items():
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.set_content(f"<body style='margin:16px'>{picture._repr_html_()}")
        page.wait_for_function("document.images[0].complete")
        assert page.evaluate("document.images[0].getBoundingClientRect().width") == expected
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_film_goes_from_scene_to_scene_unless_less_motion_is_wanted(browser, motion):
    page = browser.new_page(reduced_motion=motion)
    drawing = film(story()).svg()
    page.set_content(drawing)
    starts = [20 + float(delay) for delay in re.findall(r"animation-delay:(-[\d.]+)s", drawing)]
    assert len(starts) == 6
    shown = """seconds => {
      for (const each of document.getAnimations()) {
        each.pause();
        each.currentTime = 1000 * seconds;
      }
      const scenes = [...document.querySelectorAll(".scene")];
      return scenes.map(scene => +getComputedStyle(scene).opacity);
    }"""
    for scene, (start, end) in enumerate(pairwise([*starts, 20])):
        assert end - start > 2
        opacities = page.evaluate(shown, (start + end) / 2)
        expected = 0 if motion == "reduce" else scene
        assert opacities == [float(i == expected) for i in range(6)]
    page.close()


@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_a_table_has_the_page_s_ink_on_the_page_s_ground(browser, ground):
    ink = {"#ffffff": "rgb(0, 0, 0)", "#111111": "rgb(238, 238, 238)"}[ground]
    page = browser.new_page()
    table = Table("t", ["a", "b"], [["1", "2"], ["3", "4"]], frozenset({1}), first_head=1)
    page.set_content(f'<body style="background:{ground};color:{ink}">{table.to_html()}')
    looks = page.eval_on_selector_all(
        "th, td, caption",
        "cells => cells.map(cell => [getComputedStyle(cell).color, "
        "getComputedStyle(cell).backgroundColor])",
    )
    assert {tuple(look) for look in looks} == {(ink, "rgba(0, 0, 0, 0)")}
    page.close()
