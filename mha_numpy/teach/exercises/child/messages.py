"""The messages from the process of a run: each is its length, then its bytes."""

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from .errors import LONGEST, one_line
from .values import HEADER, pack, unpack


class Started(NamedTuple):
    """The sandbox has started, and the time runs from now on."""


class Loaded(NamedTuple):
    """The function is loaded, and the calls begin."""


class Call(NamedTuple):
    """The result of one call."""

    answer: Any  # None where the call failed, ... where the function is not written yet
    error: str  # in a line, with the line that raised it; "" without one
    changed: tuple[str, ...]  # dotted names of inputs that the function changed in place
    seconds: float
    called: tuple[str, ...] = ()  # what of this package it called, where that is to be seen


class Asked(NamedTuple):
    """A call from inside to a function outside, whose answer it waits for."""

    given: tuple[Any, ...]
    named: dict[str, Any]


class Ended(NamedTuple):
    """The reason why no more messages follow."""

    why: str


Message = Started | Loaded | Call | Asked | Ended
KINDS = {kind.__name__: kind for kind in (Started, Loaded, Call, Asked, Ended)}


def write_message(stream: IO[bytes], message: Message) -> None:
    """Write a message as a dict of its fields, under the name of its kind."""
    stream.write(framed({type(message).__name__: message._asdict()}))
    stream.flush()


def framed(value: Any) -> bytes:
    """Return a plain value as bytes with their length before them."""
    packed = pack(value)
    return len(packed).to_bytes(HEADER) + packed


def read_messages(unread: bytearray) -> Iterator[Message]:
    """Take all complete messages from the bytes so far; any error if one is invalid."""
    while len(unread) >= HEADER:
        end = HEADER + int.from_bytes(unread[:HEADER])
        if len(unread) < end:
            return
        ((kind, fields),) = unpack(bytes(unread[HEADER:end])).items()
        del unread[:end]
        yield _checked(KINDS[kind](**fields))


def _checked(message: Any) -> Message:
    """Return a message whose fields have the right types, and whose texts are lines."""
    if isinstance(message, Ended):
        return Ended(one_line(message.why, 3 * LONGEST))
    if isinstance(message, Asked):
        return Asked(tuple(message.given), dict(message.named))
    if not isinstance(message, Call):
        return message
    names = (message.changed, message.called)
    if not (isinstance(message.seconds, float) and all(isinstance(some, tuple) for some in names)):
        raise TypeError("no call")
    changed, called = (tuple(one_line(name, 80) for name in some) for some in names)
    error = one_line(message.error, 3 * LONGEST)
    return Call(message.answer, error, changed, message.seconds, called)
