"""Plain values as bytes and back; and bytes that somebody else has written."""

import io
import json
from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.teach.exercises.child.errors import one_line
from mha_numpy.teach.exercises.child.messages import (
    Asked,
    Call,
    Ended,
    Loaded,
    Started,
    framed,
    read_messages,
    write_message,
)
from mha_numpy.teach.exercises.child.values import Foreign, pack, plain, record, unpack


class Params(NamedTuple):
    w: np.ndarray
    b: object


VALUES = [
    None, ..., True, 3, 2**70, -0.0, float("inf"), float("nan"), 1 + 2j, "a \ud800 \n",
    Foreign("an object"), (1, [2.0, (None,)]), {"a": {"b": np.ones(2, bool)}, "c": ()},
    Params(np.ones(3), None),
]  # fmt: skip
ARRAYS = [
    np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.zeros((0, 4), complex),
    np.ones((2, 0, 3), np.float32), np.array([np.nan, -np.inf]), np.array(1.5, np.float16),
    np.array(5, dtype=">i2"), np.array([True, False]), np.array([1j]),
    np.array(np.longdouble("0.1")), np.broadcast_to(np.float64(1), (2, 3)), np.float32(1),
    np.ones((1, 1)).view(np.matrix),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    found = unpack(pack(value), record)
    assert repr(found) == repr(value)
    assert type(found) is type(value) or value is VALUES[-1]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.shape} {a.dtype}")
def test_arrays_come_back_as_they_were_but_writable_and_in_rows(array):
    found = unpack(pack(plain(array)))
    assert type(found) is np.ndarray
    assert (found.shape, found.dtype.str) == (array.shape, array.dtype.str)
    assert found.tobytes() == array.tobytes()
    assert found.flags.writeable
    assert found.flags.c_contiguous


class Unprintable:
    def __repr__(self):
        raise ValueError


class Broken(dict):
    def items(self):
        raise ValueError


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


CYCLIC = []
CYCLIC += [CYCLIC, CYCLIC]
BYTES = repr(bytes(999))
FOREIGN = [  # what is no array, number or text, and what is told of it
    (np.ma.array([1.0]), "a masked array (1,): return x.filled(0) instead"),
    (np.array([None]), "an array (1,) of object"),
    (np.array(["a"]), "an array (1,) of <U1"),
    ((n for n in "a"), "an object of type generator"),
    ({1}, "{1} of type set"),
    (bytes(999), f"{BYTES[:46]} ... {BYTES[-29:]} of type bytes"),
    (Unprintable(), "an object of type Unprintable"),
    (Broken(), "an object of type Broken"),
    ([0.0] * 9999, "a list of 9999 parts"),
    (nested(10**5), "a list nested too deeply"),
    (nested(50), "a list nested too deeply"),
    (CYCLIC, "a list nested too deeply"),
]


@pytest.mark.parametrize(("answer", "told"), FOREIGN, ids=[told for _, told in FOREIGN])
def test_all_else_is_told(answer, told):
    assert plain(answer) == Foreign(told)


def test_how_deep_an_answer_may_be():
    assert unpack(pack(plain(nested(49)))) == nested(49)


def test_messages_are_taken_as_they_come():
    told = [
        Started(), Loaded(), Asked((1, "a"), {"b": 2}), Call([2, (None,)], "", ("x",), 0.5, ()),
        Ended("over"),
    ]  # fmt: skip
    stream = io.BytesIO()
    for message in told:
        write_message(stream, message)
    unread, found = bytearray(), []
    for byte in stream.getvalue():
        unread.append(byte)
        found += read_messages(unread)
    assert found == told
    assert [type(message) for message in found] == [type(message) for message in told]
    assert not unread


def test_a_named_tuple_is_the_same_class_each_time():
    one, other = (unpack(pack(Params(n, None)), record) for n in (1, 2))
    assert type(one) is type(other)


CALL = Call(1, "", (), 0.5)._asdict()
NO_MESSAGES = [
    *({"Call": {**CALL, **odd}} for odd in (
        {"error": 2}, {"changed": "x"}, {"seconds": "x"}, {"called": "x"}, {"more": 1},
    )),
    {"Call": [1, "", (), 0.5, ()]}, {"Call": {}}, {"Ended": {"why": 3}}, {"Loaded": {"more": 1}},
    {"Asked": {"given": 1, "named": {}}}, {"Asked": {"given": ()}}, {"Limits": {}},
    {"Loaded": {}, "Started": {}}, {}, [1, "", (), 0.5, ()], None, ..., 7, "over",
]  # fmt: skip


@pytest.mark.parametrize("told", NO_MESSAGES, ids=repr)
def test_a_message_of_other_kinds_or_types_is_none(told):
    with pytest.raises((TypeError, ValueError, AttributeError, KeyError)):
        list(read_messages(bytearray(framed(told))))


def test_texts_that_were_told_are_lines():
    assert one_line("one two three four five six", 20) == "one two ... six"
    cut = one_line("a\n\n b\x1b[31m" + "c" * 1000 + " in the end", 99)
    assert cut.startswith("a b\\x1b[31mccc")
    assert "ccc ... ccc" in cut
    assert cut.endswith("ccc in the end")
    long = "a\x1b[2J\n" + "b" * 9999
    call = CALL | {"error": long, "changed": ("c\nd",), "called": ("e\n",)}
    ended, called = read_messages(
        bytearray(framed({"Ended": {"why": long}}) + framed({"Call": call}))
    )
    for text in (ended.why, "".join([called.error, *called.changed, *called.called])):
        assert text.isprintable()
        assert len(text) < 1000


def archive(tree, numbers=b""):
    """Return bytes that `pack` has not written; a tree that is text is written as it is."""
    text = (tree if isinstance(tree, str) else json.dumps(tree)).encode()
    return len(text).to_bytes(8) + text + numbers


HOSTILE = {
    "no archive": b"PK nothing at all",
    "a pickle": b"\x80\x05K\x01.",
    "no tree": archive(""),
    "no JSON": archive("{"),
    "objects": archive({"array": ["|O", 1]}, bytes(8)),
    "text": archive({"array": ["<U1", 1]}, bytes(4)),
    "records": archive({"array": ["<f8,<f8", 1]}, bytes(16)),
    "fewer bytes than the shape says": archive({"array": ["<f8", 2]}, bytes(8)),
    "far fewer": archive({"array": ["<f8", 10**9]}, bytes(16)),
    "more than there are addresses": archive({"array": ["<f8", 2**32, 2**32]}, bytes(16)),
    "a negative shape": archive({"array": ["<f8", -1]}, bytes(16)),
    "a shape of other kinds": archive({"array": ["<f8", "2"]}, bytes(16)),
    "the same bytes twice": archive({"list": [{"array": ["<f8", 2]}] * 2}, bytes(16)),
    "a kind that is none": archive({"eval": "1"}),
    "two kinds": archive({"list": [], "tuple": []}),
    "a list of no kind": archive([1]),
    "a name that runs": archive({"named": ["A(object): import os #", {"b": 1}]}),
    "cut": archive(True)[:-1],
    "a NamedTuple": pack(Params(1, 2)),
    "a deep tree": archive('{"list": [' * 90 + "]}" * 90),
    "a long tree": archive({"foreign": "x" * 2**22}),
    "many numbers": archive({"list": [{"tuple": [0] * 99}] * 99}),
    "many arrays": archive({"list": [{"array": ["<f8", 0]}] * 9999}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_frame_is_an_error(name):
    with pytest.raises(Exception):  # noqa: B017  any: the caller says what it means
        unpack(HOSTILE[name])


def test_an_object_is_not_packed():
    with pytest.raises(TypeError, match="an object of type ndarray cannot be packed"):
        pack([np.array([None])])
