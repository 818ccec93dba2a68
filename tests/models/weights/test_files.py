"""Safetensors files: whole, in parts, damaged."""

import json
from functools import partial

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, FileError
from mha_numpy.models.weights import read_safetensors, write_safetensors
from mha_numpy.models.weights.files import read_header

pytest.importorskip("safetensors")

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([0.1, 1e30], np.float32)}


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_arrays_come_back(tmp_path):
    write_safetensors(tmp_path / "model.safetensors", ARRAYS | {"c": ARRAYS["a"].T})
    for path in (tmp_path, str(tmp_path / "model.safetensors")):
        assert_same(read_safetensors(path), ARRAYS | {"c": ARRAYS["a"].T})


def test_bfloat16_becomes_float32(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    write_safetensors(tmp_path / "model.safetensors", {"a": np.array([1.5, -3.0], bfloat16)})
    assert_same(read_safetensors(tmp_path), {"a": np.array([1.5, -3.0], np.float32)})


def write_index(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_several_files_are_one(tmp_path):
    for name, array in ARRAYS.items():
        write_safetensors(tmp_path / f"part-{name}.safetensors", {name: array})
    write_index(tmp_path, {name: f"part-{name}.safetensors" for name in ARRAYS})
    assert_same(read_safetensors(tmp_path), ARRAYS)


def test_an_index_that_does_not_fit_is_named(tmp_path):
    write_safetensors(tmp_path / "part.safetensors", {"a": ARRAYS["a"]})
    wrong = {
        "index.json: expected b in part.safetensors": dict.fromkeys("ab", "part.safetensors"),
        "other.safetensors: expected a file; there is none": {"a": "other.safetensors"},
        "expected a weight_map of names to files beside it": {"a": "../part.safetensors"},
        "expected a weight_map of names": ["a"],
        "beside it; got 'aaaa": {"a": "a" * 5000},
        "beside it; got 5$": {"a": 5},
        r"beside it; got \['x": {"a": ["x\0y"]},
        "beside it; got 'x.ny'": {"a": "x\ny"},
        "expected no array that is also in another file; got a$": {
            "a": "part.safetensors",
            "b": "copy",
        },
    }
    (tmp_path / "copy").write_bytes((tmp_path / "part.safetensors").read_bytes())
    for message, weight_map in wrong.items():
        write_index(tmp_path, weight_map)
        with pytest.raises(FileError, match=message):
            read_safetensors(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(FileError, match="index.json: expected JSON; got "):
        read_safetensors(tmp_path)


@pytest.mark.parametrize("harm", ["cut", "header", "foreign", "empty", "long"])
def test_a_damaged_file_is_one_error(harm, tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, ARRAYS)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[:-5], "header": whole.replace(b"[2,3]", b"[2,4]"),
            "foreign": b"PK\x03\x04" + whole, "empty": b"", "long": whole + b"more",
        }[harm]
    )  # fmt: skip
    with pytest.raises(FileError, match="expected a whole safetensors file; got a damaged or"):
        read_safetensors(path)


def test_the_header_has_the_shapes_of_all_arrays_and_no_numbers(tmp_path):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    kinds = [np.float16, np.int64, np.uint8, bool, bfloat16]
    arrays = ARRAYS | {f"{i}": np.ones((2, i), kind) for i, kind in enumerate(kinds)}
    write_safetensors(tmp_path / "model.safetensors", arrays)
    found, expected = read_header(tmp_path), read_safetensors(tmp_path)
    assert {n: (a.shape, a.dtype) for n, a in found.items()} == {
        n: (a.shape, a.dtype) for n, a in expected.items()
    }
    assert not any(any(array.strides) for array in found.values())


@pytest.mark.parametrize(
    "use", [read_safetensors, read_header, partial(write_safetensors, arrays={})]
)
@pytest.mark.parametrize("path", [None, 5, b"x", "a\0b"])
def test_what_is_no_path_is_refused(use, path):
    with pytest.raises(ConfigError, match="^path: expected a path; got "):
        use(path)


def test_no_file_and_no_place_for_one(tmp_path):
    with pytest.raises(FileError, match="model.safetensors: expected a file; there is none$"):
        read_safetensors(tmp_path)
    with pytest.raises(FileError, match="a.safetensors: cannot write it: "):
        write_safetensors(tmp_path / "none" / "a.safetensors", ARRAYS)


@pytest.mark.parametrize("package", ["safetensors", "ml_dtypes"])
def test_a_package_that_is_missing_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install 'mha-numpy\[pretrained\]'$"):
        read_safetensors(tmp_path / "model.safetensors")
