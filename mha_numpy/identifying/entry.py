"""identify: what a function computes, where it differs from the usual, and in which line."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mha_numpy.checks import check_number
from mha_numpy.errors import ConfigError, describe, did_you_mean
from mha_numpy.identifying.calling.aftermath import undone
from mha_numpy.identifying.calling.clock import clock
from mha_numpy.identifying.calling.instances import choices_of, make_instance
from mha_numpy.identifying.family import SETTINGS
from mha_numpy.identifying.look import Looked, look
from mha_numpy.identifying.reporting.datasheet import Named, in_order, make_datasheet
from mha_numpy.identifying.reporting.examples import Example, make_example
from mha_numpy.identifying.reporting.rows import ROLES, Row, make_row
from mha_numpy.identifying.reporting.sheet import Datasheet

NAMES = {  # of roles, as people say them
    **{role: role for role in (*ROLES, "padding")},
    "heads": "H", "num_heads": "H", "num_kv_heads": "G", "kv_heads": "G", "dropout": "rate",
    "dropout_p": "rate",
}  # fmt: skip

EXAMPLES = 3.0  # seconds for all examples
CONSTRUCTOR = "of the constructor"
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
            meant = f"{did_you_mean(str(name), NAMES)} Roles are {', '.join(NAMES)}".strip()
            raise ConfigError(f"given: there is no role {name!r}; {meant}")
        if not isinstance(argument, str):
            raise ConfigError(f"given: expected the name of an argument; got {describe(argument)}")
        roles[argument] = NAMES[name]
    end = clock() + seconds
    with undone(function, backward):
        looked = look(function, roles, seconds, backward)
        sheet = Datasheet(*make_datasheet(looked))
        if inspect.isclass(function) and sheet.is_found:
            sheet = _with_choices(function, sheet, lambda each, left: look(each, roles, left), end)
        return sheet._replace(rows=(*_with_examples(looked, sheet.rows),)) if examples else sheet


def _with_choices(
    kind: type, sheet: Datasheet, look_at: Callable[[Any, float], Looked], end: float
) -> Datasheet:
    """Add the arguments of a constructor, and what is different with each of its flags."""
    rows = [*sheet.rows]
    passed = [each.name for each in sheet.arguments]
    choices = [each for each in choices_of(kind) if each[0] not in passed]
    arguments = [Named(n, ROLES.get(role, "unknown"), "", CONSTRUCTOR) for n, role, _ in choices]
    pairs = [(name, value) for name, _, values in choices for value in values][:MOST_CHOICES]
    known = [(row.setting, row.value, row.argument) for row in sheet.rows]
    for count, (name, value) in enumerate(pairs):
        with contextlib.suppress(ConfigError):
            left = (end - clock()) / (len(pairs) - count)
            other = make_datasheet(look_at(make_instance(kind, **{name: value}), max(left, 1.0)))
            for row in other.rows:
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
