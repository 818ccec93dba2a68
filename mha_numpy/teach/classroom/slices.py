"""slice_of: the part of a student's file that one function needs.

A function is run with what it needs and nothing else: an endless loop or a plot elsewhere in the
file, or a syntax error in another cell of a notebook, costs it nothing.
"""

import ast
import builtins
import codecs
import json
import re
from collections.abc import Iterable, Iterator
from copy import copy
from types import CodeType
from typing import NamedTuple

from mha_numpy.teach.classroom.pieces import UNREADABLE, parsed, pieces_of

TAG = "exercise"
MOST_CODE = 500_000  # characters; no assignment needs more
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

    Of a cell that Python cannot read, the parts that it can read come after those that it cannot.
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
    return [piece for cell in cells for piece in _readable(cell)]


def _readable(cell: Cell) -> list[Cell]:
    """Return a cell, or what Python cannot read of it and then what it can, each as a cell."""
    good, bad = pieces_of(cell.text)
    return [cell._replace(text=text) for text in (*bad, *[good] * (bool(good.strip()) or not bad))]


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
    if parsed(source) is not None:
        return source
    if FOREIGN.match(source):
        return ""
    lines = source.split("\n")
    indents = (line[: len(line) - len(line.lstrip())] for line in lines)
    return "\n".join(
        f"{indent}pass" if SHOWN.fullmatch(line) else line
        for line, indent in zip(lines, indents, strict=True)
    )


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
    bodies = [parsed(cell.text) for cell in cells[: last + 1]]
    if bodies[last] is None:
        return cells[last].text
    kept = _needed([list(_one_by_one(body or ())) for body in bodies], function)
    texts = (_lines_of(cell.text, kept[number]) for number, cell in enumerate(cells[: last + 1]))
    return "\n\n".join(text for text in texts if text.strip())


def _one_by_one(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with each import by itself: a function may need only one of them."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for name in statement.names:
                one = copy(statement)
                one.names = [name]
                yield one
        else:
            yield statement


def _needed(bodies: list[list[ast.stmt]], function: str) -> list[list[ast.stmt]]:
    """Return the statements of each cell that a function needs, directly or through others."""
    binding: dict[str, list[ast.stmt]] = {}
    for statement in (statement for body in bodies for statement in body):
        for name in _bound(statement):
            binding.setdefault(name, []).append(statement)
    known, waiting, kept = {*binding, *dir(builtins)}, [function], set[int]()
    while waiting:
        for statement in binding.pop(waiting.pop(), ()):
            if id(statement) not in kept:
                kept.add(id(statement))
                used = _used(statement)
                waiting += [*used, *["*"] * (not used <= known)]  # a star may define what is left
    return [[statement for statement in body if id(statement) in kept] for body in bodies]


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
    lines, kept, imports = text.split("\n"), set[int](), dict[int, list[str]]()
    for statement in statements:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.setdefault(statement.lineno, []).append(ast.unparse(statement))
            continue
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        kept.update(range(first, (statement.end_lineno or statement.lineno) + 1))
    return "\n".join(
        line if number in kept else "; ".join(imports.get(number, []))
        for number, line in enumerate(lines, start=1)
    )
