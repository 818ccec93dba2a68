"""The sharing map: who is drawn where, in which colour, and in words."""

import pytest

from mha_numpy.show.pictures import sharing_map
from tests.show.pictures.helpers import root_of

SIZES = [(8, 8), (8, 2), (12, 4), (8, 1), (1, 1), (64, 8), (71, 1)]


def squares(picture):
    """Return (middle, token) of query heads and of key/value heads, left to right."""
    (panel,) = picture.panels
    found = [e.attrib for e in root_of(panel).iter() if e.attrib.get("class") == "head"]
    top = min(float(at["y"]) for at in found)
    rows = ([at for at in found if (float(at["y"]) == top) == above] for above in (True, False))
    return [
        sorted(
            (float(at["x"]) + float(at["width"]) / 2, at["style"].split("--m-")[1].rstrip(")"))
            for at in row
        )
        for row in rows
    ]


@pytest.mark.parametrize(("H", "H_kv"), SIZES)
def test_heads_have_their_colours_and_are_where_they_are_shared(H, H_kv):
    above, below = squares(sharing_map(H, H_kv))
    G = H // H_kv
    assert [token[-1] for _, token in above] == [str(h % 8) for h in range(H)]
    assert [token[-1] for _, token in below] == [str(g * G % 8) for g in range(H_kv)]
    for g, (middle, _) in enumerate(below):
        shared = [x for x, _ in above[g * G : (g + 1) * G]]
        assert middle == pytest.approx(sum(shared) / G, abs=1)


def test_in_words():
    told = "G = H / H_kv = 4: query head h reads key/value head h // 4."
    assert sharing_map(8, 2).alt == f"grouped-query: H = 8, H_kv = 2. {told}"
    titles = [sharing_map(8, n).title for n in (8, 2, 1)]
    assert titles == ["multi-head: H = 8, H_kv = 8", "grouped-query: H = 8, H_kv = 2",
                      "multi-query: H = 8, H_kv = 1"]  # fmt: skip
