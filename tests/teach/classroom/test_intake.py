"""take_in: what a student's files contain, whatever they are."""

import json
import os
import zipfile
from io import BytesIO

import pytest

from mha_numpy.teach.classroom import intake
from mha_numpy.teach.classroom.intake import opened_files, sources_of, take_in
from mha_numpy.teach.classroom.submissions import MOST_BYTES, File
from mha_numpy.teach.exercises.child.limits import Limits


def zipped(members, packing=zipfile.ZIP_DEFLATED):
    """Return a zip file with members: names or ZipInfos, and what they contain."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stream.getvalue()


def test_the_last_file_that_has_a_function(tmp_path):
    files = [("1.py", b"def f():\n    return 1"), ("2.py", b"def g():\n    return 2")]
    sources, trouble = sources_of([*files, ("3.py", b"def f():\n    return 3")], "fgh")
    assert {name: source.file for name, source in sources.items()} == {"f": "3.py", "g": "2.py"}
    assert not trouble


def test_a_syntax_error_costs_what_cannot_be_read_and_says_so():
    text = b"import numpy as np\n\ndef g():\n    return (1\n\ndef f():\n    return np.e\n"
    sources, (told,) = sources_of([("a.py", text)], "fg")
    assert sources["f"].text == "import numpy as np\n\n\n\n\ndef f():\n    return np.e\n"
    assert sources["g"].text == "\n\ndef g():\n    return (1\n\n\n\n"
    assert told == (
        "a.py: Python cannot read lines 3 to 4, because of a syntax error near line 4. Everything "
        "else in the file was graded."
    )
    _, trouble = sources_of([("a.py", text), ("b.py", b"def f(): pass\ndef g(): pass")], "fg")
    assert not trouble  # nothing of it counts


def test_newest_last():
    files = [File("hw (10).py", b"3", (10,)), File("hw.py", b"1", (0,)), File("hw.py", b"2", (2,))]
    assert opened_files(files) == ([("hw.py", b"1"), ("hw.py", b"2"), ("hw (10).py", b"3")], [])


def test_a_zip_file_is_read_and_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link = zipfile.ZipInfo("link.py")
    link.external_attr = 0o120777 << 16
    members = [("../../hw.py", "x = 2"), ("__MACOSX/hw.py", ""), (link, "/etc/passwd")]
    opened, trouble = opened_files([File("ada.zip", zipped(members))])
    assert opened == [("hw.py", b"x = 2")]
    assert trouble == ["link.py in ada.zip is a link or locked"]
    assert not list(tmp_path.iterdir())


def test_a_zip_bomb_and_a_broken_zip():
    bomb = zipped((f"{number}.py", bytes(MOST_BYTES - 1)) for number in range(5))
    opened, trouble = opened_files([File("ada.zip", bomb), File("bob.zip", b"PK")])
    assert [name for name, _ in opened] == ["0.py", "1.py"]
    assert trouble == [
        "ada.zip is too large unpacked; its rest is left out",
        "bob.zip is not a readable zip file",
    ]


def test_copies_in_a_zip_file_are_in_their_order():
    members = [(f"hw{copy}.py", f"x = '{copy}'") for copy in (" (10)", "", " (2)")]
    opened, _ = opened_files([File("ada.zip", zipped(members), (7,))])
    assert [name for name, _ in opened] == ["hw.py", "hw (2).py", "hw (10).py"]


def test_a_member_that_lies_about_its_size():
    size, told = ((MOST_BYTES + more).to_bytes(4, "little") for more in (5, -100))
    data = zipped([("a.py", bytes(MOST_BYTES + 5))])
    assert data.count(size) == 2
    trouble = ["a.py in a.zip cannot be unpacked"]
    assert opened_files([File("a.zip", data.replace(size, told))]) == ([], trouble)


def test_packings_that_unpack_at_once_are_refused():
    files = [File("a.zip", zipped([("a.py", b"x = 1")], zipfile.ZIP_BZIP2))]
    assert opened_files(files) == (
        [], ["a.py in a.zip is packed in an unusual way; zip it again"],
    )  # fmt: skip


def test_half_a_character_is_replaced():
    cell = {"cell_type": "code", "source": "x = '\ud800'\ndef f():\n    return x", "metadata": {}}
    data = json.dumps({"cells": [cell]}).encode()
    assert b"ud800" in data
    found = take_in([File("a.ipynb", data)], ["f"])
    assert found.sources["f"].text == "x = '?'\ndef f():\n    return x"


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_is_told(monkeypatch):
    monkeypatch.setattr(intake, "LIMITS", Limits(seconds=0.3))
    lines = "\n".join(f"x{n} = [{n}] * {n}" for n in range(15_000))
    found = take_in([File("a.py", f"def f(): pass\n{lines}".encode())] * 9, ["f"])
    assert found.sources == {}
    assert found.trouble == [
        "these files cannot be read: reading them took longer than 0.3 s and was stopped"
    ]


def test_a_parser_that_crashes_costs_only_this_student(monkeypatch):
    monkeypatch.setattr(intake, "cells_of", lambda name, data: os.kill(os.getpid(), 11))
    assert take_in([File("a.py", b"def f(): pass")], ["f"]).trouble == [
        "these files cannot be read: reading them crashed: segmentation fault"
    ]


@pytest.mark.slow
def test_taking_what_a_function_needs_takes_time_that_is_linear():
    lines = 9_000
    chain = "\n".join(f"x{n} = x{n + 1}" for n in reversed(range(lines)))
    found = take_in([File("a.py", f"{chain}\ndef f():\n    return x0".encode())], ["f"])
    assert found.trouble == []  # such as that it took too long
    assert found.sources["f"].text.count("\n") >= lines


def test_a_name_that_is_spelt_otherwise_and_files_with_none_of_the_functions():
    asked = ["split_heads", "merge_heads"]
    text = b"def split_head(x): pass\ndef Merge_Heads(x): pass\ndef other(): pass"
    assert take_in([File("a.py", text)], asked).misspelt == {
        "split_heads": "split_head",
        "merge_heads": "Merge_Heads",
    }
    for text in (b"", b"x = 1\n", b"# nothing yet"):
        found = take_in([File("a.py", text)], asked)
        assert (found.sources, found.misspelt) == ({}, {})
        assert found.trouble == [
            "none of the functions that were asked for is in a.py: was the right file handed in?"
        ]
