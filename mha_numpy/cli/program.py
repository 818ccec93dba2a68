"""The program `mha-numpy`: it runs a subcommand, and reports in one line what went wrong."""

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from mha_numpy import __version__
from mha_numpy.errors import MhaError, did_you_mean

Run: TypeAlias = Callable[[argparse.Namespace], int]  # of the options; returns the exit code
Option: TypeAlias = tuple[str, dict[str, Any]]  # what `add_argument` takes

ADVICE = {
    "mha-numpy walk": " (a sentence needs quotes around it)",
    "mha-numpy bench": " (write a shape as --only 4,12,128,64)",
}

UNKNOWN_COMMAND = re.compile(
    r"argument COMMAND: invalid choice: (['\"])(.+)\1.* \(choose from (.+)\)"
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and end with 2."""
        unknown = UNKNOWN_COMMAND.fullmatch(message)
        if unknown:
            name, known = unknown[2], re.findall(r"[\w-]+", unknown[3])
            advice = did_you_mean(name, known) or "`mha-numpy --help` lists them"
            message = f"there is no command {name!r}; {advice}"
        if message.startswith("unrecognized arguments: ") and " -" not in message:
            message += ADVICE.get(self.prog, "")
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


class Help(argparse.HelpFormatter):
    """Help with a column that is wide enough for the longest command, which is indented."""

    def add_argument(self, action: argparse.Action) -> None:
        """Note an option, or all commands, and the width that they need."""
        super().add_argument(action)
        self._action_max_length += 2 * isinstance(action, argparse._SubParsersAction)


PARSER = Parser(
    prog="mha-numpy",
    description="Learn attention from NumPy code.",
    epilog="Begin with `mha-numpy walk --open`. `mha-numpy COMMAND --help` explains a command.",
    formatter_class=Help,
)
PARSER.add_argument("--version", action="version", version=f"mha-numpy {__version__}")
COMMANDS = PARSER.add_subparsers(dest="command", required=True, metavar="COMMAND")


def command(help_: str, description: str, example: str, *options: Option) -> Callable[[Run], Run]:
    """Make a function that is called ``_name`` the subcommand ``name``.

    Parameters
    ----------
    help_ : str
        In a line, for the list of all.
    description, example : str
        "" for no example.
    *options
        As `option` returns them.
    """

    def add(run: Run) -> Run:
        name = run.__name__.strip("_").replace("_", "-")
        epilog = f"example: {example}" if example else None
        subcommand = COMMANDS.add_parser(name, help=help_, description=description, epilog=epilog)
        subcommand.set_defaults(run=run, parser=subcommand)  # whose errors name it
        for flag, settings in options:
            subcommand.add_argument(flag, **settings)
        return run

    return add


def option(name: str, help_: str, **settings: Any) -> Option:
    """Return an option, or an argument, whose name begins without dashes."""
    return name, {"help": help_, **settings}


def word(name: str, metavar: str, help_: str, **settings: Any) -> Option:
    """Return an option that takes what `metavar` says."""
    return option(name, help_, metavar=metavar, **settings)


count, number, path = (partial(word, type=kind) for kind in (int, float, Path))
switch = partial(option, action="store_true")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 0 done, 1 a result is wrong, 2 wrong use."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know a token's letters
    options, unknown = PARSER.parse_known_args(arguments)
    if unknown:  # it is the subcommand's to complain about
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        code: int = options.run(options)
        if sys.stdout is not None:  # closed by the parent process
            sys.stdout.flush()
    except MhaError as error:
        return _complain(options.command, str(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError:
        return _complain(options.command, "not enough memory for arrays of these sizes")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(options.command, f"cannot print: {error.strerror}")
    return code


def _complain(command: str, message: str) -> int:
    print(f"mha-numpy {command}: {' '.join(message.split())}", file=sys.stderr)
    return 2
