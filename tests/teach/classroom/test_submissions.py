"""find_submissions: whose a file is, which copy is the newest, what is refused."""

import os
import zipfile
from datetime import datetime

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.submissions import MOST_BYTES, find_submissions, sources_of

ROSTER = {"s1": "Ada Lovelace", "s2": "Bob Noyce"}


def write(folder, name, text="x = 1"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("path", "student", "file", "is_late"),
    [
        ("ada/hw1.py", "ada", "hw1.py", False),
        ("ada.ipynb", "ada", "ada.ipynb", False),
        ("Ada Lovelace_12345_assignsubmission_file_/hw1.py", "12345", "hw1.py", False),
        ("Ada Lovelace_12345_assignsubmission_file_hw1.py", "12345", "hw1.py", False),
        ("lovelaceada_17_204_hw1.py", "17", "hw1.py", False),
        ("lovelaceada_LATE_17_204_hw1.py", "17", "hw1.py", True),
        ("lovelaceada_late_17_204_hw1.ipynb", "17", "hw1.ipynb", True),
        ("HW 1_ada_attempt_2026-03-01-11-59-00_hw1.py", "ada", "hw1.py", False),
        ("HW 1_ada_attempt_2026-03-01-12-00-01_hw1.py", "ada", "hw1.py", True),
    ],
)
def test_whose_a_file_is(tmp_path, path, student, file, is_late):
    write(tmp_path, path)
    (found,) = find_submissions(tmp_path, deadline=datetime(2026, 3, 1, 12))
    assert found.student == student
    assert [(one.name, one.is_late) for one in found.files] == [(file, is_late)]


@pytest.mark.parametrize(
    "path",
    [
        "s1/hw.py", "s1.py", "s1-1.py", "lovelaceada_17_204_hw1.py",
        "Ada Lovelace_12345_assignsubmission_file_/hw1.py", "Ada Lovelace.ipynb",
    ],
)  # fmt: skip
def test_the_roster_knows_the_id(tmp_path, path):
    write(tmp_path, path)
    (found,) = find_submissions(tmp_path, ROSTER)
    assert (found.student, found.name) == ("s1", "Ada Lovelace")


def test_newest_last(tmp_path):
    names = ["a_17_204_hw.py", "a_17_1007_hw.py", "a_17_205_hw-2.py", "a_17_205_hw-1.py"]
    for name in names:
        write(tmp_path, name)
    (found,) = find_submissions(tmp_path)
    assert [file.path.name for file in found.files] == [names[i] for i in (0, 3, 2, 1)]


def test_copies_of_a_browser(tmp_path):
    for name in ("hw (10).py", "hw.py", "hw (2).py"):
        write(tmp_path, f"ada/{name}")
    (found,) = find_submissions(tmp_path)
    assert [file.name for file in found.files] == ["hw.py", "hw (2).py", "hw (10).py"]


def test_the_last_file_that_has_a_function(tmp_path):
    files = [("1.py", b"def f():\n    return 1"), ("2.py", b"def g():\n    return 2")]
    sources, trouble = sources_of([*files, ("3.py", b"def f():\n    return 3")], "fgh")
    assert {name: source.file for name, source in sources.items()} == {"f": "3.py", "g": "2.py"}
    assert not trouble


def test_a_syntax_error_costs_a_whole_file_and_says_so():
    text = b"def f():\n    return 1\n\ndef g():\n    return (1\n"
    sources, (told,) = sources_of([("a.py", text)], "fg")
    assert list(sources) == ["f", "g"]
    assert told.startswith("a.py: Python cannot read this file, because of a syntax error near")
    assert "line 5" in told
    _, trouble = sources_of([("a.py", text), ("b.py", b"def f(): pass\ndef g(): pass")], "fg")
    assert not trouble  # nothing of it counts


def test_links_and_huge_files_and_pipes_are_refused(tmp_path):
    secret = write(tmp_path, "secret.py")
    folder = tmp_path / "class"
    write(folder, "ada/hw.py")
    (folder / "ada" / "link.py").symlink_to(secret)
    (folder / "ada" / "folder").symlink_to(tmp_path)
    (folder / "bob").symlink_to(tmp_path)
    os.mkfifo(folder / "ada" / "pipe.py")
    os.truncate(write(folder, "ada/huge.py"), MOST_BYTES)
    ada, bob = find_submissions(folder)
    assert [file.name for file in ada.files] == ["hw.py"]
    assert [line.split()[0] for line in ada.trouble] == ["folder", "huge.py", "link.py", "pipe.py"]
    assert (bob.student, bob.files) == ("bob", [])
    assert bob.trouble == ["bob is a link, which is not followed"]


def test_a_link_that_appears_later_is_not_read(tmp_path):
    secret = write(tmp_path, "secret.py")
    path = write(tmp_path / "class", "ada.py")
    ((file,),) = [one.files for one in find_submissions(tmp_path / "class")]
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic"):
        file.read()


def test_a_zip_file_is_read_and_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as file:
        file.writestr("../../hw.py", "x = 2")
        file.writestr("__MACOSX/hw.py", "")
        link = zipfile.ZipInfo("link.py")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    (found,) = find_submissions(tmp_path)
    assert [(file.name, file.read()) for file in found.files] == [("hw.py", b"x = 2")]
    assert found.trouble == ["link.py in ada.zip is a link, locked or too large"]
    assert [path.name for path in tmp_path.iterdir()] == ["ada.zip"]


def test_a_zip_bomb_and_a_broken_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "ada.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(5):
            file.writestr(f"{number}.py", bytes(MOST_BYTES - 1))
    write(tmp_path, "bob.zip", "PK")
    ada, bob = find_submissions(tmp_path)
    assert ada.trouble == ["ada.zip would be too large unpacked"]
    assert bob.trouble == ["bob.zip is not a readable zip file"]


def test_nothing_there(tmp_path):
    with pytest.raises(ConfigError, match="expected a folder; there is no "):
        find_submissions(tmp_path / "missing")
    with pytest.raises(ConfigError, match="is a file: unpack it first"):
        find_submissions(write(tmp_path, "all.zip"))
    write(tmp_path, "class/notes.txt")
    write(tmp_path, "class/.hidden.py")
    with pytest.raises(ConfigError, match="for each student"):
        find_submissions(tmp_path / "class")
