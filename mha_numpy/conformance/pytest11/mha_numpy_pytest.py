"""What pytest loads at every start once mha_numpy is installed: almost nothing.

A conftest.py cannot do this, because pytest reads the command line before it looks into a package
named by ``--pyargs``. This module has its own place on the path, outside of the package, so that
other tests start without NumPy; the options exist only in runs of the conformance kit.
"""

from importlib import import_module
from typing import Any

ROOM = "mha_numpy.conformance"


def pytest_load_initial_conftests(early_config: Any, args: list[str]) -> None:
    """Load the plugin if the command line names the room."""
    plugins = early_config.pluginmanager
    is_named = any(str(argument).startswith(ROOM) for argument in args)
    if is_named and not plugins.has_plugin(f"{ROOM}.plugin"):
        plugins.register(import_module(f"{ROOM}.plugin"), f"{ROOM}.plugin")
