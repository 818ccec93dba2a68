"""The sharing map: who is drawn where, in which colour, and in words."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from mha_numpy.show.pictures import head_color, sharing_map
from tests.show.pictures.helpers import words_of

SIZES = [(8, 8), (8, 2), (12, 4), (8, 1), (1, 1), (64, 8), (71, 1)]


def squares(picture):
    """Return the squares of query heads and of key/value heads, left to right."""
    (ax,) = picture.axes
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    top = min(patch.get_y() for patch in found)
    rows = ([p for p in found if (p.get_y() == top) == above] for above in (True, False))
    return [sorted(row, key=lambda patch: patch.get_x()) for row in rows]


@pytest.mark.parametrize(("H", "H_kv"), SIZES)
def test_heads_have_their_colours_and_stand_where_they_are_shared(H, H_kv):
    picture = sharing_map(H, H_kv)
    above, below = squares(picture)
    G = H // H_kv
    assert [to_hex(p.get_facecolor()) for p in above] == [head_color(h) for h in range(H)]
    assert [to_hex(p.get_facecolor()) for p in below] == [head_color(g * G) for g in range(H_kv)]
    middles = [p.get_x() + p.get_width() / 2 for p in above]
    for g, shared in enumerate(below):
        middle = sum(middles[g * G : (g + 1) * G]) / G
        assert shared.get_x() + shared.get_width() / 2 == pytest.approx(middle)


def test_in_words():
    assert sharing_map(8, 8).get_label() == "8 query heads read 8 key/value heads, each its own."
    assert sharing_map(8, 1).get_label() == "Query heads: 8. All read one key/value head."
    assert "query heads 0 to 3 read key/value head 0" in sharing_map(8, 2).get_label()
    titles = [words_of(sharing_map(8, n))[0] for n in (8, 2, 1)]
    assert titles == ["multi-head: H = 8, H_kv = 8", "grouped-query: H = 8, H_kv = 2",
                      "multi-query: H = 8, H_kv = 1"]  # fmt: skip
