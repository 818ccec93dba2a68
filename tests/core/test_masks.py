import numpy as np
import pytest

from mha_numpy import (
    RopeOptions,
    attention_forward,
    causal_mask,
    combine_masks,
    explain_mask,
    padding_mask,
    rope_forward,
    window_mask,
)
from mha_numpy.core import (
    DynamicScaling,
    document_ids,
    document_mask,
    document_positions,
    positions_from_mask,
)
from tests.compare import assert_close


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


class TestDocuments:
    def test_ids_from_lengths(self):
        assert document_ids(np.array([2, 0, 1])).tolist() == [0, 0, 2]
        assert document_ids(np.diff([0, 2, 3]), T=5).tolist() == [0, 0, 1, -1, -1]
        assert document_ids(np.array([], int), T=2).tolist() == [-1, -1]

    def test_the_mask_is_block_diagonal_and_padding_sees_nothing(self):
        expected = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], bool)
        ids = np.array([[7, 7, 3, -1], [0, 0, 0, 0]])
        assert np.array_equal(document_mask(ids[0]), expected)
        mask = document_mask(ids)
        assert mask.shape == (2, 1, 4, 4)
        assert np.array_equal(mask[0, 0], expected)
        assert mask[1].all()

    def test_positions_restart(self):
        ids = np.array([[7, 7, 3, 3, 3, -1, -1], [0, 0, 0, 0, 0, 1, 1]])
        positions = [[0, 1, 0, 1, 2, 0, 0], [0, 1, 2, 3, 4, 0, 1]]
        assert document_positions(ids).tolist() == positions
        assert document_positions(ids[0]).tolist() == positions[0]
        assert document_positions(np.zeros((0, 3), int)).shape == (0, 3)
        assert document_positions(np.zeros((2, 0), int)).shape == (2, 0)

    @pytest.mark.parametrize("rope", [RopeOptions(), RopeOptions(scaling=DynamicScaling(4.0, 2))])
    def test_packed_documents_are_as_each_alone(self, rng, rope):
        lengths, q, k, v = np.array([3, 1, 4]), *rng.normal(size=(3, 1, 2, 10, 6))
        ids = document_ids(lengths, T=10)

        def attend(q, k, v, positions, mask=None):
            q, k = (rope_forward(x, positions=positions, **rope._asdict())[0] for x in (q, k))
            return attention_forward(q, k, v, is_causal=True, mask=mask)[0]

        packed = attend(q, k, v, document_positions(ids), document_mask(ids))
        # rotations that do not depend on the length see distances alone
        going_on = attend(q, k, v, np.arange(10), document_mask(ids))
        assert np.allclose(going_on, packed) == (rope.scaling is None)
        rope = rope._replace(length=4.0)  # the longest document's
        ends = np.cumsum(lengths)
        for start, end in zip(ends - lengths, ends, strict=True):
            part = [x[:, :, start:end] for x in (q, k, v)]
            assert_close(packed[:, :, start:end], attend(*part, np.arange(end - start)))
        assert not packed[:, :, 8:].any()

    def test_padding_on_the_left_changes_nothing(self, rng):
        lengths, x = [2, 5], rng.normal(size=(2, 5, 8))
        real = np.arange(5) >= 5 - np.array(lengths)[:, None]
        x[~real] = np.nan
        rotated, _ = rope_forward(x, positions=positions_from_mask(real))
        padded, _ = attention_forward(
            rotated, rotated, x, is_causal=True, mask=real[:, None] & real[:, :, None]
        )
        for row, length in enumerate(lengths):
            alone = x[row, 5 - length :]
            turned, _ = rope_forward(alone)
            expected, _ = attention_forward(turned, turned, alone, is_causal=True)
            assert_close(padded[row, 5 - length :], expected)
        assert not padded[~real].any()


def test_positions_from_mask():
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], bool)
    expected = [[0, 0, 0, 1], [0, 1, 2, 3], [0, 1, 1, 1], [0, 0, 0, 0]]
    assert positions_from_mask(mask).tolist() == expected
    assert positions_from_mask(mask[0]).tolist() == expected[0]
    assert positions_from_mask(np.ones((3, 0), bool)).shape == (3, 0)
