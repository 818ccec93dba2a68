"""The sizes in docs/kernels.md, in words and in its picture, are the kernels' own."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_the_caption_of_the_picture_has_the_sizes_of_the_kernel():
    pytest.importorskip("numba")
    from mha_numpy.kernels.host import AVX512
    from mha_numpy.kernels.product import ROWS
    from mha_numpy.kernels.tile import BLOCK

    caption = re.search(r"\(Left: [^)]*\)", PAGE.read_text(encoding="utf-8"))
    *sizes, rows, vectors, lanes = (int(n) for n in re.findall(r"(?<!\S)\d+", caption[0]))
    assert sizes == [BLOCK, BLOCK, 3 * BLOCK]
    assert (rows, vectors, lanes) == (ROWS, AVX512.vectors, AVX512.register_bytes // 4)


def test_the_table_of_machines_has_the_sizes_of_the_kernel():
    pytest.importorskip("numba")
    from mha_numpy.kernels import host
    from mha_numpy.kernels.product import ROWS

    rows = re.findall(
        r"^\| (.*) \| (\d+) bytes \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE
    )
    hosts = (host.AVX512, host.AVX2, host.NEON, host.BASELINE)
    for (_, size, lanes, product), machine in zip(rows, hosts, strict=True):
        assert int(size) == machine.register_bytes
        assert lanes == f"{machine.register_bytes // 4} / {machine.register_bytes // 8}"
        assert [int(n) for n in re.findall(r"\d+", product)] == [ROWS, machine.vectors]
