"""The program `mha-numpy`: one subcommand, one library function."""

from mha_numpy.cli import commands
from mha_numpy.cli.program import PARSER, main

__all__ = ["PARSER", "commands", "main"]
