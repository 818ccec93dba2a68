"""The program `mha-numpy`: one subcommand, one library function."""

from mha_numpy.cli.commands import COMMANDS
from mha_numpy.cli.program import main, make_parser

__all__ = ["COMMANDS", "main", "make_parser"]
