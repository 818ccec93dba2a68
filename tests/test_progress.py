"""What goes on is shown on a terminal alone, and not beside JSON."""

import io
import sys
import time
from types import SimpleNamespace

import pytest

from mha_numpy import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "is_quiet", "is_shown"),
    [(Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)],
)
def test_what_goes_on_is_shown(monkeypatch, stream, is_quiet, is_shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "WAITED", 0.01)
    token = progress.QUIET.set(is_quiet)
    try:
        with progress.busy("searching"):
            time.sleep(0.3)
    finally:
        progress.QUIET.reset(token)
    assert ("searching" in stream.getvalue()) == is_shown


def test_what_is_soon_done_is_not_shown(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.busy("searching"):
        pass
    assert sys.stderr.getvalue() == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for _ in progress.progress(range(4), 4, "training", lambda: "loss 2.5"):
        clock.now += 0.7 * progress.SILENCE
    assert sys.stderr.getvalue() == "training: 2 of 4, loss 2.5\ntraining: 4 of 4, loss 2.5\n"
