"""A teacher's own exercise: the texts of its folder, and what students get of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mha_numpy.errors import ConfigError

NEEDED = {  # for a folder without it
    "solution.py": "the function that students write, with the task as its docstring",
    "inputs.py": "def draw(rng), which returns a list of dicts: the arguments of each call",
}
OPTIONAL = ("laws.py", "mistakes.toml")
EDITS = "small_edits.npz"  # in an assignment


class Own(NamedTuple):
    """An exercise as a teacher wrote it, complete, so that it can be graded anywhere."""

    solution: str
    inputs: str
    laws: str = ""
    mistakes: str = ""
    edits: bytes = b""  # the results of small edits, as `search` keeps those of the tasks here


class Example(NamedTuple):
    """What students may see of it: the arguments of one call, and what it returns, as JSON."""

    text: str


def read_own(folder: Path | str) -> Own:
    """Read the files of a folder: solution.py and inputs.py, perhaps laws.py and mistakes.toml."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"from: expected the folder of an exercise; there is no folder {folder}")
    for name, what in NEEDED.items():
        if not (folder / name).is_file():
            raise ConfigError(f"from: there is no {folder / name}; write it: {what}")
    try:
        solution, inputs, laws, mistakes = (
            (folder / name).read_text(encoding="utf-8-sig") if (folder / name).exists() else ""
            for name in (*NEEDED, *OPTIONAL)
        )
        edits = (folder / EDITS).read_bytes() if (folder / EDITS).exists() else b""
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"from: cannot read {folder}: {error}") from error
    return Own(solution, inputs, laws, mistakes, edits)


def write_own(own: Own, folder: Path) -> None:
    """Write the files of an exercise; those that it does not have are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EDITS).write_bytes(own.edits)
    for name, text in zip((*NEEDED, *OPTIONAL), own[:4], strict=True):
        if text:
            (folder / name).write_text(text, encoding="utf-8")
        else:
            (folder / name).unlink(missing_ok=True)


@contextmanager
def told_of(folder: Path | str) -> Iterator[None]:
    """Put a folder before the name of the file that an error is about."""
    try:
        yield
    except ConfigError as error:
        is_of_file = str(error).startswith((*NEEDED, *OPTIONAL))
        between = "/" if is_of_file else ": "
        raise ConfigError(f"from: {folder}{between}{error}") from error
