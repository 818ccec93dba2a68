"""What libraries compute: their datasheets, and where another one differs from them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.identifying.datasheet import Datasheet, Named
from mha_numpy.identifying.rows import Row, make_row

FILE = Path(__file__).with_name("libraries.json")  # docs/examples/libraries.py writes it
INPUTS = (
    "queries", "keys", "values", "queries of all heads", "keys of all heads", "values of all heads",
    "tokens, for queries, keys and values", "tokens of the queries", "tokens of the keys",
    "tokens of the values",
)  # fmt: skip
SHOWN = {  # in every datasheet: functions, and what takes their place for layers
    "PyTorch": ("PyTorch's scaled_dot_product_attention", "PyTorch's MultiheadAttention"),
    "Keras": ("Keras's MultiHeadAttention", "Keras's MultiHeadAttention"),
    "JAX": ("JAX's dot_product_attention", "JAX's dot_product_attention"),
    "ONNX": ("ONNX's Attention", "ONNX's Attention"),
    "mha_numpy": ("mha_numpy's scaled_dot_product_attention", "mha_numpy's MultiHeadAttention"),
}
Key = tuple[str, str]  # a setting, and what the argument is that it is about


def pack(sheet: Datasheet) -> dict[str, Any]:
    """Return what a file keeps of a datasheet; the words of its rows are made again."""
    return {
        "name": sheet.name, "framework": sheet.framework,
        "arguments": [[*each] for each in sheet.arguments],
        "returns": [[*each] for each in sheet.returns],
        "rows": [[row.setting, row.value, row.argument] for row in sheet.rows],
    }  # fmt: skip


@cache
def libraries() -> dict[str, Datasheet]:
    """Return the datasheets of libraries, by name."""
    sheets = json.loads(FILE.read_text("utf-8"))["sheets"]
    return {
        name: Datasheet(
            sheet["name"], sheet["framework"], True, "",
            tuple(Named(*each) for each in sheet["arguments"]),
            tuple(Named(*each) for each in sheet["returns"]),
            tuple(make_row(*row) for row in sheet["rows"]),
        )
        for name, sheet in sheets.items()
    }  # fmt: skip


def _by_key(sheet: Datasheet) -> dict[Key, Row]:
    what = {each.name: each.what for each in sheet.arguments}
    found: dict[Key, Row] = {}
    for row in sheet.rows:
        found.setdefault((row.setting, what.get(row.argument, "")), row)
    for each in sheet.arguments:
        if each.what in INPUTS:
            found["axes", each.what] = Row(each.what, each.axes, "usual", "axes", each.axes)
    return found


def compare_with(sheet: Datasheet, library: str) -> list[tuple[Row, Row]]:
    """Return the rows of a datasheet that a library has differently, each with the library's.

    Parameters
    ----------
    sheet : Datasheet
        From `identify`.
    library : str
        One of `libraries()`.

    Examples
    --------
    >>> numpys = libraries()["mha_numpy's scaled_dot_product_attention"]
    >>> for own, there in compare_with(numpys, "PyTorch's scaled_dot_product_attention"):
    ...     print(f"{own.name}: {own.says} | {there.says}")
    """
    if library not in libraries():
        advice = did_you_mean(library, [*libraries()]) or ", ".join(libraries())
        raise ConfigError(f"library: there is none with the name {library!r}; {advice}")
    there = _by_key(libraries()[library])
    return [
        (row, there[key])
        for key, row in _by_key(sheet).items()
        if key in there and row.value != there[key].value
    ]


def drop_in(sheet: Datasheet) -> str:
    """Say which library's attention a function can replace, and what is different then.

    Examples
    --------
    >>> drop_in(libraries()["Keras's GroupQueryAttention"])
    """
    own = {each.what for each in sheet.arguments}
    found: list[tuple[int, str]] = []
    for library, there in libraries().items():
        theirs = {each.what: each.name for each in there.arguments if each.note != OWN}
        if not sheet.is_found or not {*INPUTS} & theirs.keys() <= own or there == sheet:
            continue
        said = [_said(*rows) for rows in compare_with(sheet, library)]
        lacks = [name for what, name in theirs.items() if what not in own and what != "unknown"]
        said += [f"it has no {', '.join(lacks)}"] if lacks else []
        found.append((len(said) + len(lacks), f"{library}{', except: ' * bool(said)}{'; '.join(said)}"))
    return f"drop-in for {min(found)[1]}" if found else "drop-in for no library that is known here"


OWN = "a param of its own"


def _said(row: Row, there: Row) -> str:
    if row.setting in ("blind", "no_keys"):
        return f"{row.name} gives {row.says}, not {there.says}"
    return f"{row.name}: {row.says} (there: {there.says})"


def in_libraries(sheet: Datasheet) -> dict[Row, dict[str, Any]]:
    """Return the values that libraries have in the place of each row's."""
    is_layer = any(each.note == OWN for each in sheet.arguments)
    there = {short: _by_key(libraries()[names[is_layer]]) for short, names in SHOWN.items()}
    what = {each.name: each.what for each in sheet.arguments}
    return {
        row: {short: found[key].value for short, found in there.items() if key in found}
        for row in sheet.rows
        for key in [(row.setting, what.get(row.argument, ""))]
    }
