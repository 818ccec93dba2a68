import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mha_numpy.errors import FileError
from mha_numpy.train import SGD, AdamW
from tests.train.models import bytes_of, make_model, train


def long_run(path):
    print("ready", flush=True)
    train(
        make_model().astype(np.float32), steps=90, checkpoint=path, checkpoint_every=2,
        measure=lambda model, step: {"third": 1 / 3}, measure_every=7,
    )  # fmt: skip


RUN = "import sys; from tests.train.test_checkpoint import long_run; long_run(sys.argv[1])"


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


def test_all_kinds_of_generators_go_on(tmp_path):
    for kind in (np.random.MT19937, np.random.Philox, np.random.SFC64):
        path = tmp_path / f"{kind.__name__}.npz"

        def run(steps, checkpoint, kind=kind):
            model = make_model(rng=np.random.Generator(kind(5)))
            train(model, steps=steps, checkpoint=checkpoint)
            return bytes_of(model)

        run(3, path)
        assert run(6, path) == run(6, None), kind


# NumPy 1 does not close what it could not write, and Python says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_loses_nothing(written):
    resource = pytest.importorskip("resource")
    before, model = written.read_bytes(), make_model()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        with pytest.raises(FileError, match=r"run\.npz: expected to write it; got File too large"):
            train(model, steps=14, checkpoint=written)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert written.read_bytes() == before
    assert [path.name for path in written.parent.iterdir()] == ["run.npz"]
    whole = make_model()
    train(whole, steps=14)
    assert bytes_of(model) == bytes_of(whole)


WRONG = {
    "truncated": (
        lambda path: path.write_bytes(path.read_bytes()[:-500]),
        make_model, AdamW, "whole .npz file of arrays; got a damaged or foreign one",
    ),
    "of params alone": (
        lambda path: make_model().save(path),
        make_model, AdamW, r"expected a checkpoint .*; got another file with \['embedding.table'",
    ),
    "of another model": (
        lambda path: None,
        lambda: make_model(activation="swiglu", bias=False), AdamW, ".*w_gate, .*; extra params/",
    ),
    "of another dtype": (
        lambda path: None,
        lambda: make_model().astype("float32"), AdamW,
        r"params/embedding.table \(7, 6\) of float64 for \(7, 6\) of float32",
    ),
    "of another optimizer": (
        lambda path: None, make_model, SGD, "expected optimizer SGD; got AdamW",
    ),
    "of other generators": (
        lambda path: None, lambda: make_model(rng=np.random.Generator(np.random.MT19937(1))), AdamW,
        r"expected generators \['PCG64', 'MT19937'\]; got \['PCG64', 'PCG64'\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_checkpoint_that_does_not_fit_changes_nothing(name, written):
    spoil, make, kind, expected = WRONG[name]
    spoil(written)
    model, file = make(), written.read_bytes()
    params, optimizer = bytes_of(model), kind(model, 0.1)
    with pytest.raises(FileError, match=rf"run\.npz: .*{expected}"):
        train(model, optimizer=optimizer, checkpoint=written)
    assert bytes_of(model) == params
    assert (optimizer.t, optimizer.memory) == (0, {})
    assert written.read_bytes() == file
