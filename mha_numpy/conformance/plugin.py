"""The cases as tests of pytest: ``pytest --pyargs mha_numpy.conformance --attention ...``."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mha_numpy.conformance.case import Case
from mha_numpy.conformance.cases import VERSION, cases
from mha_numpy.conformance.conventions import Conventions, load, read_conventions
from mha_numpy.conformance.running import Contender, make_contender, reason_to_skip
from mha_numpy.conformance.verdict import explain, find_hint, find_trouble
from mha_numpy.errors import ConfigError

CASES = Path(__file__).with_name("cases.py")
CONTENDER = pytest.StashKey[Contender]()
ADVICE = """which function? Write --attention package.module:function

It is called with q (B, H, T_q, d_k), k (B, H_kv, T_k, d_k), v (B, H_kv, T_k, d_v), and those
options whose names are in its signature: mask, bias, is_causal ... If its names or conventions
differ, describe them in a file, --conventions conventions.toml. This page lists the entries:
https://mha-numpy.github.io/mha-numpy/conformance.html

To see a run, write

    pytest --pyargs mha_numpy.conformance --attention mha_numpy:scaled_dot_product_attention"""
EXPLAINED = pytest.StashKey[dict[str, str]]()  # the first case of each kind of failure
MOST = 4  # names in a line of the summary


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; only runs of this room have them."""
    group = parser.getgroup("conformance of attention (mha_numpy)")
    group.addoption("--attention", metavar="MODULE:FUNCTION", help="the function to test")
    group.addoption("--conventions", metavar="FILE", help="a TOML file with its conventions")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the function that is tested."""
    config = session.config
    if not config.option.attention:
        raise pytest.UsageError(ADVICE)
    sys.path.insert(0, str(config.invocation_params.dir))
    config.stash[EXPLAINED] = {}
    try:
        path = config.option.conventions
        conventions = read_conventions(path) if path else Conventions()
        config.stash[CONTENDER] = make_contender(load(config.option.attention), conventions)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the cases."""
    return Cases.from_parent(parent, path=file_path) if file_path == CASES else None


class Cases(pytest.File):
    """The file of the cases."""

    def collect(self) -> Iterable["CaseItem"]:
        """Yield a test for each case."""
        for case in cases():
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseError(Exception):
    """A case does not agree; the message says where."""


class CaseItem(pytest.Item):
    """A test of one case."""

    def __init__(self, *, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case

    def runtest(self) -> None:
        """Run the case on the function."""
        contender = self.config.stash[CONTENDER]
        reason = reason_to_skip(contender, self.case)
        if reason:
            pytest.skip(reason)
        trouble = find_trouble(contender, self.case)
        if trouble:
            raise CaseError(self._message(contender, trouble))

    def _message(self, contender: Contender, trouble: str) -> str:
        """Explain the first failure of a kind, and refer to it afterwards."""
        hint = find_hint(contender, self.case, trouble)
        kind = hint or trouble if hint or trouble.startswith("it ") else self.name
        first = self.config.stash[EXPLAINED].setdefault(kind, self.name)
        if first != self.name:
            return f"{trouble.partition(';')[0]}: see {first}"
        return explain(self.case, trouble, hint)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return only the message: a traceback would be that of the kit."""
        if isinstance(excinfo.value, CaseError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place and the name of the test."""
        return self.path, None, self.name


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many cases agree, and why others were not run."""
    contender = config.stash.get(CONTENDER, None)
    if contender is None:
        return
    write, stats = terminalreporter.write_line, terminalreporter.stats
    counts = {word: len(stats.get(word, ())) for word in ("passed", "failed", "skipped")}
    terminalreporter.section(f"conformance of {config.option.attention}, version {VERSION}")
    write("cases: {passed} agree, {failed} differ, {skipped} skipped".format(**counts))
    reasons = defaultdict(list)
    for report in stats.get("skipped", ()):
        reasons[report.longrepr[2].removeprefix("Skipped: ")].append(report.nodeid.split("::")[-1])
    for reason, names in reasons.items():
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        write(f"skipped, because {reason}: {', '.join(names[:MOST])}{more}")
    for name, word in contender.conventions.words.items():
        write(f'declared: {name} = "{word}"')
    if contender.unused():
        write(f"no case passes its arguments {', '.join(contender.unused())}")
