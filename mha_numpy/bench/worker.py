"""A worker process: it measures, with its threads pinned before anything is imported."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Any, cast

from mha_numpy.errors import MhaError

COMMAND = (sys.executable, "-m", "mha_numpy.bench.measure")
THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS", "NPROC",  # the last is JAX's
)  # fmt: skip

Ask = Callable[..., Any]


class MeasurementError(MhaError, RuntimeError):
    """A measurement has ended without a figure."""


@contextmanager
def worker(threads: int, **env: str) -> Iterator[Ask]:
    """Start a process that takes jobs, one at a time; between them it is stopped.

    Parameters
    ----------
    threads : int
        For every library alike.
    **env : str
        Further environment variables.

    Yields
    ------
    ask : function
        ``ask(measure, **job)`` returns the result of one of `measure.MEASURES`. If the process has
        ended, it raises a MeasurementError with the last line of the process's error.

    Notes
    -----
    Idle threads of OpenMP, OpenBLAS or ONNX Runtime spin for a while, and take a core from the next
    contestant. Threads of a stopped process do not.

    Examples
    --------
    >>> with worker(threads=1) as ask:
    ...     ask("turn", who="numpy", shape="1,2,5,4", case=()) > 0
    True
    """
    pinned = {name: str(threads) for name in THREADS} | {"JAX_PLATFORMS": "cpu"}
    with (
        TemporaryFile() as complaints,
        subprocess.Popen(
            COMMAND, bufsize=0, env={**os.environ, **pinned, **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
        ) as process,
    ):  # fmt: skip
        jobs, replies = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)

        def ask(measure: str, **job: Any) -> Any:
            text = json.dumps({"measure": measure, "threads": threads, **job})
            _signal(process, "SIGCONT")
            reply = b""
            with suppress(BrokenPipeError):
                jobs.write(f"{text}\n".encode())
                reply = replies.readline()
            if not reply:
                code = process.wait()
                complaints.seek(0)
                said = complaints.read().decode(errors="replace").split("\n")
                last = next((line for line in reversed(said) if line), f"exit code {code}")
                raise MeasurementError(f"failed: {last}")
            _signal(process, "SIGSTOP")
            return json.loads(reply)

        try:
            yield ask
        finally:
            process.kill()


def _signal(process: subprocess.Popen[bytes], name: str) -> None:
    if hasattr(signal, name):
        process.send_signal(getattr(signal, name))
