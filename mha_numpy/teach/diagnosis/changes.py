"""changes_of: every small change of a student's own text, one of which may make it right.

Where it changes the text is then the place to look at, though now and then it only cancels a slip
in another place. Most slips are undone by another slip, so these are edits that also make
mistakes, and some that add what is missing.
"""

import ast
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import indent
from typing import Any, NamedTuple

from mha_numpy.teach.diagnosis.own_edits import InOneStyle, edits_of_style
from mha_numpy.teach.diagnosis.rewrite import MENDS, rules
from mha_numpy.teach.diagnosis.small_edits import (
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
OFTEN = 4  # places in which the same slip may be
LAST = (NAME, MISSING)  # of which there are many


class Change(NamedTuple):
    """A small change of a text."""

    slip: str  # the kind of slip that it undoes
    line: int  # of the text, in which it begins
    new: str | None  # what to write there; "" to leave it out, None if several lines change
    text: str  # all of the changed text
    places: int  # that are changed in the same way


def changes_of(text: str, stub: str = "") -> Iterator[Change]:
    r"""Yield the small changes of the functions in a text, likely ones first.

    Parameters
    ----------
    text : str
        Python, in any style.
    stub : str
        A text with the same function, whose arguments have their kinds as annotations.

    Yields
    ------
    Change
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
    for function in module.body:
        for one in ast.walk(function.args) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(one, ast.arg):
                array = ast.Name("Array", ast.Load())
                one.annotation = kinds.get(one.arg) or one.annotation or array
    ast.fix_missing_locations(module)
    functions = {
        i: _Function(f) for i, f in enumerate(module.body) if isinstance(f, ast.FunctionDef)
    }
    texts = [ast.unparse(one) for one in module.body]
    seen = {"\n".join(texts)}
    numbered = [(i, edits) for i, function in functions.items() for edits in function.edits]
    for i, edits in sorted(numbered, key=lambda pair: _rank(pair[1])):
        line, new, changed = functions[i].changed(edits)
        whole = "\n".join([*texts[:i], changed, *texts[i + 1 :]])
        if whole not in seen:
            seen.add(whole)
            group = edits[0].group
            yield Change(UNDONE.get(group, group), line, new, whole, len(edits))


def _rank(edits: Sequence[Edit]) -> tuple[int, int]:
    """Return what comes first: kinds of which there are few, and one place before several."""
    group = edits[0].group
    late = 2 if len(edits) > 1 else {NAME: 1, MISSING: 3}.get(group, 0)
    return late, 0 if group in LAST else edits[0].rank


class _Function:
    """A function and the text of each of its statements, so that few are written anew."""

    def __init__(self, tree: ast.FunctionDef):
        if ast.get_docstring(tree) is not None:
            tree.body = tree.body[1:] or [ast.Pass()]
        self.tree = tree
        edits = [*edits_of_function(tree, [*rules(), *rules(MENDS)]), *edits_of_style(tree)]
        single = list(filter(_may_mend, edits))
        self.edits = [*([one] for one in single), *_repeated(single)]
        tree.returns, tree.decorator_list = None, []
        for one in ast.walk(tree.args):
            if isinstance(one, ast.arg):
                one.annotation = None  # what it names may not be there
        self.head = ast.unparse(tree).partition("\n")[0]
        self.statements = [ast.unparse(one) for one in tree.body]
        self.place, self.inner = dict[int, int](), dict[int, ast.stmt]()
        for i, statement in enumerate(tree.body):
            for node in ast.walk(statement):
                self.place[id(node)] = i
                if isinstance(node, ast.stmt):  # those inside come later
                    self.inner |= {id(part): node for part in ast.walk(node)}

    def changed(self, edits: Sequence[Edit]) -> tuple[int, str | None, str]:
        """Return the first line of some edits, what to write there, and the changed text."""
        first = edits[0]
        kept = [getattr(edit.holder, edit.field) for edit in edits]
        for edit in edits:
            setattr(edit.holder, edit.field, edit.new)
        places = {self.place.get(id(edit.holder)) for edit in edits}
        statements = [self.inner.get(id(edit.holder), self.tree) for edit in edits]
        try:
            text = self._text(places.pop() if len(places) == 1 else None)
            line, new = _told(first, kept[0], statements[0])
            is_there = all(one is statements[0] for one in statements)
            return line, new if is_there else None, text
        finally:
            for edit, old in zip(edits, kept, strict=True):
                setattr(edit.holder, edit.field, old)

    def _text(self, number: int | None) -> str:
        """Return the text of the function, in which a statement has changed, or any may have."""
        texts = list(self.statements)
        if number is None:
            texts = [ast.unparse(ast.fix_missing_locations(one)) for one in self.tree.body]
        else:
            texts[number] = ast.unparse(ast.fix_missing_locations(self.tree.body[number]))
        return "\n".join([self.head, indent("\n".join(texts), "    ")])


def _repeated(edits: Sequence[Edit]) -> Iterator[list[Edit]]:
    """Yield edits that write the same in place of the same, to be made together."""
    found: dict[tuple[str, str, str], list[Edit]] = {}
    for edit in edits:
        pair = _dumped(getattr(edit.holder, edit.field)), _dumped(edit.new)
        if edit.group not in LAST and edit.field != "body":
            found.setdefault((edit.group, *pair), []).append(edit)
    yield from (same for same in found.values() if 1 < len(same) <= OFTEN)


def _may_mend(edit: Edit) -> bool:
    """Return whether an edit is worth a trial: it is of a kind that makes something right."""
    is_call = edit.group == NAME and isinstance(edit.new, ast.Call)
    return not (edit.is_of_input or edit.group in NOT_HERE or is_call)


def _told(edit: Edit, old: Any, statement: ast.stmt) -> tuple[int, str | None]:
    """Return the line of what is changed, and the new one; "" if it goes, None if it is several."""
    both = (one if isinstance(one, list) else [one] for one in (old, edit.new))
    pairs = [(a, b) for a, b in zip_longest(*both) if _dumped(a) != _dumped(b)]
    line = next((a.lineno for a, _ in pairs if hasattr(a, "lineno")), statement.lineno)
    if not isinstance(old, list) or edit.field != "body":  # `a if b else c` has a body, too
        is_long = not hasattr(statement, "body") and statement.end_lineno != statement.lineno
        return line, None if is_long else ast.unparse(statement).partition("\n")[0]
    if edit.group == LEFT_OUT:
        return line, ""
    is_one = len(pairs) == 1 and len(old) == len(edit.new) and not hasattr(pairs[0][1], "body")
    return line, ast.unparse(ast.fix_missing_locations(pairs[0][1])) if is_one else None


def _dumped(part: Any) -> str:
    many = part if isinstance(part, list) else [part]
    return "".join(ast.dump(one) if isinstance(one, ast.AST) else repr(one) for one in many)
