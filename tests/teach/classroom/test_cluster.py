"""grade_in_cluster: the workers of a Dask cluster give the same results, and one may die."""

import os
import signal
import sys

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom import cluster
from mha_numpy.teach.classroom.cluster import grade_in_cluster
from mha_numpy.teach.classroom.grade import grade
from mha_numpy.teach.exercises.child.limits import Limits
from tests.teach.classroom.classes import KINDS, assign, hand_in

QUICK = Limits(seconds=5)


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'mha-numpy\[cluster\]'"):
        next(grade_in_cluster([], "tcp://127.0.0.1:1"))


def test_a_scheduler_that_is_not_there(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with pytest.raises(ConfigError, match="there is no scheduler at tcp://127.0.0.1:1"):
        next(grade_in_cluster([], "tcp://127.0.0.1:1"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages that Dask brings
def test_a_worker_that_dies_changes_no_result(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    hand_in(tmp_path / "class", {name: KINDS[name] for name in KINDS if "LATE" not in name}, 16)
    assign(tmp_path / "hw")

    def run(out, **more):
        grade(
            tmp_path / "class", assignment=tmp_path / "hw", out=tmp_path / out, jobs=2,
            limits=QUICK, **more,
        )  # fmt: skip
        return (tmp_path / out / "grades.csv").read_bytes()

    whole = run("whole")
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as local:
        pids = [worker.pid for worker in local.workers.values()]
        killed = []

        def kill_one(*args):
            if len(list((tmp_path / "cluster" / "by_student").glob("s*"))) == 5 and not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)
            return written(*args)

        module = sys.modules["mha_numpy.teach.classroom.grade"]
        written = module.write_atomically
        monkeypatch.setattr(module, "write_atomically", kill_one)
        assert run("cluster", dask=local.scheduler_address) == whole
        assert killed
