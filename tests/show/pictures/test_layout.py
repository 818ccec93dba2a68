"""Panels in rows: as few rows as fit, and even ones."""

import pytest

from mha_numpy.show.pictures.layout import Box, flow


@pytest.mark.parametrize(
    ("widths", "rows"),
    [
        ([2.0], [1]),
        ([2.0] * 4, [4]),
        ([2.0] * 5, [3, 2]),
        ([2.0] * 9, [3, 3, 3]),
        ([1.0, 1.0, 1.0, 8.0], [3, 1]),
        ([8.0, 1.0, 1.0, 1.0], [1, 3]),
        ([20.0, 1.0], [1, 1]),
    ],
)
def test_rows_of_panels_are_few_and_even(widths, rows):
    boxes = [Box(width, 1.0) for width in widths]
    assert [len(row) for row in flow(boxes)] == rows
