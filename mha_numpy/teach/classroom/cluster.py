"""Grading one student after another, in processes or on the workers of a Dask cluster."""

from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from importlib import import_module
from typing import Any

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.results import Result, Task, given_up
from mha_numpy.teach.classroom.student import grade_one

RETRIES = 3  # where a worker dies
AHEAD = 4  # tasks for each thread of the cluster that are sent before it can take them
PATIENCE = 10  # seconds to reach the scheduler


def as_finished(
    executor: Executor, tasks: Iterable[Task], most: int
) -> Iterator[tuple[Task, Future[Result]]]:
    """Grade, and yield each task as it is done; at most `most` are in progress at a time."""
    waiting: dict[Future[Result], Task] = {}

    def finished() -> Iterator[tuple[Task, Future[Result]]]:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            yield waiting.pop(future), future

    for task in tasks:
        try:
            future = executor.submit(grade_one, task)
        except BrokenExecutor as error:  # then the result says so
            future = Future()
            future.set_exception(error)
        waiting[future] = task
        if len(waiting) >= most:
            yield from finished()
    while waiting:
        yield from finished()


def grade_in_cluster(tasks: Iterable[Task], address: str) -> Iterator[Result]:
    """Grade on the workers of a cluster; a task whose worker dies goes to another one.

    Tasks are read as the workers take them, and results come in the order in which they are done.
    `address` is that of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise ConfigError(
            "dask: dask.distributed is not installed: pip install 'mha-numpy[cluster]'"
        ) from error
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"dask: there is no scheduler at {address}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise ConfigError(f"dask: expected workers at {address}; there are none")
        executor = client.get_executor(retries=RETRIES)
        for task, future in as_finished(executor, tasks, AHEAD * threads):
            is_killed = isinstance(future.exception(), distributed.KilledWorker)
            yield given_up(task) if is_killed else future.result()
