"""identify: what a function computes, where it differs from the usual, and in which line."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from mha_numpy.checks import check_number
from mha_numpy.errors import ConfigError, describe, did_you_mean
from mha_numpy.identifying.calling.aftermath import undone
from mha_numpy.identifying.calling.arrays import owner_of
from mha_numpy.identifying.calling.builds import Build, Maker, choices_of, maker_of
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.family import SETTINGS
from mha_numpy.identifying.look import EXCHANGE, Looked, look
from mha_numpy.identifying.reporting.datasheet import TELLING, Named, in_order, make_datasheet
from mha_numpy.identifying.reporting.examples import Example, make_example
from mha_numpy.identifying.reporting.rows import ROLES, Row, make_row
from mha_numpy.identifying.reporting.sheet import Datasheet

NAMES = {  # of roles, as people say them
    **{role: role for role in (*ROLES, "padding")},
    "heads": "H", "num_heads": "H", "num_kv_heads": "G", "kv_heads": "G", "dropout": "rate",
    "dropout_p": "rate",
}  # fmt: skip

INSIDE = (  # roles that nobody has to give
    "x_q", "x_k", "x_v", "wide_q", "wide_k", "wide_v", "H", "G", "R", "B", "w_a", "w_g", "g_q",
    "g_k", "result", "config", "cache", "more_bias", "more_mask", "training", "flag", "eps",
)  # fmt: skip
EXAMPLES = 3.0  # seconds for all examples
CONSTRUCTOR = "of the constructor"
IN_BOTH = "takes some of the tokens, and what it makes takes the rest: both are listed"
UNKNOWN = "unknown"
MOST_BUILDS = 6
MOST_CHOICES = 4  # objects of a class that are made to see what a flag changes
FLAGGED = {*SETTINGS} - {"window_given"}  # what a text says of them is said of the default
OWN_ROWS = ("gradients", "time")  # that say how a look went


def identify(
    function: Callable[..., Any],
    *,
    backward: Callable[..., Any] | None = None,
    given: Mapping[str, str] | None = None,
    seconds: float = 60.0,
    examples: bool = False,
) -> Datasheet:
    """Say what a function that computes attention computes, by calling it.

    Parameters
    ----------
    function : callable
        A function of any signature, a layer, or a class, of NumPy, PyTorch, JAX or Keras.
    backward : callable, optional
        The function that pulls gradients back through it.
    given : dict of str, optional
        Roles that you know, each with the name of its argument: ``{"mask": "attn"}``. The error
        for a wrong role lists all roles.
    seconds : float
        The time that it may take, without that of a single call.
    examples : bool
        Add to each row that is not usual the smallest inputs that show it.

    Returns
    -------
    Datasheet
        ``rows``, ``mistakes``, ``arguments``, ``returns``; ``print`` it, or write ``to_html()``.

    Examples
    --------
    >>> import numpy as np
    >>> def attend(q, k, v, pad):
    ...     scores = np.where(pad[:, None], -np.inf, q @ k.swapaxes(1, 2))
    ...     e = np.exp(scores - scores.max(-1, keepdims=True))
    ...     return e / e.sum(-1, keepdims=True) @ v
    >>> sheet = identify(attend)
    >>> sheet.value("scale"), sheet.value("mask"), sheet.value("blind")
    ('1', 'true = blocked', 'nan')
    """
    check_number("seconds", seconds, positive=True)
    if backward is not None and not callable(backward):
        raise ConfigError(f"backward: expected a function; got {describe(backward)}")
    if not isinstance(given or {}, Mapping):
        raise ConfigError(f"given: expected a dict of roles; got {describe(given)}")
    roles = {}
    for name, argument in (given or {}).items():
        if name not in NAMES:
            known = sorted(each for each in NAMES if each not in INSIDE)
            meant = " ".join(
                filter(None, (did_you_mean(str(name), known), f"roles are {', '.join(known)}"))
            )
            raise ConfigError(f"given: there is no role {name!r}; {meant}")
        if not isinstance(argument, str):
            raise ConfigError(f"given: expected the name of an argument; got {describe(argument)}")
        roles[argument] = NAMES[name]
    with undone(function, backward):
        maker = maker_of(function)
        if maker:
            looked, sheet = _with_builds(maker, roles, seconds, backward)
        else:
            looked, sheet = _with_roles(function, roles, seconds, backward)
        return sheet._replace(rows=(*_with_examples(looked, sheet.rows),)) if examples else sheet


def _with_roles(
    function: Any, roles: Mapping[str, str], seconds: float, backward: Any
) -> tuple[Looked, Datasheet]:
    """Look at a function; where the roles that are given do not fit, say so and what fits."""
    end = clock() + seconds
    looked = look(function, roles, seconds * (0.6 if roles else 1), backward)
    sheet = Datasheet(*make_datasheet(looked))
    doubtful = [row.says for row in sheet.mistakes if _is_doubtful(row, roles)]
    if not roles or (sheet.is_found and not doubtful):
        return looked, _with_misfits(sheet, roles)
    optional = {a.name for a in looked.subject.arguments if not a.is_required}
    if not sheet.arguments and optional & roles.keys():  # it may be known without what they add
        other = look(function, roles, max((end - clock()) / 2, 1.0), backward, pass_all=False)
        partial = Datasheet(*make_datasheet(other))
        if partial.arguments:
            return other, _with_misfits(partial, roles)
    other = look(function, {}, max(end - clock(), 1.0), backward)
    free = Datasheet(*make_datasheet(other))
    taken = {each.name: each.what for each in free.arguments}
    is_known = all(taken.get(name, UNKNOWN) != UNKNOWN for name in roles)
    is_more = (free.is_found and is_known) or (free.arguments and not sheet.arguments)
    if not is_more or any(_is_doubtful(row, roles) for row in free.mistakes):
        return looked, sheet
    names = {name: ROLES.get(role, role).split(",")[0] for name, role in roles.items()}
    given = ", ".join(f"{name} = {what}" for name, what in names.items())
    then = doubtful[0] if doubtful else "nothing that is known gives its numbers"
    known = {n: taken[n] for n in roles if taken.get(n, UNKNOWN) != UNKNOWN}
    moved = [f"{n} = {x}" for n, x in known.items() if x != ROLES.get(roles[n], roles[n])]
    note = f"The roles that you gave do not fit. With {given}, {then}. This report is without them"
    notes = (f"{note}: {', '.join(moved)}." if moved else f"{note}.", *free.notes)
    return other, free._replace(notes=notes, is_as_given=False)


def _is_doubtful(row: Row, roles: Mapping[str, str]) -> bool:
    """Return whether a mistake would be none if a role that was given were another."""
    is_about_role = row.setting in [TELLING.get(role) for role in roles.values()]
    return row.setting in EXCHANGE or (row.value == "ignored" and is_about_role)


def _with_misfits(sheet: Datasheet, roles: Mapping[str, str]) -> Datasheet:
    """Return a datasheet with a note for each role that does not fit."""
    misfits = [*_misfits(sheet, roles)]
    return sheet._replace(notes=(*sheet.notes, *misfits), is_as_given=not misfits)


def _misfits(sheet: Datasheet, roles: Mapping[str, str]) -> Iterator[str]:
    """Say which arguments do something else than the roles that were given."""
    for each in sheet.arguments:
        role = roles.get(each.name, "")
        meant = ROLES.get("mask" if role == "padding" else role)
        if meant and each.what in (UNKNOWN, *ROLES.values()) and each.what != meant:
            is_known = "" if each.what == UNKNOWN else f" It acts as: {each.what}."
            yield f"{each.name} was given as: {meant}. Its numbers do not fit that.{is_known}"


def _with_builds(
    maker: Maker, roles: Mapping[str, str], seconds: float, backward: Any
) -> tuple[Looked, Datasheet]:
    """Look at what a class or a factory makes, in the first of several sizes that is understood."""
    end = clock() + seconds
    own = {argument.name for argument in maker.arguments}
    to_make = {name: role for name, role in roles.items() if name in own}
    to_call = {name: role for name, role in roles.items() if name not in own}
    tried: list[tuple[Looked, Datasheet]] = []
    whole = None
    with contextlib.suppress(Exception):  # anybody's class
        whole = maker.joined()
    if whole:
        looked, sheet = _with_roles(whole, roles, seconds / 3, backward)
        if sheet.is_found:
            return looked, sheet._replace(notes=(f"{maker.name} {IN_BOTH}.", *sheet.notes))
    for build in islice(maker.builds(to_make), MOST_BUILDS):
        left = max(end - clock(), 1.0)
        looked, sheet = _with_roles(build.thing, to_call, left / 2, _of_build(backward, build))
        note = f"Built as {build}."
        if sheet.is_found:
            sheet = _with_choices(build, sheet, to_call, end)
            return looked, sheet._replace(notes=(note, *sheet.notes))
        tried.append((looked, sheet._replace(notes=(note,))))
        if clock() > end:
            break
    return max(tried, key=lambda each: bool(each[0].seen))


def _of_build(backward: Any, build: Build) -> Any:
    """Return a backward, that of an object for a method of its class."""
    maker = maker_of(backward) if backward else None
    if maker and maker.make is build.maker.make:
        return getattr(owner_of(build.thing), maker.method)
    return backward


def _with_choices(
    build: Build, sheet: Datasheet, roles: Mapping[str, str], end: float
) -> Datasheet:
    """Add the arguments of a constructor, and what is different with each of its flags."""
    rows = [*sheet.rows]
    passed = [each.name for each in sheet.arguments]
    choices = [each for each in choices_of(build.maker) if each[0] not in passed]
    arguments = [Named(n, ROLES.get(role, UNKNOWN), "", CONSTRUCTOR) for n, role, _ in choices]
    pairs = [(name, value) for name, _, values in choices for value in values][:MOST_CHOICES]
    known = [(row.setting, row.value, row.argument) for row in sheet.rows]
    for count, (name, value) in enumerate(pairs):
        with contextlib.suppress(Exception):  # anybody's
            left = (end - clock()) / (len(pairs) - count)
            other = look(build.but(**{name: value}).thing, roles, max(left, 1.0))
            for row in make_datasheet(other).rows:
                about = ", ".join(filter(None, (row.argument, f"{name}={value!r}")))
                if (row.setting, row.value, row.argument) in known or row.name in OWN_ROWS:
                    continue
                if "but it says" in row.says and row.setting in FLAGGED:
                    row = make_row(row.setting, row.value)
                rows.append(row._replace(argument=about))
    return sheet._replace(arguments=(*sheet.arguments, *arguments), rows=(*in_order(rows),))


def _with_examples(looked: Looked, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield rows with an example of each that is not usual; those of mistakes are made first."""
    findings = [looked.found, *(option.found for option in looked.options)]
    made: dict[int, Example | None] = {}
    with looked.subject.within(EXAMPLES):
        for at in sorted(range(len(rows)), key=lambda at: rows[at].kind != "mistake"):
            row = rows[at]
            for found in findings if row.kind != "usual" else ():
                is_about = found and (not row.argument or row.argument in found.seen.way.slots)
                if found and is_about and not made.get(at):
                    made[at] = make_example(looked.subject, found, row.setting, row.value)
    for at, row in enumerate(rows):
        yield row._replace(example=made.get(at))
