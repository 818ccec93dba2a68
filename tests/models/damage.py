"""Files of models and runs, damaged at random: each loads rightly or gives one error of ours.

``python -m tests.models.damage KIND CASES`` prints a JSON object with what went wrong and with the
most that a case took; the tests run it, since its limit on memory is one of the whole process.
"""

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
    "rope_theta", "rope_scaling", "rope_type", "mlp_bias", "torch_dtype", "layer_types", "", "\n",
]  # fmt: skip
VALUES = [
    None, True, False, 0, 1, 2, 3, 4, 6, 8, 10, 12, 16, -1, -3, 1.0, 0.5, -0.0, 1e-7, 1e-45, 1e30,
    1e300, 5e-324, float("inf"), float("nan"), 10**6, 10**9, 2**31, 2**60, 2**63, 10**100, 10**4000,
    "", "x", "2", "gelu", "gelu_new", "relu", "silu", "swish", "default", "linear", "absolute",
    *CONFIGS, "\ud800", "two\nlines", "long" * 2000, [], [1], [[2]], {}, {"a": 1}, {"\n": [None]},
    {"rope_theta": 100.0}, {"rope_type": "default", "rope_theta": 5e5}, {"type": "default"},
    {"rope_type": "llama3"}, {"rope_theta": None}, {"rope_theta": 1e-300}, {"rope_type": []},
]  # fmt: skip
OF_STATE = [*VALUES, 2**53, 2**64, -(2**70), 2**128, "AdamW", "PCG64", "\x00", [{"step": 2**80}],
            [1.5] * 12, [0] * 100_000, "x" * 1_000_000]  # fmt: skip


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


def damage_object(rng, values, names, pool):
    """Change, add, remove, rename or swap entries of a JSON object."""
    name, other = (pick(rng, list(values) or [""]) for _ in range(2))
    new, value = pick(rng, names), pick(rng, pool)
    if rng.random() < 0.02:  # nested, around the depth at which Python gives up
        depth = int(rng.integers(1, 900))
        value = json.loads("[" * depth + "]" * depth)
    [
        lambda: values.update({name: value}),
        lambda: values.update({name: value}),
        lambda: values.update({name: value}),
        lambda: values.update({new: value}),
        lambda: values.pop(name, None),
        lambda: values.update({new: values.pop(name, None)}),
        lambda: values.update({name: values.get(other), other: values.get(name)}),
    ][rng.integers(7)]()


def damage_config(rng, folder):
    """Damage a config.json."""
    path = folder / "config.json"
    if rng.random() < 0.2:
        path.write_bytes(damage_bytes(rng, path.read_bytes()))
        return
    values = json.loads(path.read_bytes())
    for _ in range(rng.integers(1, 4)):
        damage_object(rng, values, NAMES, VALUES)
    path.write_text(json.dumps(values))


def damage_tensors(rng, folder):
    """Damage a safetensors file: its header, its numbers, its bytes; or an index of two files."""
    path = folder / "model.safetensors"
    if rng.random() < 0.25:
        damage_index(rng, folder)
    if rng.random() < 0.5 and path.exists():
        header, data = split_file(path)
        for _ in range(rng.integers(1, 3)):
            if rng.random() < 0.4 or not all(isinstance(each, dict) for each in header.values()):
                damage_object(
                    rng, header, [*header, "x", "two\nlines", "__metadata__"], [*header.values()]
                )
            else:
                entry = header[pick(rng, list(header))]
                pool = [*DTYPES, "BF16", "F8_E4M3", "I64", "C64", "BOOL", [0, 8], [8], [2**62, 0],
                        [1] * 70, [8, 8], [], [-1], [0], None, "x", 8, {}]  # fmt: skip
                damage_object(rng, entry, ["dtype", "shape", "data_offsets", "x"], pool)
        header = json.dumps(header).encode()
        size = pick(rng, [len(header)] * 9 + [0, len(header) - 1, 2**63, 2**20])
        path.write_bytes(size.to_bytes(8, "little") + header + data)
    elif rng.random() < 0.3 and path.exists():
        header, data = split_file(path)
        name = pick(rng, [n for n in header if n != "__metadata__"])
        start, end = header[name]["data_offsets"]
        value = pick(rng, [np.nan, np.inf, -np.inf, 1e300, -1e39, 3.4e38, 1e-300, 1e-45, 5.0])
        data = data[:start] + np.full((end - start) // 8, value).tobytes() + data[end:]
        write_file(path, header, data)
    else:
        path = pick(rng, sorted(folder.glob("*.safetensors")))
        path.write_bytes(damage_bytes(rng, path.read_bytes()))


def damage_index(rng, folder):
    """Put the arrays into two files with an index, and damage it."""
    path = folder / "model.safetensors"
    header, data = split_file(path)
    path.unlink()
    names, parts = list(header), ("a.safetensors", "b.safetensors")
    weight_map = {name: pick(rng, parts) for name in names}
    for part in parts:
        start, held, pieces = 0, {}, []
        for name in names:
            if weight_map[name] == part or rng.random() < 0.01:
                begin, end = header[name]["data_offsets"]
                held[name] = header[name] | {"data_offsets": [start, start + end - begin]}
                pieces.append(data[begin:end])
                start += end - begin
        write_file(folder / part, held, b"".join(pieces))
    index = {"metadata": {}, "weight_map": weight_map}
    pool = [*parts, "c.safetensors", "..", ".", "", "/", "../a.safetensors", "a" * 5000, "\n",
            "\0", "\ud800", None, 5, [], {}, "config.json", "/dev/zero"]  # fmt: skip
    for _ in range(rng.integers(0, 3)):
        damage_object(rng, pick(rng, [index, weight_map, weight_map]), [*names, "x"], pool)
    whole = json.dumps(index).encode()
    if rng.random() < 0.2:
        whole = damage_bytes(rng, whole)
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
    layout = "llama" if kind == "mistral" else kind
    theirs = plain_names(read_plainly(folder), LAYOUTS[layout])
    for name, param in plain_names(to_layout(model, layout), LAYOUTS[layout]).items():
        assert np.isfinite(param).all(), name
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(param, theirs.pop(name).astype(np.float32), name)
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


def places_in(tree):
    """Yield every dict and every list in a tree of JSON."""
    if isinstance(tree, (dict, list)):
        yield tree
        for part in list(tree.values() if isinstance(tree, dict) else tree):
            yield from places_in(part)


def damage_checkpoint(rng, folder):
    """Damage a checkpoint: its state as a tree or as text, one of its arrays, or its bytes."""
    path = folder / "run.npz"
    arrays, state = read(path)
    kind = pick(rng, ["tree", "tree", "text", "array", "bytes"])
    if kind == "bytes":
        path.write_bytes(damage_bytes(rng, path.read_bytes()))
        return
    for _ in range(rng.integers(1, 3) if kind == "tree" else 0):
        tree = pick(rng, list(places_in(state)))
        if isinstance(tree, dict):
            damage_object(rng, tree, [*state, "extra"], OF_STATE)
        elif tree:
            tree[rng.integers(len(tree))] = pick(rng, [*OF_STATE, tree[:-1], tree[0]])
    text = json.dumps(state).encode()
    if kind == "text":
        text = damage_bytes(rng, text)
    elif kind == "array":
        name = pick(rng, list(arrays))
        array = arrays.pop(name)
        number = np.array([array.flat[0], np.nan, np.inf, -1])[rng.integers(4)]
        changed = pick(rng, [
            {name: array.astype(pick(rng, ["f8", "f4", ">f8", "i8"]))},
            {name: array.ravel()[:-1]}, {name: array[None]}, {f"{name}x": array},
            {"params/more": array}, {name: np.full_like(array, number)},
        ])  # fmt: skip
        arrays |= changed
    write(path, arrays, text)


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
