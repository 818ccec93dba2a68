"""The backward that belongs to a function: its own, that of its object, or one beside it."""

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

from mha_numpy.identifying.calling.arrays import owner_of, parts_of
from mha_numpy.identifying.calling.builds import method_of
from mha_numpy.identifying.calling.names import roles_by_name
from mha_numpy.identifying.calling.subject import Subject
from mha_numpy.identifying.gradients.calls import pull_back
from mha_numpy.identifying.searching.search import Found

BACKWARD = r"(backward|bwd|backprop|backpropagate|back|vjp|grads?|gradients?)(_?pass)?"
FORWARD = re.compile(r"_?(forward|fwd)(_?pass)?$")


def find_backward(subject: Subject, found: Found) -> tuple[Callable[..., Any] | None, bool]:
    """Return the backward of a function, and whether it is beside it, and known by its name only.

    A function may take the gradient of its output, or return what pulls it back.
    """
    names = [argument.name for argument in subject.arguments]
    if any("d_out" in roles_by_name(name) for name in names if len(name) > 1):
        return subject.function, False
    if any(map(callable, parts_of(found.seen.called.result, "").values())):
        return pull_back, False
    owner, name = owner_of(subject.function), str(getattr(subject.inner, "__name__", ""))
    if owner is not subject.function or not inspect.isroutine(owner):
        methods = [n for n in dir(type(owner)) if n[0] != "_" and _is_backward_of(name, n)]
        methods += ["backward"] if "backward" in dir(type(owner)) else []
        method = next(filter(None, (method_of(owner, each) for each in methods)), None)
        return method, False
    home: Any = sys.modules.get(subject.inner.__module__)
    for part in subject.inner.__qualname__.split(".")[:-1]:
        home = getattr(home, part, None)
    around = {n: f for n, f in vars(home).items() if inspect.isroutine(f)} if home else {}
    own = [n for n in around if _is_backward_of(name, n)]
    return (getattr(home, own[0]), True) if len(own) == 1 else (None, False)


def _is_backward_of(forward: str, name: str) -> bool:
    """Return whether a name is that of the backward of a function with another.

    Examples
    --------
    >>> _is_backward_of("attn_fwd", "attn_bwd"), _is_backward_of("forward", "backward")
    (True, True)
    >>> _is_backward_of("attention", "softmax_backward")
    False
    """
    base = re.escape(FORWARD.sub("", forward))
    either = rf"{base}_?{BACKWARD}|{BACKWARD}(_of)?_?{base}|d_?{base}" if base else BACKWARD
    return bool(re.fullmatch(f"(?i)_?({either})", name)) and name != forward
