"""The process of `audit_tests`: pytest collects once, and each run of all tests is a fork."""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from inspect import Parameter, Signature
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from mha_numpy.teach.diagnosis import TASKS, fingerprints
from mha_numpy.teach.diagnosis.mutants import make
from mha_numpy.teach.exercises.child.errors import told
from mha_numpy.teach.exercises.child.limits import Limits
from mha_numpy.teach.exercises.sandbox import run_calls

OPTIONS = (
    "--quiet", "--capture=no", "--tb=line", "-pno:cacheprovider",
    "-oaddopts=", "-orequired_plugins=",
    "-Wignore::pytest.PytestConfigWarning", "-Wignore::pytest.PytestUnknownMarkWarning",
)  # fmt: skip
MEMORY = 8 * 2**30  # bytes: a framework that a test imports maps some
STARTING = 10.0  # seconds for pytest itself
UNUSED = (
    "no test calls any of the functions: take one by its name, as in def test_rows(softmax), or "
    f"define or import it in the file; the functions are {', '.join(TASKS)}"
)


class Switch:
    """Stands for one function in all tests, and calls the one whose turn it is."""

    def __init__(self, piece: str):
        self.__name__ = self.__qualname__ = piece
        self.__signature__ = _signature(piece)
        self.function = make(piece)
        self.is_called = False

    def __call__(self, *by_place: Any, **by_name: Any) -> Any:  # noqa: D102
        self.is_called = True
        given = self.__signature__.bind(*by_place, **by_name)
        given.apply_defaults()
        return self.function(**given.arguments)


def _signature(piece: str) -> Signature:
    """Return a function's arguments; trailing ones that may be None can be left out."""
    probes, parameters, is_optional = TASKS[piece].probes(), [], True
    for name in reversed(probes[0]):
        is_optional = is_optional and any(given[name] is None for given in probes)
        default = None if is_optional else Parameter.empty
        parameters.append(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return Signature(parameters[::-1])


class Ran(NamedTuple):
    """The result of one test."""

    outcome: str  # "passed", "failed" or "skipped"
    error: str
    called: list[str]  # functions


class Auditor:
    """A plugin that runs the tests again and again, and reports each run."""

    def __init__(self, tell: Callable[..., None], seconds: float):
        self.tell, self.limits = tell, Limits(seconds, MEMORY, output=0)
        self.switches = {piece: Switch(piece) for piece in TASKS}
        self.is_done = False
        self.errors: list[str] = []  # on loading, then of a test
        self.outcomes: set[str] = set()  # of its setup, call and teardown

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Give the files as much time to load as the tests have for a run."""
        _end_after(self.limits.seconds)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Replace a function that a fixture of the tests' own returns."""
        value = yield
        if fixturedef.argname not in self.switches or not callable(value):
            return value
        switch = self.switches[fixturedef.argname]
        fixturedef.cached_result = (switch, *fixturedef.cached_result[1:])
        return switch

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        """Note an error, on loading or in a test."""
        if call.excinfo is not None:
            self.errors.append(_told_by_pytest(call.excinfo.value))

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Report what ends pytest itself, such as an exit on loading."""
        self.tell(problem=_told_by_pytest(excinfo.value))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test's setup, call or teardown; xfail counts as skipped."""
        is_xfail = hasattr(report, "wasxfail") or "[XPASS(strict)]" in str(report.longrepr)
        self.outcomes.add("skipped" if is_xfail else report.outcome)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests with right functions, then with each mistake."""
        _end_after(0)
        if self.errors:
            self.tell(problem=self.errors[0])
        else:
            self._replace_names(session.items)
            self._audit(session.items)
        self.is_done = True
        return True

    def _replace_names(self, items: Sequence[pytest.Item]) -> None:
        modules = [item.module for item in items if isinstance(item, pytest.Function)]
        for module in dict.fromkeys(modules):
            for piece, switch in self.switches.items():
                if callable(getattr(module, piece, None)):
                    setattr(module, piece, switch)

    def _audit(self, items: Sequence[pytest.Item]) -> None:
        """Report the plan, then which tests fail with each mistake."""
        pairs = zip(items, self._run(items, {}), strict=False)  # up to one that ends the process
        counted = [(test, one) for test, one in pairs if one.outcome != "skipped"]
        tests, ran = [test for test, _ in counted], [one for _, one in counted]
        rejected = [(i, one.error) for i, one in enumerate(ran) if one.outcome == "failed"]
        called = {piece for one in ran for piece in one.called}
        if not tests:
            self.tell(problem="it contains no tests")
        elif not called and not rejected:
            self.tell(problem=UNUSED)
        else:
            pieces = [piece for piece in TASKS if piece in called]
            runs = [] if rejected else _runs(pieces)
            self.tell(tests=_names(tests), pieces=pieces, rejected=rejected, runs=runs)
            for of, mistake in runs:
                ran = self._run(tests, dict.fromkeys(of, mistake))
                self.tell(failing=[i for i, one in enumerate(ran) if one.outcome == "failed"])

    def _run(self, tests: Sequence[pytest.Item], made: Mapping[str, str]) -> list[Ran]:
        """Run tests in a separate process, with mistakes made, up to one that hangs or ends it."""

        def run_one(number: int) -> Ran:
            self.errors, self.outcomes = [], set()
            for switch in self.switches.values():
                switch.is_called = False
            following = tests[number + 1] if number + 1 < len(tests) else None
            item = tests[number]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            outcome = next(o for o in ("failed", "skipped", "passed") if o in self.outcomes)
            called = [piece for piece, switch in self.switches.items() if switch.is_called]
            return Ran(outcome, self.errors[0] if self.errors else "", called)

        def turn_switches() -> Callable[[int], Ran]:
            for piece, switch in self.switches.items():
                switch.function = make(piece, [made[piece]] if piece in made else [])
            return run_one

        run = run_calls(turn_switches, [{"number": i} for i in range(len(tests))], self.limits)
        ran: list[Ran] = []
        for call in run.calls:
            if call.error:  # pytest.exit
                return [*ran, Ran("failed", call.error, [])]
            ran.append(Ran(**call.answer))
        ended = run.ended.removesuffix(f" (call {len(ran) + 1} of {len(tests)})")
        return [*ran, Ran("failed", ended, [])] if ended else ran


def _runs(pieces: Sequence[str]) -> list[tuple[list[str], str]]:
    """Return each mistake in one function at a time, and in all that can make it together."""
    shown: dict[str, list[str]] = {}
    for piece in pieces:
        for mistake in fingerprints(piece):
            shown.setdefault(mistake, []).append(piece)
    alone = [([piece], mistake) for piece in pieces for mistake in fingerprints(piece)]
    return alone + [(of, mistake) for mistake, of in shown.items() if len(of) > 1]


def _names(tests: Sequence[pytest.Item]) -> list[str]:
    """Return the tests' names, with their files' if there are several."""
    folder = os.path.commonpath([test.path.parent for test in tests])
    names = [test.nodeid.partition("::")[2] for test in tests]
    if len({test.path for test in tests}) == 1:
        return names
    files = [os.path.relpath(test.path, folder) for test in tests]
    return [f"{file}::{name}" for file, name in zip(files, names, strict=True)]


def _told_by_pytest(error: BaseException) -> str:
    """Return an error in one line, without pytest's additions."""
    if isinstance(error, pytest.FixtureLookupError):
        return f"there is no fixture {error.argname}"
    if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
        return told(error.__cause__)
    return told(error)


def _fixtures(switches: Mapping[str, Switch]) -> ModuleType:
    module = ModuleType("functions_to_test")
    for piece, switch in switches.items():
        fixture = pytest.fixture(scope="session", name=piece)
        setattr(module, piece, fixture(lambda switch=switch: switch))
    return module


def _end_after(seconds: float) -> None:
    """Let this process end after some time, or never if 0."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main(file: str, seconds: float) -> int:
    """Run pytest on a file, and write a line of JSON for each message to stdout."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stdout:
        os.dup2(2, 1)  # what tests and pytest print

        def tell(**message: Any) -> None:
            stdout.write(f"{json.dumps(message)}\n")
            stdout.flush()

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        _end_after(STARTING + seconds)
        auditor = Auditor(tell, seconds)
        code = pytest.main([*OPTIONS, file], plugins=[auditor, _fixtures(auditor.switches)])
        return 0 if auditor.is_done else int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
