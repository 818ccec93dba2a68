"""The film, read back: six scenes with the story's numbers, words, signs and sentences."""

import re
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pytest

from mha_numpy.show.pictures import film, save_figure
from mha_numpy.show.pictures.film import GLANCE, SECONDS
from mha_numpy.show.pictures.labels import MINUS
from mha_numpy.show.pictures.stage import SPOKEN, WIDTH, spoken
from mha_numpy.show.pictures.svg import PHONE
from mha_numpy.show.scenes import Cell, still, story_of
from mha_numpy.show.walk import walk
from tests.show.pictures.helpers import (
    assert_readable,
    assert_well_made,
    painted,
    root_of,
    texts_in,
)

SIGNS = ("\N{RIGHTWARDS ARROW}", "\N{MULTIPLICATION SIGN}", "+")


@cache
def told():
    seen = walk()
    return story_of(seen.trace, tokens=seen.tokens, meaning=seen.meaning, note=seen.note)


@cache
def films():
    return film(told()), film(told(), back=True)


def cells_in(scene, *, back):
    tables = still(told(), scene.id, back=back).tables
    return [c for t in tables for line in t.rows for c in line.cells if isinstance(c, Cell)]


@pytest.mark.parametrize("back", [False, True])
def test_every_scene_has_the_story_s_numbers_words_and_sentence(back):
    scenes = told().scenes[:: -1 if back else 1]
    panels = films()[back].panels
    for panel, scene in zip(panels, scenes, strict=True):
        shown, cells = still(told(), scene.id, back=back), cells_in(scene, back=back)
        assert texts_in(panel, "t") == [panel.title] == [shown.title]
        numbers = [text for text in texts_in(panel, "n") if text not in SIGNS]
        assert [float(n) for n in numbers] == [float(c.text.replace(MINUS, "-")) for c in cells]
        words = [line.word for t in shown.tables for line in t.rows if not line.is_rule]
        assert texts_in(panel, "w") == words
        columns = {name for table in shown.tables for name in table.columns if name}
        assert columns <= set(texts_in(panel, "s"))
        said = spoken(shown.text, is_last=panel is panels[-1])
        assert " ".join(texts_in(panel, "says")) == said.replace(MINUS, "-")
        assert panel.desc == said


@pytest.mark.parametrize("back", [False, True])
def test_signs_are_drawn_twice_and_slopes_are_arrows(back):
    scenes = told().scenes[:: -1 if back else 1]
    for panel, scene in zip(films()[back].panels, scenes, strict=True):
        cells = cells_in(scene, back=back)
        kinds = [cell.kind for cell in painted(panel)]
        assert kinds.count("less") == sum(cell.value < 0 and cell.level > 0.01 for cell in cells)
        arrows = [e.attrib["d"] for e in root_of(panel).iter() if e.attrib.get("class") == "slope"]
        rising = [
            float(tip) < float(foot)
            for tip, foot in (re.match(r"M\S+ (\S+)L\S+ (\S+)h", d).groups() for d in arrows)
        ]
        steep = [cell.lift > 0 for cell in cells if abs(cell.lift) >= 0.06]
        assert rising == (steep if back else [])


@pytest.mark.parametrize("back", [False, True])
def test_the_file_is_small_and_shows_each_scene_in_its_turn(back, tmp_path):
    drawn = films()[back]
    assert_readable(drawn, limit=WIDTH)
    assert 13 * PHONE / WIDTH > 11  # pixels of the smallest text on a phone
    assert_well_made(drawn.svg())
    (path,) = save_figure(drawn, tmp_path / "film")
    assert path.stat().st_size < 200_000
    root = ElementTree.fromstring(path.read_text())
    scenes = [e for e in root.iter() if "scene" in e.attrib.get("class", "")]
    starts = [float(re.search(r"delay:(\S+)s", e.attrib["style"])[1]) for e in scenes]
    assert starts[0] == -SECONDS == -20
    lasts = np.diff([*starts, 0])  # seconds
    said = [
        " ".join(e.text for e in scene.iter() if e.attrib.get("class") == "says")
        for scene in scenes
    ]
    lengths = np.array([len(text) for text in said])
    assert np.allclose(lasts, GLANCE + (SECONDS - 6 * GLANCE) * lengths / lengths.sum(), atol=0.02)
    for text in said:  # a scene's first sentence is said, however long it is
        assert text
        assert len(text) <= SPOKEN or len(re.findall(r"[.?!](?: |$)", text)) == 1
    style = "".join(e.text for e in root.iter() if e.tag.endswith("style"))
    ends = re.findall(r"mha-scene-\d {.*?([\d.]+)%, 99%", style)  # of the film, in percent
    assert np.allclose([float(end) * SECONDS / 100 for end in ends], lasts, atol=0.03)
    assert f"animation: {SECONDS}s linear infinite" in style
    assert (
        "@media (prefers-reduced-motion: reduce) { .mha-picture .scene { animation: none" in style
    )
    assert scenes[0].attrib["class"] == "scene first"


def test_a_notebook_gets_all_scenes_and_nothing_that_moves():
    html = films()[0]._repr_html_()
    assert html.count("<img") == 6
    assert "animation" not in html


def test_what_is_said_in_a_few_seconds_is_whole_sentences():
    text = "One. " + "Two is long " * 8 + "indeed. Three. Four?"
    assert spoken(text, is_last=False) == "One. Three. Four?"
    assert spoken("A first one. " + "b" * 85 + ".", is_last=True) == "b" * 85 + "."
    assert spoken("c" * 120 + ".", is_last=False) == "c" * 120 + "."
