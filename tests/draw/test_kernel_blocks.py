"""The picture of the tiled kernel says what the kernel does."""

from itertools import product

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from mha_numpy.core import causal_mask, window_mask
from mha_numpy.draw import kernel_blocks
from mha_numpy.draw.kernel_blocks import BLOCK, BLOCKS, CHUNKS, LANES, ROWS, WHOLE, WINDOW
from tests.draw.helpers import assert_nothing_overlaps, texts_of


@pytest.fixture(scope="module")
def picture():
    return kernel_blocks()


def boxes(ax, label):
    """Return (x, y, color) of all boxes whose label begins so."""
    found = [box for box in ax.findobj(Rectangle) if box.get_label().startswith(label)]
    return [(*box.get_xy(), to_hex(box.get_facecolor())) for box in found]


def places(values):
    """Return the place of each value among the different ones."""
    different = sorted({round(value, 6) for value in values})
    return [different.index(round(value, 6)) for value in values]


def test_the_sizes_are_the_kernel_s():
    pytest.importorskip("numba")
    from mha_numpy.kernels import host, problem

    assert BLOCK == problem.BLOCK
    assert host.AVX512.register_bytes == LANES * 4
    assert (host.AVX512.rows, host.AVX512.vectors) == (ROWS, BLOCK // LANES)


def test_blocks_are_computed_where_somebody_sees_a_cell(picture):
    x, y, colors = zip(*boxes(picture.axes[0], "computed"), strict=True)
    found = dict(zip(zip(places(y), places(x), strict=True), colors, strict=True))
    visible = window_mask(BLOCKS * BLOCK, window=(WINDOW * BLOCK - 1, 0))
    assert not (visible & ~causal_mask(BLOCKS * BLOCK)).any()
    for row, column in product(range(BLOCKS), repeat=2):
        cells = visible[row * BLOCK :, column * BLOCK :][:BLOCK, :BLOCK]
        assert ((row, column) in found) == cells.any()
        if cells.any():
            assert (found[row, column] == to_hex(WHOLE)) == cells.all()


def test_no_two_chunks_meet_the_same_share_in_a_round(picture):
    met = np.zeros((CHUNKS, CHUNKS), int)  # rounds, shares
    for number in range(CHUNKS):
        squares = boxes(picture.axes[2], f"round {number}")
        chunks, shares = places([x for x, *_ in squares]), places([y for _, y, _ in squares])
        assert sorted(chunks) == sorted(shares) == list(range(CHUNKS))
        for chunk, share in zip(chunks, shares, strict=True):
            assert share == (chunk + number) % CHUNKS
            met[number, share] += 1
    assert (met == 1).all()


def test_its_words_are_the_kernel_s(picture):
    said = " ".join(text.get_text() for text in texts_of(picture))
    for word in ("largest", "total", "factor", "heads", "scale * q.T", "chunk 3", "share 3"):
        assert word in said
        if word.isalpha():
            assert word in picture.get_label() or word == "heads"


def test_no_text_overlaps_or_is_cut(picture):
    assert_nothing_overlaps(picture)
    assert picture.get_figwidth() * 150 <= 1600
