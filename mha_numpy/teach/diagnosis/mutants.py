"""Mutants: solutions with some mistakes in them, or in the functions that they call.

A mistake is an edit: a text in a source, and the text to write instead.

All functions see one another in a separate namespace. Those without an edit keep their code, and
only the edited ones are compiled.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any, cast

import numpy as np

from mha_numpy.errors import ConfigError
from mha_numpy.teach.conventions import conventions_of, source_in_force, using, variant_in_force
from mha_numpy.teach.diagnosis.bank import BANK, EDITS, IGNORE_ALL, WRAPPERS, Function
from mha_numpy.teach.diagnosis.solutions import called_by, code_of, read_solutions
from mha_numpy.teach.in_force import cached
from mha_numpy.teach.task import Edits
from mha_numpy.teach.tasks import TASKS, find_task
from mha_numpy.teach.turns import follow

EditsOf = dict[str, dict[str, str]]  # of the source of each function


def make(task: str, mistakes: Iterable[str] = ()) -> Function:
    """Return one of the functions that students write, with some mistakes in it.

    Parameters
    ----------
    task : str
        A key of ``TASKS``.
    mistakes : names of the bank
        Without any, the function is right.

    Returns
    -------
    callable
        Takes the arguments in the task's probes, by position or by name.

    Raises
    ------
    ConfigError
        There is no such task, or no such mistake, or two of the mistakes are alternatives.

    Examples
    --------
    >>> softmax = make("softmax", ["softmax over queries"])
    >>> softmax(np.zeros((1, 1, 2, 3)), None).sum(axis=-2)
    array([[[1., 1., 1.]]])
    """
    names = set(mistakes)
    unknown = sorted(names - set(BANK))
    if unknown:
        raise ConfigError(f"mistakes: expected names from BANK; got {unknown[0]!r}")
    edited = mutated(find_task(task).name, sorted(names - set(WRAPPERS)))
    if edited is None:
        raise ConfigError(
            f"mistakes: expected mistakes that change different texts; got {sorted(names)}"
        )

    def function(*by_place: Any, **by_name: Any) -> Any:
        with np.errstate(all="ignore"):
            return edited(*by_place, **by_name)

    for name, behave in WRAPPERS.items():
        function = behave(function) if name in names else function
    return function


def mutated(task: str, mistakes: Iterable[str]) -> Function | None:
    """Return a solution with some mistakes in it; None where they are alternatives.

    It follows the conventions in force, except those that a mistake ignores.
    """
    edits: EditsOf = {}
    followed = conventions_of(task)
    for mistake in mistakes:
        followed = tuple(c for c in followed if mistake not in (c.ignored, IGNORE_ALL.name))
        for name, added in edits_of(mistake).items():
            if name in called_by(task) and edits.get(name, {}).keys() & added.keys():
                return None
            edits[name] = edits.get(name, {}) | added
    with using(variant_in_force()._replace(conventions=tuple(c.name for c in followed))):
        function = edited(task, edits)
    return function and follow(task, followed, function)


def may_show(task: str, mistake: str) -> bool:
    """Return whether a mistake changes the task, or a function that it calls.

    A mistake whose verdict would be false under a convention in force does not show.
    """
    if any(mistake in convention.false_here for convention in conventions_of(task)):
        return False
    return not called_by(task).isdisjoint(edits_of(mistake))


@cached()
def edits_of(mistake: str) -> EditsOf:
    """Return the edits of a mistake by the function that they change."""
    return by_function(EDITS.get(mistake, {}))


def by_function(edits: Mapping[str, Edits]) -> EditsOf:
    """Return the edits of some tasks' files by the function that they change."""
    found: EditsOf = {}
    for task, of_file in edits.items():
        sources = {n: cut.source for n, cut in read_solutions().cuts.items() if cut.task == task}
        apply_edits("".join(sources.values()), of_file)  # raises unless each text occurs once
        for name, source in sources.items():
            if inside := {old: new for old, new in of_file.items() if old in source}:
                found[name] = inside
    return found


def edited(task: str, edits: EditsOf) -> Function | None:
    """Return a solution with some edits made; None where they overlap."""
    try:
        sources = {
            name: edited_source(name, edits[name]) for name in called_by(task) & edits.keys()
        }
    except ConfigError:
        return None
    return assembled(task, {name: _compiled(name, source) for name, source in sources.items()})


def assembled(task: str, codes: Mapping[str, CodeType]) -> Function:
    """Return a solution in which some functions have different code.

    The others have their own, or that of the conventions in force.
    """
    cuts = read_solutions().cuts
    namespace = read_solutions().namespace.copy()
    for name in called_by(task):
        function, source = cuts[name].function, edited_source(name, {})
        is_usual = source == cuts[name].source
        code = codes.get(name) or (function.__code__ if is_usual else _compiled(name, source))
        namespace[name] = FunctionType(code, namespace, name, function.__defaults__)
    made, named = cast(Function, namespace[task]), TASKS[task].named
    return made if named is None else lambda *given, **by_name: named(made(*given, **by_name))


@cached()
def _compiled(function: str, source: str) -> CodeType:
    """Return the code of an edited function."""
    file = f"{read_solutions().cuts[function].function.__code__.co_filename}, with mistakes"
    return code_of(compile(source, file, "exec", dont_inherit=True))


def edited_source(function: str, edits: Edits) -> str:
    """Return the source of a function with edits that do not overlap.

    What a convention in force changes in sources is changed after the edits, and in them.
    """
    return source_in_force(apply_edits(read_solutions().cuts[function].source, edits))


def apply_edits(text: str, edits: Edits) -> str:
    """Return a text with some edits made.

    Parameters
    ----------
    text : str
    edits : mapping
        The text that is there: the text to write instead.

    Returns
    -------
    str

    Raises
    ------
    ConfigError
        A text to replace does not occur exactly once, or two edits overlap.

    Examples
    --------
    >>> apply_edits("d_scores = weights * d_weights", {"= weights": "= -weights"})
    'd_scores = -weights * d_weights'
    """
    places = []
    for old, new in edits.items():
        count = text.count(old)
        if count != 1:
            raise ConfigError(
                f"edits: expected a text that occurs once; {old!r} occurs {count} times"
            )
        places.append((text.index(old), text.index(old) + len(old), new))
    places.sort()
    if any(after[0] < before[1] for before, after in pairwise(places)):
        raise ConfigError(f"edits: expected texts that do not overlap; got {list(edits)}")
    for start, end, new in reversed(places):
        text = text[:start] + new + text[end:]
    return text
