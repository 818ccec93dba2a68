"""run_isolated: run somebody's source text where it can see Python and NumPy, and nothing else.

The stronger of the two ways to run a function; `run_calls` is the other. What the two share is in
`sandbox.py` (the child, its limits, its end) and in `runner.py` (the calls, and how they are told).
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.exercises import runner
from mha_numpy.exercises.runner import Limits, pack
from mha_numpy.exercises.sandbox import Heard, Run, check_limits, run_in_a_child

FIRST_USER = 60_001  # a user that nobody is; each slot has its own
ROOM = 64 * 2**20  # bytes that may be written, into memory
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin")  # where libraries are; none but to read
INSIDE, RUNNER = "/packages", "/exercises/runner/runner.py"


def run_isolated(
    source: str,
    file: str,
    name: str,
    inputs: Sequence[Mapping[str, Any]],
    limits: Limits,
    *,
    slot: int = 0,
) -> Run:
    """Call a function of a source text once for each of the inputs, in isolation.

    Parameters
    ----------
    source : str
        What somebody wrote.
    file : str
        What errors call it.
    name : str
        Of the function in it.
    inputs : sequence of mappings
        As for `run_calls`; nothing but these goes in.
    limits : Limits
    slot : int
        A number that no other run has at the same time.

    Returns
    -------
    Run

    Raises
    ------
    ConfigError
        A limit makes no sense, or bubblewrap is not there.

    Notes
    -----
    The process has its own view of processes, network, users and files: Python's library and NumPy
    to be read, a home of its own in memory, and nothing that is expected of it. It ends, with all
    that it started, when the calls are made, when the time is up, or when this process ends.
    """
    heard = Heard(len(inputs), check_limits(limits))
    command = _command(find_bubblewrap())
    user = FIRST_USER + slot if os.geteuid() == 0 else 0
    task = {
        "source": source, "file": file, "name": name, "inputs": list(inputs),
        "limits": limits._asdict(), "user": user,
    }  # fmt: skip
    with tempfile.TemporaryFile() as given:
        given.write(pack(task))
        given.flush()

        def work(tell: IO[bytes]) -> None:
            os.lseek(given.fileno(), 0, os.SEEK_SET)
            os.dup2(given.fileno(), 0)
            os.set_inheritable(tell.fileno(), True)
            os.execve(command[0], [*command, str(tell.fileno())], {})

        run_in_a_child(work, heard)
    return Run(heard.calls, heard.printed, heard.ended)


def find_bubblewrap() -> str:
    """Return where bubblewrap is, or raise a ConfigError that says how to get it."""
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(
            "bwrap: expected bubblewrap to be installed, which isolates submissions; "
            "apt-get install bubblewrap (Linux alone has it)"
        )
    return found


def _command(bubblewrap: str) -> list[str]:
    """Return the command that runs the runner, but for its last argument."""
    prefix, executable = Path(sys.base_prefix), Path(sys.executable).resolve()
    python = prefix if str(prefix) in SYSTEM else Path("/python")  # another user may not see it
    command = [bubblewrap, *_unshared(), "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if os.geteuid() == 0:  # to become a user that is counted alone
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            command += ["--symlink", os.readlink(folder), folder]
        elif Path(folder).exists():
            command += ["--ro-bind", folder, folder]
    if python != prefix:
        command += ["--ro-bind", str(prefix), str(python)]
    for folder in _package_folders(python):  # what else is installed is not to be seen
        command += ["--tmpfs", folder]
    for path in _numpy_folders():
        command += ["--ro-bind", str(path), f"{INSIDE}/{path.name}"]
    command += ["--ro-bind", runner.__file__, RUNNER, "--proc", "/proc", "--dev", "/dev"]
    command += ["--size", str(ROOM), "--perms", "1777", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    for name, value in {
        "HOME": "/tmp", "PATH": "/usr/bin", "LANG": "C.UTF-8", "PYTHONPATH": INSIDE,
        "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1",
    }.items():  # fmt: skip
        command += ["--setenv", name, value]
    return [*command, str(python / executable.relative_to(prefix)), "-P", "-s", RUNNER]


def _unshared() -> list[str]:
    """Return what the process has of its own: all, but for root no other users.

    Root needs none to shut everything else off, and keeps real users: the limit on processes holds
    for them, and would not for a root by another name.
    """
    if os.geteuid() != 0:
        return ["--unshare-all"]
    return [f"--unshare-{what}" for what in ("ipc", "pid", "net", "uts", "cgroup-try")]


def _numpy_folders() -> Iterator[Path]:
    """Yield NumPy's folder, and that of the libraries beside it."""
    package = Path(np.__file__).parent
    yield package
    if (libraries := package.with_name("numpy.libs")).exists():
        yield libraries


def _package_folders(python: Path) -> Iterator[str]:
    """Yield the folders, as they are seen inside, in which packages are installed."""
    version = f"python{sysconfig.get_python_version()}"
    if python not in map(Path, SYSTEM):
        yield f"{python}/lib/{version}/site-packages"
    for folder in ("/usr/lib/python3", f"/usr/lib/{version}", f"/usr/local/lib/{version}"):
        for packages in ("dist-packages", "site-packages"):
            if Path(folder, packages).exists():
                yield f"{folder}/{packages}"
