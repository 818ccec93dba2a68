"""group_of_processes: a control group of Linux, which limits all processes of a run together."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MINE = Path("/proc/self/cgroup")
GONE = 5.0  # seconds that a group may take to become empty


@contextmanager
def group_of_processes(memory: int, processes: int) -> Iterator[Callable[[], None]]:
    """Make a group, if this process may; yield a function that enters it, and remove it at the end.

    Both kinds are known: version 2 has one tree for all limits, version 1 a tree for each.
    """
    limits = {
        "pids.max": processes,
        "memory.max": memory, "memory.swap.max": 0,
        "memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory,
    }  # fmt: skip
    groups = [group for place in _places() if (group := _make(place, limits))]

    def enter() -> None:
        for group in groups:
            (group / "cgroup.procs").write_text("0")  # this process

    try:
        yield enter
    finally:
        for group in groups:
            _remove(group)


def _places() -> Iterator[list[Path]]:
    """Yield, for each tree, the folders in which a group can be made, the best first."""
    with suppress(OSError):
        for line in MINE.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in ("", "pids", "memory"):
                own = ROOT / kinds / path.lstrip("/")
                # in version 2 a group that has processes itself passes no limits on; its parent may
                yield [own, *([own.parent] if path != "/" and not kinds else [])]


def _make(places: list[Path], limits: dict[str, int]) -> Path | None:
    """Return a new group with the limits that it knows, if there is a place for one."""
    for place in places:
        group = None
        with suppress(OSError):
            group = Path(tempfile.mkdtemp(prefix="mha_numpy.", dir=place))
            known = [name for name in limits if (group / name).exists()]
            for name in known:
                (group / name).write_text(str(limits[name]))
            if known:
                return group
        if group:
            _remove(group)
    return None


def _remove(group: Path) -> None:
    until = time.monotonic() + GONE
    while True:
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > until:
                return None
            for process in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), 9)
            time.sleep(0.002)
