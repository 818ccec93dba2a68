"""Checkpoints that were changed by chance: each loads rightly, or changes nothing and says why."""

import copy
import json
import time

import numpy as np
import pytest

from mha_numpy.errors import FileError
from mha_numpy.layers import Linear, Residual
from mha_numpy.models.train import AdamW, History, load_checkpoint, save_checkpoint
from tests.models.train.test_checkpoint import everything, read, write

resource = pytest.importorskip("resource")

SECONDS, MEGABYTES = 2, 500
ODD = [
    None, True, False, -1, 0, 1, 2**53, 2**64, -(2**70), 2**128, 0.5, 1e308, np.nan, np.inf,
    "", "x", "AdamW", "PCG64", "\x00", "\ud800", [], {}, [[]], [None], {"": 0}, {"step": 1},
    [{"step": 2**80}], [1.5] * 12, [0] * 100_000, "x" * 1_000_000,
]  # fmt: skip
RAW = ["[" * 100_000, "[" * 900 + "]" * 900, "[" * 5000 + "]" * 5000, "9" * 5000, "1e999", "-", "{"]
MARK = "here stands what JSON cannot say"


def make_run():
    """Return a small optimizer that remembers something, and a generator."""
    rng = np.random.Generator(np.random.Philox(1))
    model = Residual(Linear(3, 3), Linear(3, 3), dropout_p=0.1)
    model.params["scale"] = np.array(1.0, np.float32)
    optimizer = AdamW(model, 1e-2)
    optimizer.step()
    return optimizer, rng


@pytest.fixture
def whole(tmp_path):
    """A checkpoint after 12 steps."""
    path, measures = tmp_path / "run.npz", [{"step": 0, "half": 0.5}, {"step": 12, "half": 0.25}]
    save_checkpoint(path, *make_run(), History([1.5] * 12, [2.5] * 12, measures))
    return path


def places(tree):
    """Yield every (dict or list, key) in a tree of JSON."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from places(tree[key])


def change_state(path, rng):
    """Change the state in one place or two."""
    arrays, state = read(path)
    raw = None
    for _ in range(rng.integers(1, 3)):
        found = list(places(state))
        if not found:
            break
        tree, key = found[rng.integers(len(found))]
        match rng.integers(7):
            case 0:
                del tree[key]
            case 1 if isinstance(tree, dict):
                tree["extra"] = copy.deepcopy(ODD[rng.integers(len(ODD))])
            case 2:
                tree[key], raw = MARK, RAW[rng.integers(len(RAW))]
            case 3 if isinstance(tree[key], (int, float)):
                tree[key] = tree[key] * 2 + 1
            case 4:
                tree[key] = found[rng.integers(len(found))][1]
            case _:
                tree[key] = copy.deepcopy(ODD[rng.integers(len(ODD))])
    text = json.dumps(state)
    write(path, arrays, text if raw is None else text.replace(json.dumps(MARK), raw))


def change_text(path, rng):
    """Change characters of the state."""
    arrays, state = read(path)
    text = list(json.dumps(state))
    for _ in range(rng.integers(1, 4)):
        text[rng.integers(len(text))] = chr(rng.integers(32, 127))
    write(path, arrays, "".join(text[: rng.integers(len(text)) if rng.random() < 0.2 else None]))


def change_arrays(path, rng):
    """Change one array: its name, dtype, shape or a number."""
    arrays, state = read(path)
    name = list(arrays)[rng.integers(len(arrays))]
    array = arrays.pop(name)
    changed = {
        name + "x" * int(rng.integers(2)): array.astype(["f8", "f4", ">f8", "i8"][rng.integers(4)]),
        name: array.ravel()[:-1] if rng.random() < 0.5 else array[None],
        "params/more": array,
    }
    if rng.random() < 0.3:
        array.flat[rng.integers(array.size)] = [np.nan, np.inf, -1][rng.integers(3)]
        changed = {name: array}
    key = list(changed)[rng.integers(len(changed))]
    write(path, {**arrays, key: changed[key]}, json.dumps(state))


def change_bytes(path, rng):
    """Flip bits of the file, cut it or insert something."""
    found = bytearray(path.read_bytes())
    at = int(rng.integers(len(found)))
    if rng.random() < 0.5:  # the end of a .npz file lists what is in it
        at = len(found) - 1 - at % 8000
    match rng.integers(6):
        case 0:
            del found[at:]
        case 1:
            del found[at : at + int(rng.integers(1, 100))]
        case 2:
            found[at:at] = rng.bytes(int(rng.integers(1, 100)))
        case _:
            for _ in range(rng.integers(1, 4)):
                found[at] ^= 1 << int(rng.integers(8))
                at = (at + int(rng.integers(1, 50))) % len(found)
    path.write_bytes(found)


CHANGES = [change_state, change_state, change_text, change_arrays, change_bytes]


@pytest.mark.parametrize("cases", [60, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_changed_checkpoint_loads_rightly_or_changes_nothing(cases, whole, tmp_path):
    original, path, again = whole.read_bytes(), tmp_path / "changed.npz", tmp_path / "again.npz"
    optimizer, draws = make_run()
    largest, slowest, loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    for case in range(cases):
        rng = np.random.default_rng(case)
        path.write_bytes(original)
        CHANGES[case % len(CHANGES)](path, rng)
        before, file, start = everything(optimizer, draws), path.read_bytes(), time.monotonic()
        error = None
        try:
            history = load_checkpoint(path, optimizer, draws)
        except Exception as raised:
            error = raised
        if error is None:
            loaded += 1
            save_checkpoint(again, optimizer, draws, history)
            np.testing.assert_equal(read(again), read(path), err_msg=str(case))
        else:
            assert isinstance(error, FileError), f"case {case}: {error!r}"
            assert everything(optimizer, draws) == before, case
            assert str(error).startswith(str(path)), case
            assert "\n" not in str(error), case
            assert len(str(error)) < 600, case
        slowest = max(slowest, time.monotonic() - start)
        assert path.read_bytes() == file, case
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest) / 1024
    print(f"{cases} cases, {loaded} loaded; at most {slowest:.2f} s, {grown:.0f} MB more")
    assert slowest < SECONDS
    assert grown < MEGABYTES
    assert 0 < loaded < cases
