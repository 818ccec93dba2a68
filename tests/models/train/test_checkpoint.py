import json
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from mha_numpy.errors import ConfigError, FileError
from mha_numpy.layers import Layer, Linear, MultiHeadAttention
from mha_numpy.models.train import (
    SGD,
    Adam,
    AdamW,
    History,
    ParamGroup,
    load_checkpoint,
    save_checkpoint,
)
from tests.models.train.models import bytes_of, make_model, train


def long_run(path):
    print("ready", flush=True)
    train(
        make_model().astype(np.float32), steps=90, checkpoint=path, checkpoint_every=2,
        measure=lambda model, step: {"third": 1 / 3}, measure_every=7,
    )  # fmt: skip


RUN = "import sys; from tests.models.train.test_checkpoint import long_run; long_run(sys.argv[1])"


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(tmp_path, rng):
    whole, killed = tmp_path / "whole.npz", tmp_path / "killed.npz"
    long_run(whole)
    kills = 0
    while True:
        run = subprocess.Popen([sys.executable, "-c", RUN, killed], stdout=subprocess.PIPE)
        with run:
            run.stdout.readline()
            time.sleep(rng.uniform(0.05, 0.2))
            if kills < 3:
                run.kill()
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL
        kills += 1
    assert kills >= 2  # a fast machine may be done before
    assert killed.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.npz", "whole.npz"]


@pytest.fixture
def written(tmp_path):
    """A checkpoint after 12 steps of 14."""
    path = tmp_path / "run.npz"
    train(make_model(), steps=14, stop=lambda history: history.step == 12, checkpoint=path)
    return path


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_generators_groups_and_momentum_go_on(kind, tmp_path):
    groups = [ParamGroup("*.gain *.b_*", momentum=0.5), ParamGroup("blocks.0*", learning_rate=1)]

    def run(steps, checkpoint):
        model = make_model(rng=np.random.Generator(kind(5)))
        optimizer = SGD(model, 0.1, momentum=0.9, nesterov=True, groups=groups)
        train(model, steps=steps, optimizer=optimizer, checkpoint=checkpoint)
        return bytes_of(model)

    run(3, tmp_path / "run.npz")
    assert run(6, tmp_path / "run.npz") == run(6, None)


class Keeps(Layer):
    """A layer with an option whose text is a place in memory."""

    def __init__(self, kept, backend):
        super().__init__()
        self.kept, self.backend, self.params["w"] = kept, backend, np.zeros(2)


def test_a_place_in_memory_and_the_backend_may_differ(tmp_path):
    path, rng, one, two = tmp_path / "run.npz", np.random.default_rng(0), object(), object()
    save_checkpoint(path, Adam(Keeps(one, "numpy")), rng, History([2.5], [0.5]))
    other = Adam(Keeps(two, "loops"), backend="loops")
    assert load_checkpoint(path, other, rng).losses == [2.5]


def test_a_finished_run_says_so_and_a_longer_one_is_refused(written, capsys):
    train(make_model(), steps=14, checkpoint=written)
    file, model = written.read_bytes(), make_model()
    before = bytes_of(model)
    with pytest.raises(FileError, match=r"run.npz: steps: expected at least the 14 of .*; got 13"):
        train(model, steps=13, checkpoint=written)
    assert bytes_of(model) == before
    assert written.read_bytes() == file
    assert capsys.readouterr().err == ""
    history = train(model, steps=14, checkpoint=written, progress=True)
    assert (history.step, written.read_bytes()) == (14, file)
    assert capsys.readouterr().err == f"training: {written} has all 14 steps already\n"


# NumPy 1 does not close what it could not write, and Python says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_loses_nothing(written):
    resource = pytest.importorskip("resource")
    before, model = written.read_bytes(), make_model()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(FileError, match=r"run\.npz: cannot write it: File too large"):
            train(model, steps=14, checkpoint=written)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == ["run.npz"]
    whole = make_model()
    train(whole, steps=14)
    assert bytes_of(model) == bytes_of(whole)


def read(path):
    """Return the arrays of a checkpoint, and its state."""
    with zipfile.ZipFile(path) as file:
        arrays = {part.removesuffix(".npy"): np.load(file.open(part)) for part in file.namelist()}
    return arrays, json.loads(arrays.pop("state").tobytes())


def write(path, arrays, text):
    np.savez(path, state=np.frombuffer(text, np.uint8), **arrays)


REMOVED = object()


def with_state(place, value):
    """Return a function that changes one place of a checkpoint's state; the file stays intact."""

    def spoil(path):
        arrays, state = read(path)
        *outer, last = [int(key) if key.isdigit() else key for key in place.split()]
        tree = state
        for key in outer:
            tree = tree[key]
        if value is REMOVED:
            del tree[last]
        else:
            tree[last] = value
        write(path, arrays, json.dumps(state).encode())

    return spoil


def put_nan(path):
    arrays, state = read(path)
    arrays["memory/norm.gain/1"][0] = np.nan
    write(path, arrays, json.dumps(state).encode())


STATES = [  # a place in a checkpoint's state, what is there, and what is said
    ("t", -1, "t: expected an integer >= 0; got -1"),
    ("t", "many", "t: expected an integer; got 'many'"),
    ("t", REMOVED, "state: expected format, .*, history; got"),
    ("history", REMOVED, "state: expected .*, t, generators, history; got"),
    ("format", "checkpoint 1", r"expected a checkpoint \(.* 3\); got 'checkpoint 1'"),
    ("history", 3, "history: expected losses, norms, measures; got 3"),
    ("history losses", 3, "history.losses: expected a list; got 3"),
    ("history losses", ["1"], r"history.losses: expected finite numbers; got \['1'\]"),
    ("history norms 0", REMOVED, "history.norms: expected 12, one for each loss; got 11"),
    ("history measures", [3], "history.measures: expected dicts with a 'step'; got 3"),
    ("generators 1", REMOVED, r"generators: expected \['PCG64', 'PCG64'\]; got \['PCG64'\]"),
    ("generators 1 state inc", REMOVED, "generators: expected a state of PCG64; got {"),
    ("generators 1 state state", -1, "generators: expected a state of PCG64; got"),
    ("options", 3, "options: expected a dict; got 3"),
    ("options optimizer", "Adam", "optimizer: expected AdamW; got Adam;"),
    ("options model.blocks.1", REMOVED, "model.blocks.1: expected DecoderBlock; got nothing;"),
    ("options model.tied", "True", "model.tied: expected the default; got True;"),
]


def with_other_heads():
    """Return the model with as many params, of the same shapes."""
    model = make_model()
    model.blocks[1].attention.layer = MultiHeadAttention(6, 3, dropout_p=0.2, rng=0)
    return model


def with_other_params():
    """Return the model with one param less and one more."""
    model = make_model()
    model.norm.params["more"] = model.norm.params.pop("bias")
    return model


def with_groups(model, rate):
    return AdamW(model, rate, groups=[ParamGroup("*.gain", weight_decay=0.0)])


WRONG = [  # what is done to the file, or which model or optimizer reads it; and what is said
    *[({"spoil": with_state(place, value)}, message) for place, value, message in STATES],
    ({"spoil": put_nan}, "expected finite numbers; got nan or inf in memory/norm.gain/1"),
    ({"spoil": lambda path: path.write_bytes(path.read_bytes()[:-500])},
     "whole .npz file of arrays; got a damaged or foreign one"),
    ({"spoil": lambda path: make_model().save(path)},
     r"expected a checkpoint .*; got a different file with \['embedding.table'"),
    ({"spoil": lambda path: write(path, {}, b"[" * 10**5)},
     "expected JSON; got brackets nested too deeply"),
    ({"kind": SGD}, "optimizer: expected SGD; got AdamW;"),
    ({"kind": lambda model, rate: AdamW(model, 2 * rate)},
     "optimizer.learning_rate: expected 0.02; got 0.01;"),
    ({"kind": with_groups}, r"optimizer.groups: expected \[ParamGroup\(.*; got \[\];"),
    ({"make": lambda: make_model(activation="relu")},
     "model.activation: expected 'relu'; got the default;"),
    ({"make": with_other_heads}, "model.blocks.1.attention.layer.num_heads: expected 3; got 2;"),
    ({"make": with_other_params}, "missing params/norm.more, .*; extra params/norm.b"),
    ({"make": lambda: make_model().astype("float32")},
     r"params/embedding.table \(7, 6\) of float64 for \(7, 6\) of float32"),
    ({"make": lambda: make_model(rng=np.random.Generator(np.random.MT19937(1)))},
     r"generators: expected \['PCG64', 'MT19937'\]; got \['PCG64', 'PCG64'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_a_checkpoint_that_does_not_fit_changes_nothing(case, message, written):
    case = {"spoil": lambda path: None, "make": make_model, "kind": AdamW, **case}
    case["spoil"](written)
    model, file = case["make"](), written.read_bytes()
    optimizer, rng = case["kind"](model, 1e-2), np.random.default_rng(7)
    before = everything(optimizer, rng)
    with pytest.raises(FileError, match=rf"run\.npz: .*{message}"):
        load_checkpoint(written, optimizer, rng)
    with pytest.raises(FileError, match=rf"run\.npz: .*{message}"):
        train(model, optimizer=optimizer, checkpoint=written)
    assert everything(optimizer, rng) == before
    assert written.read_bytes() == file


def everything(optimizer, rng):
    """Return all that a checkpoint may change."""
    memory = {
        name: [array.tobytes() for array in arrays] for name, arrays in optimizer.memory.items()
    }
    generators = [rng, *(v for layer in optimizer.layer.layers() for v in vars(layer).values())]
    states = [repr(g.bit_generator.state) for g in generators if isinstance(g, np.random.Generator)]
    return bytes_of(optimizer.layer), optimizer.t, memory, states


PLACES = [("MT19937", "state pos"), ("Philox", "buffer_pos")]


@pytest.mark.parametrize(("kind", "place"), PLACES)
def test_a_generator_that_would_read_beyond_its_array_is_refused(kind, place, tmp_path):
    rng = np.random.Generator(getattr(np.random, kind)(1))
    optimizer, path = SGD(Linear(2, 3), 0.1), tmp_path / "run.npz"
    save_checkpoint(path, optimizer, rng, History())
    with_state(f"generators 0 {place}", 1000)(path)
    with pytest.raises(FileError, match=f"generators: expected a state of {kind}"):
        load_checkpoint(path, optimizer, rng)


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    optimizer, rng = SGD(Linear(2, 3), 0.1), np.random.default_rng(0)
    for history, expected in {
        "history.norms: expected 1, one for each loss; got 0": History([2.5]),
        "history.losses: expected finite numbers": History([np.nan], [1.0]),
        "history: expected lists of numbers": History([object()], [1.0]),
    }.items():
        with pytest.raises(ConfigError, match=f"^{history}"):
            save_checkpoint(tmp_path / "run.npz", optimizer, rng, expected)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_layer_loads_the_params_of_a_checkpoint(dtype, tmp_path):
    path, model, other = tmp_path / "run.npz", make_model().astype(dtype), make_model(rng=5)
    train(model, checkpoint=path)
    assert bytes_of(other.astype(dtype).load(path)) == bytes_of(model)
    before = bytes_of(layer := Linear(2, 3))
    with pytest.raises(FileError, match=r"run.npz: .*; got missing w, b; extra embedding.table, "):
        layer.load(path)
    assert bytes_of(layer) == before


def test_a_history_is_one_line():
    history = History([4.172, 2.0, 1.0249], [1.0] * 3, [{"step": 0, "right": 0.25}] * 11)
    assert repr(history) == "History(3 steps, loss 4.17 -> 1.02, 11 measures)"
    assert repr(History()) == "History(0 steps)"
    assert repr(History([2.5], [1.0])) == "History(1 step, loss 2.50)"
