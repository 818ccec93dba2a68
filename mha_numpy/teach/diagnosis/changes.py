"""changes_of: every small change of a student's own text, one of which may make it right.

A change that does is a proof: what it changes is what was wrong, and where it changes it is the
place. Most slips are undone by another slip, so these are edits that also make mistakes, and some
that add what is missing.
"""

import ast
from collections.abc import Iterator
from itertools import zip_longest
from textwrap import indent
from typing import Any, NamedTuple

from mha_numpy.teach.diagnosis.own_edits import InOneStyle, edits_of_style
from mha_numpy.teach.diagnosis.rewrite import MENDS, rules
from mha_numpy.teach.diagnosis.small_edits import (
    EXCHANGED,
    INSIDE,
    LEFT_OUT,
    NAME,
    OUTSIDE,
    PART,
    Edit,
    edits_of_function,
)

MISSING = "something is missing"
TOO_MUCH = "a part that does not belong there"
UNDONE = {  # the slip that an edit undoes; others undo themselves
    PART: TOO_MUCH, MISSING: PART, LEFT_OUT: "a line that does not belong there",
    INSIDE: OUTSIDE, OUTSIDE: INSIDE,
}  # fmt: skip
NOT_HERE = {  # they take away or mix what nobody would have to
    "the numbers in a different order", "the first or the last one left out",
    "only one of many added", "one instead of all", "all together instead of one by one",
    TOO_MUCH,
}  # fmt: skip
LAST = (NAME, MISSING)  # of which there are many


class Change(NamedTuple):
    """A small change of a text."""

    slip: str  # the kind of slip that it undoes
    line: int  # of the text, in which it begins
    new: str  # the changed line
    text: str  # all of the changed text


def changes_of(text: str, stub: str = "") -> list[Change]:
    r"""Return the small changes of the functions in a text, likely ones first.

    Parameters
    ----------
    text : str
        Python, in any style.
    stub : str
        A text with the same function, whose arguments have their kinds as annotations.

    Returns
    -------
    list of Change
        Their texts have no comments and no docstrings.

    Examples
    --------
    >>> changes = changes_of("def f(a, b):\n    c = a - b\n    return c * 2")
    >>> [(one.line, one.new) for one in changes if one.slip == "a different order"]
    [(2, 'c = b - a')]
    """
    module = InOneStyle().visit(ast.parse(text))
    kinds = {
        one.arg: one.annotation for one in ast.walk(ast.parse(stub)) if isinstance(one, ast.arg)
    }
    for one in ast.walk(module):
        if isinstance(one, ast.arg):
            one.annotation = kinds.get(one.arg) or one.annotation or ast.Name("Array")
    ast.fix_missing_locations(module)
    parts = [_Part(one) for one in module.body]
    found: dict[str, tuple[int, Change]] = {}
    for number, part in enumerate(parts):
        before = "\n".join(one.text for one in parts[:number])
        after = "\n".join(one.text for one in parts[number + 1 :])
        for edit, line, new, changed in part.changes():
            whole = f"{before}\n{changed}\n{after}"
            slip = UNDONE.get(edit.group, edit.group)
            found.setdefault(whole, (_rank(edit), Change(slip, line, new, whole)))
    return [change for _, change in sorted(found.values(), key=lambda pair: pair[0])]


def _rank(edit: Edit) -> tuple[int, int]:
    """Return what comes first: kinds of which there are few."""
    return (LAST.index(edit.group) + 1, 0) if edit.group in LAST else (0, edit.rank)


class _Part:
    """A statement of a file; of a function, each one in it, so that few are written anew."""

    def __init__(self, tree: ast.stmt):
        self.tree, self.edits = tree, list[Edit]()
        if isinstance(tree, ast.FunctionDef):
            if ast.get_docstring(tree) is not None:
                tree.body = tree.body[1:] or [ast.Pass()]
            self.edits = [*edits_of_function(tree, [*rules(), *rules(MENDS)])]
            self.edits += edits_of_style(tree)
            tree.returns, tree.decorator_list = None, []
            for one in ast.walk(tree.args):
                if isinstance(one, ast.arg):
                    one.annotation = None  # what it names may not be there
            self.head = ast.unparse(tree).partition("\n")[0]
            self.statements = [ast.unparse(one) for one in tree.body]
        self.text = ast.unparse(tree)

    def changes(self) -> Iterator[tuple[Edit, int, str, str]]:
        """Yield each edit with its line, the new line, and the changed text."""
        place, inner = dict[int, int](), dict[int, ast.stmt]()
        for i, statement in enumerate(self.tree.body if self.edits else ()):
            for node in ast.walk(statement):
                place[id(node)] = i
                if isinstance(node, ast.stmt):  # those inside come later
                    inner |= {id(part): node for part in ast.walk(node)}
        for edit in filter(_may_mend, self.edits):
            old = getattr(edit.holder, edit.field)
            setattr(edit.holder, edit.field, edit.new)
            try:
                if (i := place.get(id(edit.holder))) is None:
                    text = ast.unparse(ast.fix_missing_locations(self.tree))
                else:
                    text = ast.unparse(ast.fix_missing_locations(self.tree.body[i]))
                    statements = [*self.statements[:i], text, *self.statements[i + 1 :]]
                    text = "\n".join([self.head, indent("\n".join(statements), "    ")])
                changed = inner.get(id(edit.holder), self.tree)
                line, changed = _first_changed(edit, old, changed)
                new = ast.unparse(changed).partition("\n")[0] if changed else ""
            finally:
                setattr(edit.holder, edit.field, old)
            yield edit, line, new, text


def _may_mend(edit: Edit) -> bool:
    """Return whether an edit is worth a trial: it is of a kind that makes something right."""
    if edit.is_of_input:
        return edit.group == EXCHANGED
    is_call = edit.group == NAME and not isinstance(edit.new, ast.Name | list)
    return edit.group not in NOT_HERE and not is_call


def _first_changed(edit: Edit, old: Any, statement: ast.stmt) -> tuple[int, ast.stmt | None]:
    """Return the line of what is changed, and the new statement; None where it is left out."""
    if edit.field != "body":
        return getattr(old, "lineno", statement.lineno), statement
    pairs = zip_longest(old, edit.new)
    before, new = next((a, b) for a, b in pairs if a is not b)
    return getattr(before, "lineno", statement.lineno), None if len(edit.new) < len(old) else new
