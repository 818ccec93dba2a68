"""audit_tests: score attention tests by the known mistakes that they catch."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from mha_numpy.checks import check_number
from mha_numpy.errors import ConfigError
from mha_numpy.progress import progress
from mha_numpy.tables import Table, plain
from mha_numpy.teach.diagnosis import BANK

COMMAND = (sys.executable, "-B", "-m", "mha_numpy.teach.exercises.audit_run")
GRACE = 2.0  # seconds to end in, when asked to

TOGETHER = (
    "together: the tests catch these mistakes if one function has them, but not if all functions "
    "do, as when one calls another; tests that compare functions cannot find them"
)

Case = tuple[str, str]  # a function and a mistake in it


@dataclass(frozen=True)
class Audit:
    """What some tests catch; true if they accept right functions and miss no mistake."""

    file: Path
    tests: Sequence[str]  # that ran; skipped and xfailed ones are left out
    pieces: Sequence[str]  # the functions that they call
    rejected_right: Sequence[tuple[str, str]]  # tests that fail with right functions, and why
    caught: Mapping[Case, Sequence[str]]  # with the tests that fail, the first one first
    missed: Sequence[Case]
    together: frozenset[Case]  # of the missed, those caught as long as no other function has them

    def __bool__(self) -> bool:
        return self.passed

    @property
    def passed(self) -> bool:
        """Whether nothing right is rejected and nothing wrong is missed."""
        return not self.rejected_right and not self.missed

    @property
    def name(self) -> str:
        """The name of the file or folder."""
        return self.file.resolve().name

    @property
    def share(self) -> float:
        """How many of the mistakes are caught, from 0 to 1."""
        return len(self.caught) / max(len(self.caught) + len(self.missed), 1)

    @property
    def sections(self) -> list[Table | str]:
        """The tables and sentences of the audit, in order."""
        if self.rejected_right:
            return [self._rejecting()]
        return [self._scores(), *(self._slipping() if self.missed else []), self._useful()]

    def __str__(self) -> str:
        return plain(self.sections)

    def _rejecting(self) -> Table:
        rows = [[test, error] for test, error in self.rejected_right]
        title = (
            f"{self.name}: nothing is counted, because {len(rows)} of {len(self.tests)} tests "
            "reject right functions"
        )
        return Table(title, ["test", "error"], rows, frozenset(range(len(rows))))

    def _scores(self) -> Table:
        rows = []
        for piece in self.pieces:
            caught = sum(of == piece for of, _ in self.caught)
            count = caught + sum(of == piece for of, _ in self.missed)
            rows.append([piece, str(count), str(caught), f"{caught / count:.0%}"])
        count = len(self.caught) + len(self.missed)
        title = f"{self.name}: {len(self.caught)} of {count} mistakes caught"
        bad = frozenset(i for i, row in enumerate(rows) if row[1] != row[2])
        return Table(title, ["function", "mistakes", "caught", "share"], rows, bad)

    def _slipping(self) -> list[Table | str]:
        rows = [
            [piece, BANK[mistake].verdict, "together" if (piece, mistake) in self.together else ""]
            for piece, mistake in self.missed
        ]
        table = Table(f"Slipped through: {len(rows)}", ["function", "what was done", ""], rows)
        return [table, TOGETHER] if self.together else [table]

    def _useful(self) -> Table:
        rows = []
        for test in self.tests:
            caught = [case for case, tests in self.caught.items() if test in tests]
            only = sum(len(self.caught[case]) == 1 for case in caught)
            rows.append([test, str(len(caught)), str(only)])
        bad = frozenset(i for i, row in enumerate(rows) if row[1] == "0")
        title = "What each test catches"
        if bad:
            title += f": {len(bad)} of {len(rows)} catch nothing"
        return Table(title, ["test", "catches", "no other does"], rows, bad)


def audit_tests(file: Path | str, *, seconds: float = 10.0) -> Audit:
    """Run tests with right functions, then with each known mistake, and count what they catch.

    Parameters
    ----------
    file : path
        A file of tests for pytest, or a folder of such files.
    seconds : float
        How long the file may take to load, and then all tests together, for each mistake.

    Returns
    -------
    Audit
        Prints as tables: how many mistakes are caught in each function, which ones slip through,
        and what each test catches.

    Notes
    -----
    The functions are the keys of ``mha_numpy.teach.diagnosis.TASKS``, with the arguments of their
    probes; trailing arguments that may be None can be left out. A test takes a function by its
    name, as a fixture, or calls the function of that name in its own module. Both are replaced. So
    a line such as ``softmax = my_layers.masked_softmax`` is enough for existing tests, or a wrapper
    of that name if the arguments differ.

    A mistake counts as caught if a test fails, hangs or ends the process. It is made in one
    function only and, if several of the called functions can make it, also in all of them together.
    Tests that only compare functions with each other catch the first and miss the second, which is
    what happens when one of the functions calls another.

    Each mistake has a separate process, which starts after the tests are collected. So fixtures of
    any scope are computed with the mistake, but what a module computes on loading is not. Where
    processes do not fork (Windows), all runs share one, without a time limit. Plugins other than
    those named in ``PYTEST_PLUGINS`` are not loaded, output of tests is dropped, and skipped tests
    do not count.

    Examples
    --------
    >>> test = '''
    ... import numpy as np
    ... def test_rows_sum_to_one(softmax):
    ...     weights = softmax(np.random.default_rng(0).normal(size=(1, 2, 3, 4)))
    ...     assert np.allclose(weights.sum(axis=-1), 1)
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "test_softmax.py"
    ...     _ = file.write_text(test)
    ...     audit = audit_tests(file)
    >>> audit.passed, list(audit.caught)[0]
    (False, ('softmax', 'softmax over queries'))
    """
    file = Path(file)
    check_number("seconds", seconds, positive=True)
    if not file.exists():
        raise ConfigError(f"file: expected a file or a folder of tests; there is no {file}")
    if find_spec("pytest") is None:
        raise ConfigError("pytest is not installed, and it runs the tests: pip install pytest")
    with _messages(file, seconds) as messages:
        plan = next(messages)
        told = progress(messages, len(plan["runs"]), "making mistakes")
        failing = [message["failing"] for message in told]
    return _add_up(file, plan, failing)


def _add_up(file: Path, plan: dict[str, Any], failing: list[list[int]]) -> Audit:
    """Add up the results of all runs; a mistake is caught if no run with it passes."""
    tests, alone, unseen = plan["tests"], {}, set()
    for (pieces, mistake), failed in zip(plan["runs"], failing, strict=True):
        if len(pieces) == 1:
            alone[pieces[0], mistake] = [tests[i] for i in failed]
        elif not failed:
            unseen.add(mistake)
    caught = {case: by for case, by in alone.items() if by and case[1] not in unseen}
    missed = [case for case in alone if case not in caught]
    return Audit(
        file, tests, plan["pieces"], [(tests[i], error) for i, error in plan["rejected"]],
        caught, missed, frozenset(case for case in missed if alone[case]),
    )  # fmt: skip


@contextmanager
def _messages(file: Path, seconds: float) -> Iterator[Iterator[dict[str, Any]]]:
    """Start the process that runs pytest, yield its messages, and end it."""
    with (
        TemporaryDirectory() as scratch,
        TemporaryFile() as complaints,
        subprocess.Popen(
            [*COMMAND, str(file), str(seconds)], env=_environment(scratch), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints,
        ) as process,
    ):  # fmt: skip

        def listen() -> Iterator[dict[str, Any]]:
            message = {}
            for line in process.stdout or ():
                message = json.loads(line)
                if "problem" in message:
                    raise ConfigError(f"file: {file}: {message['problem']}")
                yield message
            code = process.wait()
            if code or not message:
                complaints.seek(0)
                said = complaints.read().decode(errors="replace")
                raise ConfigError(f"file: {file}: {_reason(code, seconds, said)}")

        try:
            yield listen()
        finally:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment(scratch: str) -> dict[str, str]:
    """Return the environment for pytest: no other options or plugins, and files in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    folders = ("TMPDIR", "TEMP", "TMP", "HYPOTHESIS_STORAGE_DIRECTORY")
    return kept | dict.fromkeys(folders, scratch) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _reason(code: int, seconds: float, said: str) -> str:
    if hasattr(signal, "SIGALRM") and code == -signal.SIGALRM:
        return f"loading it took longer than {seconds:g} s"
    errors = re.findall(r"^(?:E  |ERROR:) +(.*)$", said, flags=re.MULTILINE)
    return errors[-1] if errors else f"it ended its process with exit code {code}"
