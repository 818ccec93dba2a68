"""Arrows on circles, read back: where they point, which have names, what the words say."""

import re

import numpy as np

from mha_numpy.show.pictures import arrows
from mha_numpy.show.pictures.arrows import RADIUS
from tests.show.pictures.helpers import root_of, texts_in, turned


def tips_of(panel):
    """Return where the arrows end, in radii from the middle, y upward."""
    (circle,) = (e.attrib for e in root_of(panel).iter() if e.tag.endswith("circle"))
    middle = float(circle["cx"]), float(circle["cy"])
    heads = [e[1].attrib["d"] for e in root_of(panel).iter() if e.attrib.get("class") == "arrow"]
    ends = [[float(n) for n in re.match(r"M([\d.-]+) ([\d.-]+)", d).groups()] for d in heads]
    return (np.array(ends) - middle) * (1, -1) / RADIUS


def test_arrows_point_where_the_numbers_say():
    panels = turned(8)
    picture = arrows(panels, title="Turned")
    for panel, array in zip(picture.panels, panels.values(), strict=True):
        np.testing.assert_allclose(tips_of(panel), array, atol=0.002)


def test_the_longest_arrow_of_all_is_the_radius():
    panels = {"a": np.array([[0, 4.0]]), "b": np.array([[2.0, 0]])}
    first, second = arrows(panels, title="t").panels
    np.testing.assert_allclose(tips_of(first), [[0, 1]], atol=0.002)
    np.testing.assert_allclose(tips_of(second), [[0.5, 0]], atol=0.002)


def test_names_do_not_overlap_and_those_without_room_are_left_out():
    picture = arrows(turned(8), title="Turned")
    assert len(texts_in(picture.panels[0], "s")) == 8
    assert texts_in(picture.panels[3], "s") == ["0"]


def test_the_words_have_every_angle():
    words = arrows({"x": np.array([[1, 1], [0, -2]])}, title="t", labels=["a", "b"]).alt
    assert words == "t. x: a at 45°, b at -90°."
