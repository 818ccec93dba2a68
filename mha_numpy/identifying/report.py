"""A datasheet as text for the terminal, and as a dict for JSON."""

from textwrap import fill, wrap
from typing import Any

from mha_numpy.identifying.datasheet import Datasheet, Named
from mha_numpy.identifying.libraries import SHOWN, beside, drop_in, in_libraries
from mha_numpy.identifying.rows import Row


def to_text(sheet: Datasheet) -> str:
    """Return a datasheet as text."""
    if not sheet.is_found:
        return f"{sheet.name}: {sheet.saw}\n"
    parts = [f"{sheet.name} ({sheet.framework}): {_headline(sheet)}", ""]
    parts += ["arguments", *_lines(sheet.arguments), "", "returns", *_lines(sheet.returns), ""]
    if sheet.mistakes:
        parts += ["what looks like a mistake"]
        for row in sheet.mistakes:
            parts += [*_mistake(row)]
        parts.append("")
    width = max(len(row.name) for row in sheet.rows)
    parts.append(f"conventions (= where {', '.join(SHOWN)} do the same, as far as they have it)")
    for row, there in zip(sheet.rows, in_libraries(sheet), strict=True):
        if row.kind != "mistake":
            is_same = bool(there) and all(each.value == row.value for each in there.values())
            about = f" [{row.argument}]" if row.argument else ""
            name = f"{' ='[is_same]} {row.name.ljust(width)}"
            parts.append(_wrapped(f"{name}  {row.says}{about}", width))
            if there and not is_same:
                parts.append(_wrapped(" " * (width + 4) + beside(row, there), width))
    parts += ["", *wrap(drop_in(sheet), 100)]
    return "\n".join(parts) + "\n"


def _wrapped(line: str, width: int) -> str:
    return fill(line, 100, subsequent_indent=" " * (width + 4))


def _headline(sheet: Datasheet) -> str:
    count = len(sheet.mistakes)
    mistakes = {0: "nothing looks like a mistake", 1: "one mistake"}.get(count, f"{count} mistakes")
    return f"attention; {mistakes}"


def _lines(named: tuple[Named, ...]) -> list[str]:
    names = max((len(each.name) for each in named), default=0)
    axes = max((len(each.axes) for each in named), default=0)
    return [
        f"  {each.name.ljust(names)}  {each.axes.ljust(axes)}  {each.what}"
        f"{f' ({each.note})' if each.note else ''}".rstrip()
        for each in named
    ]


def _mistake(row: Row) -> list[str]:
    where = f" (line {row.line}: {row.code})" if row.line else ""
    lines = [f"  {row.name}: {row.says}{where}"]
    if row.instead:
        lines.append(f"    instead: {row.instead}")
    return lines


def to_dict(sheet: Datasheet) -> dict[str, Any]:
    """Return a datasheet as what JSON knows."""
    found = sheet._asdict()
    for part in ("arguments", "returns", "rows"):
        found[part] = [each._asdict() for each in found[part]]
    for row, there in zip(found["rows"], in_libraries(sheet), strict=True):
        row["libraries"] = {library: each.value for library, each in there.items()}
    found["drop_in"] = drop_in(sheet)
    found["mistakes"] = [row._asdict() for row in sheet.mistakes]
    return found
