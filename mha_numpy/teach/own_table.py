"""mistakes.toml of a teacher's own exercise: its title, points and hint, and known mistakes."""

import tomllib
from typing import Any, NoReturn

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.own import Own

SETTINGS = {"title": str, "difficulty": int, "minutes": int, "points": (int, float), "hint": str}
OF_MISTAKE = {"name": str, "verdict": str, "edits": dict}


def wrong(file: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise an error about a file of the folder."""
    raise ConfigError(f"{file}: {what}") from cause


def settings_of(own: Own) -> dict[str, Any]:
    """Return what mistakes.toml says besides mistakes: title, difficulty, minutes, points, hint."""
    return {name: value for name, value in table_of(own).items() if name in SETTINGS}


def table_of(own: Own) -> dict[str, Any]:
    """Return what mistakes.toml says, after a look at its names and kinds."""
    file = "mistakes.toml"
    try:
        table = tomllib.loads(own.mistakes)
    except ValueError as error:
        wrong(file, f"expected TOML; {error}", error)
    for name, value in table.items():
        if name != "mistake" and (name not in SETTINGS or not _is_a(value, SETTINGS[name])):
            known = f"{', '.join(SETTINGS)} and tables [[mistake]]"
            meant = f"; {hint}" if (hint := did_you_mean(name, [*SETTINGS, "mistake"])) else ""
            wrong(file, f"expected {known}; got {name} = {value!r}{meant}")
    if not 1 <= table.get("difficulty", 1) <= 5:
        wrong(file, f"difficulty: expected 1 to 5; got {table['difficulty']}")
    listed = table.get("mistake", [])
    if not isinstance(listed, list):
        wrong(file, "expected [[mistake]], with two brackets, before each mistake")
    for number, one in enumerate(listed, start=1):
        for name in one.keys() - OF_MISTAKE.keys():
            meant = f"; {hint}" if (hint := did_you_mean(name, OF_MISTAKE)) else ""
            wrong(file, f"mistake {number}: expected {', '.join(OF_MISTAKE)}; got {name!r}{meant}")
        for name, kind in OF_MISTAKE.items():
            if not _is_a(one.get(name), kind) or not one[name]:
                example = ' = { "what is there" = "what is written instead" }'
                how = example if name == "edits" else ' = "..."'
                wrong(file, f"mistake {number}: expected {name}{how}; got {one.get(name)!r}")
    names = [one["name"] for one in listed]
    for name in names:
        if names.count(name) > 1:
            wrong(file, f"expected a different name for each mistake; {name!r} occurs twice")
    return table


def _is_a(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
