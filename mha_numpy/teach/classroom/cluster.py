"""grade_in_cluster: the same grading on the workers of a Dask cluster."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.results import Result, Task, given_up
from mha_numpy.teach.classroom.student import grade_one

RETRIES = 3  # where a worker dies
AHEAD = 4  # tasks for each thread of the cluster that are sent before it can take them
PATIENCE = 10  # seconds to reach the scheduler


def grade_in_cluster(tasks: Iterable[Task], address: str) -> Iterator[Result]:
    """Grade on the workers of a cluster; a task whose worker dies goes to another one.

    Tasks are read as the workers take them, and results come in the order in which they are done.
    `address` is that of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise ConfigError(
            "dask: expected dask.distributed to be installed: pip install 'mha-numpy[cluster]'"
        ) from error
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"dask: there is no scheduler at {address}: {error}") from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise ConfigError(f"dask: expected workers at {address}; there are none")
        waiting: dict[Any, Task] = {}
        done = distributed.as_completed(loop=client.loop)

        def finished() -> Result:
            future = next(done)
            task = waiting.pop(future)
            try:
                return future.result()
            except distributed.KilledWorker:
                return given_up(task)

        for task in tasks:
            future = client.submit(grade_one, task, key=f"grade-{task.key}", retries=RETRIES)
            waiting[future] = task
            done.add(future)
            if len(waiting) >= AHEAD * threads:
                yield finished()
        while waiting:
            yield finished()
