"""The limits of a run, and how its process is held to them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

STATM = Path("/proc/self/statm")  # Linux: pages of address space, and more
FILES = 64  # that an isolated run may have open
SPARE = 32 * 2**20  # bytes that are kept to tell that memory has run out


class Limits(NamedTuple):
    """The limits of a run: for loading and all calls together."""

    seconds: float = 10.0  # of wall time
    memory: int = 2 * 2**30  # bytes, beyond those that the process has already
    output: int = 20_000  # characters that are kept of what it prints
    answers: int = 2**26  # bytes of all answers


def limit_softly(limits: Limits) -> Callable[[], None]:
    """Limit this process; return a function that lifts the limit on memory, to report it."""
    import resource  # not on Windows

    def limit(kind: int, most: int) -> None:
        soft, hard = resource.getrlimit(kind)
        least = min(n for n in (most, soft, hard) if n != resource.RLIM_INFINITY)
        resource.setrlimit(kind, (least, hard))

    lift = partial(resource.setrlimit, resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS))
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, limits.memory)
    if STATM.exists():
        limit(resource.RLIMIT_AS, _address_space() + limits.memory)
    return lift


def limit_for_good(limits: Limits, room: int, threads: int) -> None:
    """Set limits that no code in this process can raise again.

    `room` is the most bytes of a file, `threads` the most threads of the user in all.
    """
    import resource

    most = {
        resource.RLIMIT_NPROC: threads, resource.RLIMIT_NOFILE: FILES, resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: int(limits.seconds) + 2, resource.RLIMIT_FSIZE: room,
    }  # fmt: skip
    if STATM.exists():
        most[resource.RLIMIT_AS] = _address_space() + limits.memory + SPARE
    for kind, number in most.items():
        hard = resource.getrlimit(kind)[1]
        number = number if hard == resource.RLIM_INFINITY else min(number, hard)
        soft = number - (kind == resource.RLIMIT_CPU)  # a signal with the reason comes first
        resource.setrlimit(kind, (soft, number))


def _address_space() -> int:
    """Return how many bytes this process has mapped."""
    import resource

    return int(STATM.read_text().split()[0]) * resource.getpagesize()


def in_bytes(number: int) -> str:
    """Return a number of bytes in three digits and a unit."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} B"
