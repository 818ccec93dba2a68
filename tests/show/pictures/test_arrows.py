"""Arrows on circles, read back: where they point, which have names, what the words say."""

import numpy as np
from matplotlib.text import Annotation

from mha_numpy.show.pictures import arrows
from tests.show.pictures.helpers import turned


def tips_of(ax):
    return np.array([text.xy for text in ax.texts if isinstance(text, Annotation)])


def names_of(ax):
    return [text.get_text() for text in ax.texts if not isinstance(text, Annotation)]


def test_arrows_point_where_the_numbers_say():
    panels = turned(8)
    for ax, array in zip(arrows(panels, title="Turned").axes, panels.values(), strict=True):
        assert np.allclose(tips_of(ax), array)


def test_the_longest_arrow_of_all_is_the_radius():
    first, second = arrows({"a": np.array([[0, 4.0]]), "b": np.array([[2.0, 0]])}, title="t").axes
    assert tips_of(first).tolist() == [[0, 1]]
    assert tips_of(second).tolist() == [[0.5, 0]]


def test_names_do_not_overlap_and_those_without_room_are_left_out():
    picture = arrows(turned(8), title="Turned")
    assert len(names_of(picture.axes[0])) == 8
    assert names_of(picture.axes[3]) == ["0"]


def test_the_words_have_every_angle():
    words = arrows({"x": np.array([[1, 1], [0, -2]])}, title="t", labels=["a", "b"]).get_label()
    assert words == "t. x: a at 45°, b at -90°."
