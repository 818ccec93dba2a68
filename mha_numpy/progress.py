"""A progress bar, or a short note, that appears only if the work takes long."""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE = 1.0  # seconds without a bar
SILENCE = 30.0  # seconds without a line, where there is no terminal to draw a bar
WAITED = 0.5  # seconds without a word on what takes long
QUIET = ContextVar("QUIET", default=False)  # whether `busy` says nothing: under a bar, or for JSON


def progress(
    items: Iterable[Item], total: int, label: str, note: Callable[[], str] = str
) -> Generator[Item, None, None]:
    """Yield the items; after a second, show on stderr how many are done and what is left.

    `note` is called after each item, for a few words next to the bar. If stderr is not a terminal,
    as in a notebook or a log, a line comes every half minute.

    Examples
    --------
    >>> sum(progress([1, 2, 3], 3, "adding"))
    6
    """
    items = iter(items)
    start = told = time.monotonic()
    for done, item in enumerate(items, start=1):
        yield item
        now = time.monotonic()
        if now - start > PATIENCE and sys.stderr.isatty():
            yield from _with_bar(items, total, label, note, done)
        elif now - told > SILENCE:
            print(f"{label}: {done} of {total}, {note()}".rstrip(", "), file=sys.stderr, flush=True)
            told = now


def _with_bar(
    items: Iterator[Item], total: int, label: str, note: Callable[[], str], done: int
) -> Iterator[Item]:
    """Yield the remaining items under a bar that starts at `done`."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, completed=done, note=note())
        for item in items:
            yield item
            bar.update(task, advance=1, note=note())


@contextmanager
def busy(label: str) -> Iterator[None]:
    """Show a note on stderr while a block runs, after half a second, if it is a terminal.

    Examples
    --------
    >>> with busy("adding"):
    ...     sum([1, 2, 3])
    6
    """
    if QUIET.get() or not sys.stderr.isatty():
        yield
        return
    is_done = Event()

    def show() -> None:
        if not is_done.wait(WAITED):
            from rich.console import Console

            with Console(stderr=True).status(label):
                is_done.wait()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
