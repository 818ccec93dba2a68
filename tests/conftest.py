import os
import subprocess
import sys
from types import SimpleNamespace

# pytest-xdist has one process a core: a thread that waits must not keep another's core busy, and
# two NumPys with two threads each, which wait by spinning, take ten times as long to train a model
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

import mha_numpy
from mha_numpy import cli
from tests.backends import EACH_BACKEND


def is_by_kernel(item):
    return item.get_closest_marker("kernel") is not None


def pytest_collection_modifyitems(items):
    """Leave what runs a kernel to the end: numba compiles them meanwhile."""
    items.sort(key=is_by_kernel)


COMPILING = pytest.StashKey[subprocess.Popen]()


def pytest_configure(config):
    """Compile all kernels in another process, where all tests run: it takes half a minute."""
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist
    is_whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if is_whole_suite and not is_worker and not config.option.collectonly:
        config.stash[COMPILING] = subprocess.Popen(
            [sys.executable, "-m", "mha_numpy", "compile"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def pytest_unconfigure(config):
    """Leave no process behind."""
    if COMPILING in config.stash:
        config.stash[COMPILING].terminate()
        config.stash[COMPILING].wait()


@pytest.fixture
def rng():
    return np.random.default_rng(20240229)


@pytest.fixture(params=EACH_BACKEND)
def backend(request):
    """Run a test by each backend."""
    with mha_numpy.backend(request.param):
        yield request.param


@pytest.fixture
def sizes():
    """Pairwise different sizes: equal ones hide transposes."""
    return SimpleNamespace(B=4, H=6, H_kv=3, T_q=5, T_k=7, d_k=11, d_v=13, D=17)


@pytest.fixture
def qkv(rng, sizes):
    """Queries, keys and values for grouped attention."""
    s = sizes
    return (
        rng.normal(size=(s.B, s.H, s.T_q, s.d_k)),
        rng.normal(size=(s.B, s.H_kv, s.T_k, s.d_k)),
        rng.normal(size=(s.B, s.H_kv, s.T_k, s.d_v)),
    )


@pytest.fixture
def program(capsys):
    """A function that runs the program in this process: its exit code, and what it prints."""

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # from argparse
            code = stop.code
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, out=printed.out, err=printed.err)

    return run
