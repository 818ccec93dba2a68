import numpy as np
import pytest

from mha_numpy import causal_mask, combine_masks, explain_mask, padding_mask, window_mask


def test_causal_mask():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True] * 3]
    assert causal_mask(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert causal_mask(2, 3, q_offset=1).tolist() == [[True, True, False], [True] * 3]
    assert causal_mask(2, 2, q_offset=-1).tolist() == [[False, False], [True, False]]


def test_an_offset_per_sequence():
    mask = causal_mask(2, 5, q_offset=np.array([0, 3, -2]))
    assert mask.shape == (3, 1, 2, 5)
    for b, offset in enumerate([0, 3, -2]):
        assert np.array_equal(mask[b, 0], causal_mask(2, 5, q_offset=offset))


@pytest.mark.parametrize(
    ("window", "row_2"),
    [
        ((None, None), [1, 1, 1, 1, 1]),
        ((0, 0), [0, 0, 1, 0, 0]),
        ((1, 0), [0, 1, 1, 0, 0]),
        ((0, 1), [0, 0, 1, 1, 0]),
        ((None, 1), [1, 1, 1, 1, 0]),
        ((1, None), [0, 1, 1, 1, 1]),
    ],
)
def test_window_is_inclusive(window, row_2):
    assert window_mask(4, 5, window=window)[2].tolist() == [bool(n) for n in row_2]


def test_window_moves_with_the_offset():
    assert np.array_equal(
        window_mask(2, 6, window=(1, 1), q_offset=2), window_mask(6, window=(1, 1))[2:4]
    )


def test_padding_mask():
    mask = padding_mask(np.array([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_combine_masks():
    a, b = np.array([True, True, False]), np.array([[True], [False]])
    assert combine_masks(a, None, b).tolist() == [[True, True, False], [False] * 3]
    assert combine_masks(None) is None
    assert combine_masks() is None


class TestExplain:
    def test_grid_and_blind_rows(self):
        mask = np.array([[True, False], [False, False]])
        assert explain_mask(mask, query_labels=["the", "cat"]).split("\n") == [
            "mask (2, 2), True = may attend: 1 of 4 cells",
            "  the # .",
            "  cat . .   <- sees nothing",
            "1 of 2 rows may attend to nothing: cat",
        ]

    def test_leading_axes_are_named(self):
        text = explain_mask(padding_mask(np.array([2, 0]), 2))
        assert "b=0 h=0\n  0 # #\nb=1 h=0\n  0 . .   <- sees nothing" in text
        assert text.endswith("1 of 2 rows may attend to nothing: b=1 h=0 0")

    def test_nothing_blind(self):
        assert explain_mask(causal_mask(3)).endswith("every one of 3 rows may attend to something")

    def test_large_masks_are_cut_but_counted(self):
        mask = np.ones((20, 1, 50, 60), bool)
        mask[19, 0, 49] = False
        text = explain_mask(mask)
        assert "... and 12 more grids" in text
        assert "... and 10 more rows" in text
        assert text.endswith("1 of 1000 rows may attend to nothing: b=19 h=0 49")
        assert max(map(len, text.split("\n"))) < 100

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3, 3)])
    def test_empty(self, shape):
        assert explain_mask(np.ones(shape, bool)).startswith("mask (")
