"""retold: a docstring in the words of a student's conventions."""

import re
from collections.abc import Iterator, Sequence
from textwrap import fill

from mha_numpy.teach.conventions import in_words_of
from mha_numpy.teach.exercises.exercise import WIDTH
from mha_numpy.teach.turns import Convention

KEPT_SPACE = "\0"  # in code, where no line may end


def retold(docstring: str, conventions: Sequence[Convention]) -> str:
    r"""Return a docstring as it is true under some conventions, with paragraphs filled again.

    Examples
    --------
    >>> from mha_numpy.teach.conventions import CONVENTIONS
    >>> print(retold("mask : (T, T) bool\n    True = may attend.", [CONVENTIONS["0 and -inf"]]))
    mask : (T, T) float
        0 = may attend, -inf = hidden.
    """
    found = [_retold_part(*part, conventions) for part in _parts(docstring)]
    return "\n".join(found)


def _parts(docstring: str) -> Iterator[tuple[list[str], bool]]:
    """Yield groups of lines that belong together, and whether they are prose."""
    prose, code_below, head = list[str](), "", False
    for line in docstring.split("\n"):
        margin = line[: len(line) - len(line.lstrip())]
        is_code = bool(code_below) and (not line.strip() or len(margin) >= len(code_below))
        is_head = " : " in line or not line.strip() or set(line.strip()) == {"-"}
        if prose and (is_code or is_head or head or _margin(prose[-1]) != margin):
            yield prose, True
            prose = []
        if is_code or is_head:
            yield [line], False
        else:
            prose.append(line)
            code_below = f"{margin}    " if line.endswith("::") else ""
        head = is_head
    if prose:
        yield prose, True


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _retold_part(lines: list[str], is_prose: bool, conventions: Sequence[Convention]) -> str:
    if not is_prose:
        return _with_comment_above(in_words_of(conventions, lines[0]))
    text = " ".join(line.strip() for line in lines)
    new = in_words_of(conventions, text)
    if new == text:
        return "\n".join(lines)
    whole = re.sub(r"``.*?``|\(.*?\)", lambda found: found[0].replace(" ", KEPT_SPACE), new)
    margin = _margin(lines[0])
    filled = fill(whole, WIDTH, initial_indent=margin, subsequent_indent=margin)
    return filled.replace(KEPT_SPACE, " ")


def _with_comment_above(line: str) -> str:
    """Return a line of code; its comment goes above if the line has become too long."""
    code, mark, comment = line.partition("  # ")
    return f"{_margin(line)}# {comment}\n{code}" if mark and len(line) > WIDTH else line
