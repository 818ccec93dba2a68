import tracemalloc

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, DTypeError, FileError
from mha_numpy.layers import FeedForward, LayerNorm, Linear, Residual


def make_layer(rng=0, **options):
    """Return a layer with params below it, none of them 0."""
    layer = Residual(FeedForward(3, 5, rng=rng, **options), LayerNorm(3))
    for _, param in layer.named_params():
        param += 0.5
    return layer


def bytes_of(layer):
    return {name: param.tobytes() for name, param in layer.named_params()}


def test_params_come_back_in_their_own_arrays(tmp_path):
    layer, other = make_layer(1), make_layer(2)
    arrays = [array for _, array in other.named_params()]
    other.backward(other(np.ones((2, 3))))
    layer.save(tmp_path / "params.npz")
    assert other.load(str(tmp_path / "params.npz")) is other
    assert bytes_of(other) == bytes_of(layer) != bytes_of(make_layer(2))
    assert all(a is b for (_, a), b in zip(other.named_params(), arrays, strict=True))
    assert not other.layer.grads
    with np.load(tmp_path / "params.npz", allow_pickle=False) as file:
        assert set(file) == {name for name, _ in layer.named_params()}


def test_a_small_file_is_rounded_and_read_into_the_layers_dtype(tmp_path):
    layer, other = Linear(64, 64, rng=1), Linear(64, 64, rng=2).astype(np.float32)
    layer.save(tmp_path / "whole.npz")
    layer.save(tmp_path / "small.npz", dtype=np.float16)
    other.load(tmp_path / "small.npz")
    assert other.params["w"].dtype == np.float32
    np.testing.assert_array_equal(other.params["w"], layer.params["w"].astype(np.float16))
    sizes = [(tmp_path / name).stat().st_size for name in ("small.npz", "whole.npz")]
    assert 4 * sizes[0] < sizes[1]


def test_bfloat16_is_written_as_float32(tmp_path):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    layer, other = Linear(4, 4, rng=1).astype(dtype), Linear(4, 4, rng=2).astype(dtype)
    layer.save(tmp_path / "params.npz")
    other.load(tmp_path / "params.npz")
    assert other.params["w"].dtype == dtype
    np.testing.assert_array_equal(other.params["w"], layer.params["w"])


def test_a_dtype_that_cannot_hold_the_params_is_refused(tmp_path):
    layer = Linear(2, 2)
    layer.params["w"][0, 0] = 1e5
    with pytest.raises(ConfigError, match=r"^dtype: expected one that holds .* w, up to 1.0e\+05"):
        layer.save(tmp_path / "params.npz", dtype=np.float16)
    with pytest.raises(DTypeError, match="^dtype: expected a float dtype"):
        layer.save(tmp_path / "params.npz", dtype=np.int8)
    assert not list(tmp_path.iterdir())


def write_npz(path, **arrays):
    with path.open("wb") as file:
        np.savez(file, **arrays)


WRONG = {
    "another layer": (
        lambda path: make_layer(activation="swiglu", bias=False).save(path),
        r"got missing layer.b_in, layer.b_out; extra layer.w_gate",
    ),
    "another width": (
        lambda path: Residual(FeedForward(3, 4), LayerNorm(3)).save(path),
        r"layer.w_in \(3, 4\) of float64 for \(3, 5\) of float64; layer.b_in",
    ),
    "words": (
        lambda path: write_npz(
            path, **dict(make_layer().named_params()) | {"norm.gain": np.array(["a", "b", "c"])}
        ),
        r"norm.gain \(3,\) of <U1 for \(3,\) of float64",
    ),
    "pickled": (
        lambda path: write_npz(path, gain=np.array([{}, 1], object)),
        "foreign one: .*allow_pickle=False",
    ),
    "no arrays": (lambda path: path.write_text("{}"), "foreign one: File is not a zip file"),
    "empty": (lambda path: path.write_bytes(b""), "damaged or foreign one"),
    "nothing": (lambda path: None, "expected a readable file: No such file"),
    "a folder": (lambda path: path.mkdir(), "expected a readable file: Is a directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_does_not_fit_changes_nothing(name, tmp_path):
    write, expected = WRONG[name]
    path, layer = tmp_path / "params.npz", make_layer()
    write(path)
    before = bytes_of(layer)
    with pytest.raises(FileError, match=rf"params\.npz: .*{expected}"):
        layer.load(path)
    assert bytes_of(layer) == before


def test_a_damaged_file_gives_an_error_or_the_right_params(tmp_path, rng):
    path, layer, other = tmp_path / "params.npz", make_layer(1), make_layer(2)
    layer.save(path, dtype=np.float64)
    whole, before, refused = path.read_bytes(), bytes_of(other), 0
    truncated = [whole[:size] for size in rng.integers(len(whole), size=20)]
    flipped = [
        whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        for place in rng.integers(len(whole), size=300)
    ]
    for damage in truncated + flipped:
        path.write_bytes(damage)
        try:
            other.load(path)
        except FileError:
            refused += 1
            assert bytes_of(other) == before
        else:
            assert bytes_of(other) == bytes_of(layer)
            other = make_layer(2)
    assert refused > 200


def test_numbers_that_the_layers_dtype_cannot_hold_change_nothing(tmp_path):
    path, layer = tmp_path / "params.npz", make_layer()
    layer.norm.params["gain"][...] = 1e300
    layer.save(path)
    other = make_layer(2).astype(np.float32)
    before = bytes_of(other)
    with pytest.raises(FileError, match=r"npz: dtype: expected .* norm.gain, up to 1.0e\+300; got"):
        other.load(path)
    assert bytes_of(other) == before


@pytest.mark.parametrize("path", [None, 5, b"x", [], "a\0b", "\ud800"])
def test_what_is_no_path_is_refused(path):
    for use in (Linear(2, 2).load, Linear(2, 2).save):
        with pytest.raises(ConfigError, match="^path: expected a path; got "):
            use(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FileError, match=r"no/params\.npz: cannot write it: No such file"):
        make_layer().save(tmp_path / "no" / "params.npz")


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(tmp_path):
    path = tmp_path / "params.npz"
    np.savez_compressed(path, w=np.zeros((5000, 5000)), b=np.zeros(2))  # 200 KB, of 200 MB
    tracemalloc.start()
    with pytest.raises(FileError, match="got a damaged or foreign one: it unpacks to more than"):
        Linear(2, 2).load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
