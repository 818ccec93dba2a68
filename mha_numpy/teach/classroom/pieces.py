"""pieces_of: what Python can read of a text that it cannot read as a whole.

One missing bracket makes a whole file unreadable. Its definitions are read one by one instead, so
that it costs only the definition in which it is missing.
"""

import ast
import re

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # of a parser
BEGINS = re.compile(r"(?!(else|elif|except|finally)\b)[^\s#)\]}]")  # something new, in column 0
DEFINES = re.compile(r"@|(async\s+def|def|class)\b")
MOST = 50  # pieces that cannot be read, before the rest of a text counts as another one
LONGEST = 40  # lines in column 0 that something may have: a text in quotes, a list, a dict


def parsed(source: str) -> list[ast.stmt] | None:
    """Return the statements of a source; None if Python cannot read it."""
    try:
        return ast.parse(source).body
    except UNREADABLE:
        return None


def broken_line(text: str) -> int | None:
    r"""Return the line of the first syntax error in a text; None if there is none.

    Examples
    --------
    >>> broken_line("x = 1"), broken_line("x = 1\ny = (2")
    (None, 2)
    """
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error.lineno
    except UNREADABLE:
        pass
    return None


def pieces_of(text: str) -> tuple[str, list[str]]:
    r"""Return what can be read of a text, and each piece that cannot; all lines keep their places.

    Examples
    --------
    >>> pieces_of("x = (1\ndef f():\n    return 2")
    ('\ndef f():\n    return 2', ['x = (1\n\n'])
    """
    if parsed(text) is not None:
        return text, []
    lines = text.split("\n")
    starts = _starts(lines)
    ends = [*starts[1:], len(lines)]
    good, bad = list[range](), list[range]()
    number = 0
    while number < len(starts):
        if len(bad) == MOST:
            bad.append(range(starts[number], len(lines)))
            break
        last = _end_of_piece(lines, starts, ends, number)
        if last is not None:
            good.append(range(starts[number], ends[last]))
            number = last + 1
            continue
        piece = range(starts[number], ends[number])
        if good and _is_cut_off(lines, good[-1], piece):
            piece = range(good.pop().start, piece.stop)
        bad.append(piece)
        number += 1
    kept = {line for piece in good for line in piece}
    return _only(lines, kept), [_only(lines, set(piece)) for piece in bad]


def _starts(lines: list[str]) -> list[int]:
    """Return the lines in column 0 with which something begins: a decorator, not what it adorns."""
    begins = [number for number, line in enumerate(lines) if BEGINS.match(line)]
    before = ["", *(lines[number] for number in begins)]
    return [
        number
        for number, above in zip(begins, before, strict=False)
        if not (above.startswith("@") and DEFINES.match(lines[number]))
    ]


def _end_of_piece(lines: list[str], starts: list[int], ends: list[int], first: int) -> int | None:
    """Return the last of the starts that make one readable piece with the first; None if none do.

    A piece never reaches into a definition that can be read by itself.
    """
    for last in range(first, min(first + LONGEST, len(starts))):
        own = lines[starts[last] : ends[last]]
        if last > first and DEFINES.match(own[0]) and parsed("\n".join(own)) is not None:
            return None
        if parsed("\n".join(lines[starts[first] : ends[last]])) is not None:
            return last
    return None


def _is_cut_off(lines: list[str], before: range, piece: range) -> bool:
    """Return whether a piece goes on with a definition, which a line in column 0 has cut off."""
    try:
        ast.parse("\n".join(lines[piece.start : piece.stop]))
    except IndentationError as error:
        return bool(DEFINES.match(lines[before.start])) and "unexpected indent" in error.msg
    except UNREADABLE:
        pass
    return False


def _only(lines: list[str], kept: set[int]) -> str:
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines))
