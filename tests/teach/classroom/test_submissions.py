"""find_submissions: whose a file is, which copy is the newest, what is refused."""

import os

import pytest

from mha_numpy.errors import ConfigError
from mha_numpy.teach.classroom.submissions import MOST_BYTES, find_submissions

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
    (found,) = find_submissions(tmp_path)
    assert found.student == student
    assert [one.name for one in found.files] == [file]
    assert (found.is_late or found.handed_in > NOON) == is_late


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


NOON = "2026-03-01T12:00:00"
CLASS = {"s1001": "Ada Lovelace", "s1002": "Éva Noyce", "007": "Bond", "s1": "Zoe", "s1-2": "Yan"}


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("S1001.py", "s1001"),
        ("s1001_hw1.py", "s1001"),
        ("hw1-s1001 (2).ipynb", "s1001"),
        ("hw1 s1001 Ada Lovelace/x.py", "s1001"),
        ("7.py", "007"),  # as a spreadsheet writes it
        ("E\u0301va Noyce.py", "s1002"),  # as macOS writes it
        ("Eva\u0301_9_assignsubmission_file_s1001.py", "9"),  # a student's own words
        ("noyceéva_9_204_s1001.py", "s1002"),
        ("HW_S1002_attempt_2026-03-01-11-59-00_s1001.py", "s1002"),
        ("s1001_and_s1002.py", "s1001_and_s1002"),  # whose?
        ("s10012.py", "s10012"),
        ("xs1001.py", "xs1001"),
        ("hw_s1.py", "hw_s1"),  # short ids come first
        ("s1_hw.py", "s1"),
        ("s1-2_hw.py", "s1-2"),
        ("eve.py", "eve"),
    ],
)
def test_only_ids_of_the_roster_count_beside_anything_else(tmp_path, path, student):
    write(tmp_path, path)
    (found,) = find_submissions(tmp_path, CLASS)
    assert found.student == student


def test_later_copies_have_larger_numbers(tmp_path):
    names = ["a_17_204_hw.py", "a_17_1007_hw.py", "a_17_205_hw-2.py", "a_17_205_hw-1.py"]
    for name in names:
        write(tmp_path, name)
    (found,) = find_submissions(tmp_path)
    assert {file.path.name: file.order for file in found.files} == dict(
        zip(names, [(204, 0), (1007, 0), (205, 2), (205, 1)], strict=True)
    )


@pytest.mark.parametrize(
    ("path", "student", "is_late"),
    [
        ("hw_eve_attempt_{early}_ada_attempt_{early}_x.py", "eve", False),
        ("hw_bob_attempt_{late}_bob_attempt_{early}_hw1.py", "bob", True),
        ("Eve_101_assignsubmission_file_Ada_102_assignsubmission_file_hw.py", "101", False),
        ("Eve_101_assignsubmission_file_x_ada_attempt_{early}_hw.py", "101", False),
    ],
)
def test_the_rest_of_a_name_cannot_act_for_somebody_else(tmp_path, path, student, is_late):
    path = path.format(early="2026-03-01-11-00-00", late="2026-03-02-11-00-00")
    write(tmp_path, path)
    (found,) = find_submissions(tmp_path)
    assert (found.student, found.handed_in > NOON) == (student, is_late)
    (told,) = found.trouble
    assert (
        told == f"{path}: a platform's mark comes twice in this name, and the first of them counts"
    )


def test_names_are_shown_as_they_are(tmp_path):
    write(tmp_path, "ada\u202e12/\u2066hw.py")
    os.close(os.open(os.fsencode(tmp_path) + b"/b\xff.py", os.O_CREAT))
    ada, other = find_submissions(tmp_path)
    assert (ada.student, ada.files[0].name) == (r"ada\u202e12", r"\u2066hw.py")
    assert (other.student, other.name, other.files[0].name) == (
        r"b\udcff", r"b\udcff", r"b\udcff.py",
    )  # fmt: skip
    assert other.files[0].read().data == b""


@pytest.mark.parametrize(
    ("path", "student"),
    [
        ("  .py", "  .py"),
        ("  (2).py", "  (2).py"),
        ("HW_ _attempt_2026-03-01-11-59-00_x.py", "HW_ _attempt_2026-03-01-11-59-00_x.py"),
        ("  /hw.py", "'  '"),
    ],
)
def test_nobody_is_called_nothing(tmp_path, path, student):
    write(tmp_path, path)
    (found,) = find_submissions(tmp_path)
    assert found.student == student


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


def test_nothing_there(tmp_path):
    with pytest.raises(ConfigError, match="expected a folder; there is no "):
        find_submissions(tmp_path / "missing")
    with pytest.raises(ConfigError, match="is a file: unpack it first"):
        find_submissions(write(tmp_path, "all.zip"))
    write(tmp_path, "class/notes.txt")
    write(tmp_path, "class/.hidden.py")
    with pytest.raises(ConfigError, match="for each student"):
        find_submissions(tmp_path / "class")
