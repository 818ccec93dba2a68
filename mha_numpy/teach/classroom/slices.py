"""slice_of: the part of a student's file that one function needs.

A function is run with what it needs and nothing else: an endless loop or a plot elsewhere in the
file, or a syntax error in another cell of a notebook, costs it nothing.
"""

import ast
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import NamedTuple

TAG = "exercise"
MOST_CODE = 500_000  # characters; no assignment needs more
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # of a parser
SHOWN = re.compile(r"\s*(%%(time|timeit|capture|prun)\b.*|[%!?].*|\w[\w.]*\?+)\s*")  # not Python
FOREIGN = re.compile(r"\s*%%(?!time|timeit|capture|prun)")  # a cell in another language


class Cell(NamedTuple):
    """Some lines that are run together: a cell of a notebook, or a whole file."""

    text: str
    is_exercise: bool = True


def decoded(data: bytes) -> str:
    """Return the text of a file, in any editor's encoding: UTF-8, UTF-16 with its mark, Latin-1.

    Examples
    --------
    >>> [decoded("é".encode(encoding)) for encoding in ("utf-8-sig", "utf-16", "latin-1")]
    ['é', 'é', 'é']
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8-sig", errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def cells_of(name: str, data: bytes) -> list[Cell]:
    """Return the code cells of a notebook, or a file as one cell.

    A ValueError says that a notebook is broken, or that it has far too much code.

    Examples
    --------
    >>> cells_of("a.py", b"x = 1")
    [Cell(text='x = 1', is_exercise=True)]
    """
    text = decoded(data).replace("\r\n", "\n").replace("\r", "\n")
    cells = list(_notebook_cells(text)) if name.lower().endswith(".ipynb") else [Cell(text)]
    if sum(len(cell.text) for cell in cells) > MOST_CODE:
        raise ValueError(f"it has more than {MOST_CODE:,} characters of code")
    return cells


def _notebook_cells(text: str) -> Iterator[Cell]:
    """Yield the code cells of a notebook without what is not Python."""
    try:
        found = json.loads(text)
        cells = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
        for cell in cells:
            source = cell["source"]
            source = source if isinstance(source, str) else "".join(source)
            source = source.encode("utf-8", "replace").decode()  # escapes can be half a character
            tags = cell.get("metadata", {}).get("tags", [])
            yield Cell(_python_of(source), TAG in tags)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is not a readable notebook") from error


def _python_of(source: str) -> str:
    """Return a cell with its magics replaced by `pass`; nothing of a cell in another language."""
    if _parsed(source) is not None:
        return source
    if FOREIGN.match(source):
        return ""
    lines = source.split("\n")
    indents = (line[: len(line) - len(line.lstrip())] for line in lines)
    return "\n".join(
        f"{indent}pass" if SHOWN.fullmatch(line) else line
        for line, indent in zip(lines, indents, strict=True)
    )


def _parsed(source: str) -> list[ast.stmt] | None:
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


def slice_of(cells: Iterable[Cell], function: str) -> str | None:
    r"""Return the text that defines a function and all that it uses; None without the function.

    In a notebook, a cell with the tag "exercise" takes precedence. A cell that is not valid Python
    but contains the function is returned as it is, because running it shows the error.

    Examples
    --------
    >>> text = "import numpy as np\nimport torch\n\ndef f(x):\n    return np.exp(x)\n\nf(1)"
    >>> print(slice_of([Cell(text)], "f"))
    import numpy as np
    <BLANKLINE>
    <BLANKLINE>
    def f(x):
        return np.exp(x)
    <BLANKLINE>
    <BLANKLINE>
    """
    cells = list(cells)
    written = re.compile(rf"^[ \t]*def[ \t]+{re.escape(function)}\b", re.MULTILINE)
    holders = [number for number, cell in enumerate(cells) if written.search(cell.text)]
    if not holders:
        return None
    last = max(holders, key=lambda number: (cells[number].is_exercise, number))
    parsed = [_parsed(cell.text) for cell in cells[: last + 1]]
    if parsed[last] is None:
        return cells[last].text
    kept = _needed(parsed, function)
    texts = (_lines_of(cell.text, kept[number]) for number, cell in enumerate(cells[: last + 1]))
    return "\n\n".join(text for text in texts if text.strip())


def _needed(parsed: list[list[ast.stmt] | None], function: str) -> list[list[ast.stmt]]:
    """Return the statements of each cell that a function needs, directly or through others."""
    binding: dict[str, list[ast.stmt]] = {}
    for statement in (statement for body in parsed for statement in body or ()):
        for name in _bound(statement):
            binding.setdefault(name, []).append(statement)
    waiting, kept = [function, "*"], set[int]()  # a star may define anything
    while waiting:
        for statement in binding.pop(waiting.pop(), ()):
            if id(statement) not in kept:
                kept.add(id(statement))
                waiting += _used(statement)
    return [[statement for statement in body or () if id(statement) in kept] for body in parsed]


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines or changes."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, ast.Expr):  # such as table.update(...), but not plt.show() of a module
        call = statement.value
        is_change = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        return {_base(call.func)} if is_change and isinstance(call, ast.Call) else set()
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)) and isinstance(
            node.ctx, (ast.Store, ast.Del)
        ):
            found.add(_base(node))
    return found


def _base(node: ast.expr) -> str:
    """Return the name that `name.part[index]` begins with, "" without one."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _used(statement: ast.stmt) -> set[str]:
    """Return the names that a statement takes from the module: no local ones."""
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    try:
        code = compile(ast.Module([statement], []), "<statement>", "exec", dont_inherit=True)
    except (*UNREADABLE, OverflowError):  # such as a return outside of a function
        return names
    return names & _names_in(code)


def _names_in(code: CodeType) -> set[str]:
    """Return the names of a module, and of attributes, that some code and all in it uses."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _lines_of(text: str, statements: list[ast.stmt]) -> str:
    """Return a text in which all lines but those of some statements are empty."""
    lines, kept = text.split("\n"), set[int]()
    for statement in statements:
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        kept.update(range(first, (statement.end_lineno or statement.lineno) + 1))
    return "\n".join(line if number in kept else "" for number, line in enumerate(lines, start=1))
