"""Plain values as bytes and back; and bytes that somebody else has written."""

import io
import json
import zipfile
from typing import NamedTuple

import numpy as np
import pytest

from mha_numpy.teach.exercises.child.messages import (
    HEADER,
    Asked,
    Call,
    Ended,
    Loaded,
    Started,
    read_messages,
    write_message,
)
from mha_numpy.teach.exercises.child.values import Foreign, pack, plain, record, unpack


class Params(NamedTuple):
    w: np.ndarray
    b: object


VALUES = [
    None, ..., True, 3, 2**70, -0.0, float("inf"), float("nan"), 1 + 2j, "a \ud800 \n",
    Foreign("an object"), np.arange(6).reshape(2, 3), np.array(1.5, np.float16),
    np.zeros((0, 4), complex), np.array([np.nan, -np.inf]), (1, [2.0, (None,)]),
    {"a": {"b": np.ones(2, bool)}, "c": ()}, Params(np.ones(3), None),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    found = unpack(pack(value), record)
    assert repr(found) == repr(value)
    assert plain(found) is not None or value is None
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.tobytes() == value.tobytes()
        assert found.flags.writeable


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


def framed(value):
    packed = pack(value)
    return bytearray(len(packed).to_bytes(HEADER) + packed)


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
        list(read_messages(framed(told)))


def test_texts_that_were_told_are_lines():
    long = "a\x1b[2J\n" + "b" * 9999
    call = CALL | {"error": long, "changed": ("c\nd",), "called": ("e\n",)}
    (ended,), (called,) = map(
        list, map(read_messages, (framed({"Ended": {"why": long}}), framed({"Call": call})))
    )
    for text in (ended.why, "".join([called.error, *called.changed, *called.called])):
        assert text.isprintable()
        assert len(text) < 1000


def archive(tree, compression=zipfile.ZIP_STORED, **members):
    """Return an .npz that `pack` has not written; a tree that is text is written as it is."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        file.writestr("tree.json", tree if isinstance(tree, str) else json.dumps(tree))
        for name, content in members.items():
            file.writestr(f"{name[1:]}.npy", content)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


HOSTILE = {
    "no archive": b"PK nothing",
    "a pickle": b"\x80\x05K\x01.",
    "no tree": archive(None).replace(b"tree.json", b"free.json"),
    "a compressed member": archive(None, zipfile.ZIP_DEFLATED, _0=b"0" * 10**6),
    "objects": archive({"array": 0}, _0=npy(np.array([{}], object))),
    "text": archive({"array": 0}, _0=npy(np.array(["a"]))),
    "an array that is not there": archive({"array": 1}, _0=npy(np.ones(2))),
    "fewer bytes than the shape says": archive({"array": 0}, _0=npy(np.ones(2))[:-8]),
    "a kind that is none": archive({"eval": "1"}),
    "two kinds": archive({"array": 0, "tuple": []}),
    "a name that runs": archive({"named": ["A(object): import os #", {"b": 1}]}),
    "cut": archive(True)[:-5],
    "a NamedTuple": pack(Params(1, 2)),
    "an array twice": archive({"list": [{"array": 0}] * 2}, _0=npy(np.ones(2))),
    "an array of a negative number": archive({"array": -1}, _0=npy(np.ones(2))),
    "a deep tree": archive(json.loads('{"list": [' * 90 + "]}" * 90)),
    "a long tree": archive({"foreign": "x" * 2**22}),
    "a remark behind it": archive(True)[:-2] + b"\1\0x",
    "many members": archive(True, **{f"_{n}": b"" for n in range(20_000)}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_frame_is_an_error(name):
    with pytest.raises(Exception):  # noqa: B017  any: the caller says what it means
        unpack(HOSTILE[name])


@pytest.mark.parametrize(
    ("shape", "error"), [(b"(10**9,), }", None), (b"(999999999,), }", "reshape")]
)
def test_a_shape_beyond_the_bytes_takes_no_memory(shape, error):
    whole = npy(np.zeros(2))
    huge = whole.replace(b"(2,), }".ljust(len(shape)), shape)
    assert huge != whole
    with pytest.raises(ValueError, match=error):
        unpack(archive({"array": 0}, _0=huge))
