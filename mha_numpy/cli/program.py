"""The program `mha-numpy`: it finds the subcommand, and says in one line what went wrong."""

import argparse
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from mha_numpy import __version__
from mha_numpy.cli.commands import COMMANDS
from mha_numpy.errors import MhaError, did_you_mean

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


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole program."""
    parser = Parser(prog="mha-numpy", description="Attention in NumPy to learn from.")
    parser.add_argument("--version", action="version", version=f"mha-numpy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, help_, description, example, options) in COMMANDS.items():
        epilog = f"example: {example}" if example else None
        subcommand = commands.add_parser(name, help=help_, description=description, epilog=epilog)
        subcommand.set_defaults(parser=subcommand)  # its errors name it
        for flag, settings in options:
            subcommand.add_argument(flag, **settings)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 0 done, 1 a result is wrong, 2 wrong use."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not know a token's letters
    options = _parse(arguments)
    try:
        code = COMMANDS[options.command].run(options)
        if sys.stdout is not None:  # closed by whoever started us
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


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; what is left over is the subcommand's to complain about."""
    options, unknown = make_parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options
