"""Files of models and runs, damaged at random: each loads rightly or gives one error of ours.

``python -m tests.models.damage KIND CASES`` prints a JSON object with what went wrong and with the
most that a case took; the tests run it, since its limit on memory is one of the whole process.
"""

import copy
import hashlib
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from mha_numpy.errors import FileError, MhaError
from mha_numpy.layers import Linear, Residual
from mha_numpy.models import from_pretrained
from mha_numpy.models.config import FIELDS
from mha_numpy.models.pretrained import KINDS as MODELS_OF_KINDS
from mha_numpy.models.train import AdamW, History, load_checkpoint, save_checkpoint
from mha_numpy.models.weights import to_layout
from mha_numpy.models.weights.layout import plain_names
from mha_numpy.models.weights.layouts import LAYOUTS
from tests.models.test_pretrained import CONFIGS, make_folder
from tests.models.train.test_checkpoint import everything, read, write

ROOM = 500 * 2**20  # bytes of memory beyond those at the start
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
NAMES = [
    *sorted({field.name for fields in FIELDS.values() for field in fields}),
    "rope_theta", "rope_scaling", "rope_type", "mlp_bias", "torch_dtype", "layer_types",
    "partial_rotary_factor", "rope_local_base_freq",
    "sliding_window_pattern", "max_window_layers", "use_sliding_window", "quantization_config", "",
    "\n",
    "dtype", "shape", "data_offsets", "x", "two\nlines", "__metadata__", "history", "step",
]  # fmt: skip
VALUES = [
    # sizes and other numbers
    None, True, False, 0, 1, 2, 3, 4, 6, 8, 10, 12, 16, -1, -3, 1.0, 0.5, -0.0, 1e-7, 1e-45, 1e30,
    1e300, 5e-324, float("inf"), float("nan"), 10**6, 10**9, 2**31, 2**53, 2**60, 2**63, 2**64,
    -(2**70), 2**128, 10**100, 10**4000,
    # words of a config, of tensors, of an index, of a checkpoint
    "", "x", "2", "gelu", "gelu_new", "relu", "silu", "swish", "default", "linear", "absolute",
    ["sliding_attention", "full_attention"], ["full_attention"] * 2,
    {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0},
    *CONFIGS, *DTYPES, "BF16", "F8_E4M3", "I64", "C64", "BOOL", "a.safetensors", "c.safetensors",
    "..", ".", "/", "../a.safetensors", "config.json", "/dev/zero", "AdamW", "PCG64",
    "\n", "\0", "\ud800", "two\nlines", "long" * 2000, "x" * 1_000_000,
    # what holds others
    [], [1], [-1], [8], [0, 8], [8, 8], [2**62, 0], [1] * 70, [[2]], [1.5] * 12, [0] * 100_000,
    {}, {"a": 1}, {"\n": [None]}, [{"step": 2**80}], {"rope_theta": 100.0}, {"type": "default"},
    {"rope_type": "default", "rope_theta": 5e5}, {"rope_type": "llama3"}, {"rope_theta": None},
    {"rope_theta": 1e-300}, {"rope_type": []},
]  # fmt: skip


def pick(rng, values):
    """Return one of a list's values as it is, where a generator would make an array."""
    return values[rng.integers(len(values))]


def damage_bytes(rng, whole):
    """Cut, flip, insert, repeat or nest some bytes."""
    at, to = sorted(rng.integers(len(whole) + 1, size=2))
    return [
        lambda: whole[:at],
        lambda: whole[:at] + whole[to:],
        lambda: whole[:at] + bytes([whole[at - 1] ^ 1 << rng.integers(8)]) + whole[at + 1 :],
        lambda: whole[:at] + rng.bytes(rng.integers(1, 9)) + whole[at:],
        lambda: whole[:to] + whole[at:],
        lambda: whole[:at] + pick(rng, [b"[", b'{"":']) * int(rng.integers(1, 50000)) + whole[at:],
        lambda: b"\xef\xbb\xbf" + whole,
    ][rng.integers(7)]()  # fmt: skip


def damage_tree(rng, tree):
    """Change, add, remove, rename or swap entries of a JSON object, or of what it holds."""
    for _ in range(rng.integers(1, 3)):
        values, value = tree, copy.deepcopy(pick(rng, VALUES))
        if rng.random() < 0.5:
            values = pick(rng, list(places_in(tree)))
        if rng.random() < 0.02:  # nested: twice is still within what Python writes
            depth = int(rng.integers(1, 450))
            value = json.loads("[" * depth + "]" * depth)
        if isinstance(values, list):
            values[:] = [*values[:-1], value] if rng.random() < 0.5 else values[:-1]
            continue
        name, other = (pick(rng, list(values) or [""]) for _ in range(2))
        new = pick(rng, [*NAMES, *tree])
        change = [
            {name: value}, {name: value}, {name: value}, {new: value}, {new: values.get(name)},
            {name: values.get(other), other: values.get(name)}, {},
        ][kind := rng.integers(7)]  # fmt: skip
        if kind in (4, 6):
            values.pop(name, None)
        values |= change


def places_in(tree):
    """Yield every dict and every list in a tree of JSON."""
    if isinstance(tree, (dict, list)):
        yield tree
        for part in list(tree.values() if isinstance(tree, dict) else tree):
            yield from places_in(part)


def damage_json(rng, values):
    """Return the text of a JSON object, with other values or other bytes."""
    if rng.random() < 0.2:
        return damage_bytes(rng, json.dumps(values).encode())
    damage_tree(rng, values)
    return json.dumps(values).encode()


def damage_config(rng, folder):
    """Damage a config.json."""
    path = folder / "config.json"
    path.write_bytes(damage_json(rng, json.loads(path.read_bytes())))


def damage_tensors(rng, folder):
    """Damage a safetensors file: its header, its numbers, its bytes; or an index of two files."""
    if rng.random() < 0.25:
        split_in_two(rng, folder)
    path = pick(rng, sorted(folder.glob("*.safetensors")))
    header, data = split_file(path)
    kind = pick(rng, ["header", "header", "number", "bytes"])
    if kind == "header":
        header = damage_json(rng, header)
        size = pick(rng, [len(header)] * 9 + [0, len(header) - 1, 2**63, 2**20])
        path.write_bytes(size.to_bytes(8, "little") + header + data)
    elif kind == "number" and header:
        start, end = pick(rng, list(header.values()))["data_offsets"]
        value = pick(rng, [np.nan, np.inf, -np.inf, 1e300, -1e39, 3.4e38, 1e-300, 1e-45, 5.0])
        data = data[:start] + np.full((end - start) // 8, value).tobytes() + data[end:]
        write_file(path, header, data)
    else:
        path.write_bytes(damage_bytes(rng, path.read_bytes()))


def split_in_two(rng, folder):
    """Put the arrays into two files with an index, which may be damaged."""
    path = folder / "model.safetensors"
    header, data = split_file(path)
    path.unlink()
    parts = ("a.safetensors", "b.safetensors")
    weight_map = {name: pick(rng, parts) for name in header}
    for part in parts:
        held, pieces = {}, b""
        for name, entry in header.items():
            if weight_map[name] == part or rng.random() < 0.01:
                begin, end = entry["data_offsets"]
                held[name] = entry | {"data_offsets": [len(pieces), len(pieces) + end - begin]}
                pieces += data[begin:end]
        write_file(folder / part, held, pieces)
    index = {"metadata": {}, "weight_map": weight_map}
    whole = damage_json(rng, index) if rng.random() < 0.7 else json.dumps(index).encode()
    (folder / "model.safetensors.index.json").write_bytes(whole)


def split_file(path):
    """Return the header and the data of a safetensors file."""
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + size]), whole[8 + size :]


def write_file(path, header, data):
    """Write a safetensors file."""
    header = json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def read_plainly(folder):
    """Return all arrays of a folder's files, read by a few lines that share nothing with ours."""
    found = {}
    one = folder / "model.safetensors"
    for path in [one] if one.exists() else sorted(folder.glob("?.safetensors")):
        header, data = split_file(path)
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            numbers = data[begin:end]
            if entry["dtype"] == "BF16":
                high = np.frombuffer(numbers, "<u2").astype(np.uint32) << 16
                array = high.view(np.float32)
            elif entry["dtype"] in DTYPES:
                array = np.frombuffer(numbers, DTYPES[entry["dtype"]])
            else:
                continue  # of a name that is no param
            found[name] = array.reshape(entry["shape"])
    return found


def assert_model_is_read(folder):
    """Load a folder, and fail unless its params are those of the file."""
    model = from_pretrained(folder)
    kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    _, layout = MODELS_OF_KINDS[kind]
    theirs = plain_names(read_plainly(folder), LAYOUTS[layout])
    for name, param in plain_names(to_layout(model, layout), LAYOUTS[layout]).items():
        assert np.isfinite(param).all(), name
        with np.errstate(all="ignore"):
            expected, exact = (
                theirs.pop(name).astype(np.float32),
                layout in ("bert", "gpt2", "llama"),
            )
            rounded = 0 if exact else 1e-6  # of gains that are stored as what they have above 1
            np.testing.assert_allclose(param, expected, rounded, rounded, err_msg=name)
    assert set(theirs) <= {"lm_head.weight"}
    with warnings.catch_warnings(action="ignore"):  # params of 3e38 overflow
        assert len(model(np.array([[0, 1, 2]])[:, : model.max_tokens])) == 1


def make_run():
    """Return a small optimizer that remembers something, and a generator."""
    model = Residual(Linear(3, 3, rng=0), Linear(3, 3, rng=0), dropout_p=0.1, rng=0)
    model.params["scale"] = np.array(1.0, np.float32)
    optimizer = AdamW(model, 1e-2)
    optimizer.step()
    return optimizer, np.random.Generator(np.random.Philox(1))


def write_run(folder):
    """Write a checkpoint after 12 steps."""
    measures = [{"step": 0, "half": 0.5}, {"step": 12, "half": 0.25}]
    save_checkpoint(folder / "run.npz", *make_run(), History([1.5] * 12, [2.5] * 12, measures))


def damage_checkpoint(rng, folder):
    """Damage a checkpoint: its state, one of its arrays, or its bytes."""
    path = folder / "run.npz"
    arrays, state = read(path)
    kind = pick(rng, ["state", "state", "state", "array", "bytes"])
    if kind == "bytes":
        path.write_bytes(damage_bytes(rng, path.read_bytes()))
        return
    if kind == "array":
        name = pick(rng, list(arrays))
        array = arrays.pop(name)
        number = pick(rng, [array.flat[0], np.nan, np.inf, -1])
        arrays |= pick(rng, [
            {name: array.astype(pick(rng, ["f8", "f4", ">f8", "i8"]))},
            {name: array.ravel()[:-1]}, {name: array[None]}, {f"{name}x": array},
            {"params/more": array}, {name: np.full_like(array, number)},
        ])  # fmt: skip
    write(path, arrays, damage_json(rng, state) if kind == "state" else json.dumps(state).encode())


def assert_checkpoint_is_read(folder):
    """Load a checkpoint; fail unless it holds again what is saved then, or nothing has changed."""
    path, (optimizer, rng) = folder / "run.npz", make_run()
    before = everything(optimizer, rng)
    try:
        history = load_checkpoint(path, optimizer, rng)
    except FileError:
        assert everything(optimizer, rng) == before
        raise
    with tempfile.TemporaryDirectory() as elsewhere:
        again = Path(elsewhere) / "again.npz"
        save_checkpoint(again, optimizer, rng, history)
        (arrays, state), (expected, expected_state) = read(again), read(path)
        np.testing.assert_equal(arrays, expected)
        assert state == expected_state


def make_model(rng, folder):
    make_folder(folder, pick(rng, list(CONFIGS)))


KINDS = {  # how a folder is written, damaged and checked
    "config": (make_model, damage_config, assert_model_is_read),
    "tensors": (make_model, damage_tensors, assert_model_is_read),
    "checkpoint": (lambda rng, folder: write_run(folder), damage_checkpoint,
                   assert_checkpoint_is_read),
}  # fmt: skip


def make_case(what, seed, folder):
    """Write a damaged folder."""
    rng, (make, damage, _) = np.random.default_rng([seed, len(what)]), KINDS[what]
    make(rng, folder)
    damage(rng, folder)


def state_of(folder):
    """Return names and contents of a folder's files."""
    return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in folder.iterdir()}


def check_case(what, folder):
    """Load what is in a folder; return the kind of its error, or "loads" where it is right."""
    before = state_of(folder)
    try:
        KINDS[what][2](folder)
    except MhaError as error:
        text = str(error)
        text.encode()  # it can be printed
        assert len(text.splitlines()) == 1, repr(text)
        assert "expected" in text, text
        assert str(folder) in text, text
        assert len(text) < 1000 + len(str(folder)), text
        return type(error).__name__
    finally:
        assert state_of(folder) == before
    return "loads"


def main(what, cases):
    """Run cases from 0 on; print a report."""
    import resource  # which Windows has not

    with tempfile.TemporaryDirectory() as name:  # all is imported before memory is limited
        KINDS[what][0](np.random.default_rng(0), Path(name))
        check_case(what, Path(name))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wrong, outcomes, longest = {}, Counter(), (0.0, -1)
    for seed in range(cases):
        with tempfile.TemporaryDirectory() as name:
            make_case(what, seed, Path(name))
            begin = time.perf_counter()
            try:
                outcomes[check_case(what, Path(name))] += 1
            except Exception as error:  # not one of ours, or a model that is not the file's
                wrong[seed] = f"{type(error).__name__}: {error}"[:500]
            longest = max(longest, (time.perf_counter() - begin, seed))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024
    report = {"wrong": wrong, "outcomes": outcomes, "seconds": longest, "megabytes": grown}
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
