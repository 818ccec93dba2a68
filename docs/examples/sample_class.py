"""Grade the class of docs/teaching.md, and put the output into the page.

python docs/examples/sample_class.py
"""

import contextlib
import io
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from mha_numpy.cli import main
from mha_numpy.teach.classroom import make_assignment
from mha_numpy.teach.classroom.handout import stub_text
from tests.teach.classroom.styles.in_variant import STYLES, in_variant

PAGE = Path(__file__).parents[2] / "docs" / "teaching.md"
CLASS = {
    "s1001": "Ada Lindqvist", "s1002": "Ben Okafor", "s1003": "Chiara Rossi",
    "s1004": "Deniz Y\u0131lmaz", "s1005": "Emil Novák", "s1006": "Fatima Zahra",
    "s1007": "Guo Wei", "s1008": "Hanna Müller-Smith",
}  # fmt: skip
SECRET = "sample class 1107: kept by nobody"  # Hanna's heads alternate, Ada's do not
NO_SCALE = {"k.swapaxes(-1, -2) * scale(q.shape[-1])": "k.swapaxes(-1, -2)"}
NO_SCALE_2 = {"k.T * scale(q.shape[1])": "k.T"}
STRICT = {"key <= query": "key < query"}
LATE = "hw1_s1007_attempt_2030-05-31-14-03-20_hw1.py"
FOR_EVER = {"    hidden = np.where": "    while True:\n        pass\n    hidden = np.where"}


def submissions(assignment):
    """Yield each student's file, by its name: right ones, and what students hand in."""
    for student in CLASS:
        variants = assignment.variant(student)
        whose = "s1001" if student == "s1008" else student
        follows = {n for v in assignment.variant(whose).values() for n in v.conventions}
        text = STYLES["einsum" if student == "s1007" else "matmul"]
        for old, new in {
            "s1002": NO_SCALE | STRICT, "s1003": NO_SCALE | NO_SCALE_2, "s1006": FOR_EVER,
        }.get(student, {}).items():  # fmt: skip
            text = text.replace(old, new)
        made = in_variant(text, follows)
        if student == "s1004":
            stubs = [stub_text(one, variants[one.id]) for one in assignment.catalogue]
            made = "\n\n".join(["import numpy as np", *stubs])
        if student == "s1005":
            made = made.replace(
                "return x.reshape(B, T, num_heads", "return x.reshape((B, T, num_heads"
            )
        if student == "s1008":
            made = made.replace("powers", "e").replace("largest", "top")
        yield LATE if student == "s1007" else f"{student}.py", made


def printed(*arguments):
    """Return what a command prints."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        main([*arguments])
    return told.getvalue()


def run():
    """Make, hand in, grade; return the two texts that the page shows."""
    Path("ids.csv").write_text("id,name\n" + "".join(f"{i},{n}\n" for i, n in CLASS.items()))
    Path("kept").write_text(SECRET)
    made = make_assignment(
        "hw1-forward", "hw1", roster="ids.csv", secret_file="kept", deadline="2030-05-31T12:00"
    )
    Path("handed-in").mkdir()
    for name, text in submissions(made.assignment):
        Path("handed-in", name).write_text(text)
    table = printed("grade", "handed-in", "--assignment", "hw1", "--out", "results")
    return table, Path("results/grades.csv").read_text(encoding="utf-8-sig")


def write():
    """Write the two texts into the page, below their commands."""
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            texts = run()
        finally:
            os.chdir(before)
    page = PAGE.read_text(encoding="utf-8")
    commands = "mha-numpy grade handed-in --assignment hw1 --out results", "cat results/grades.csv"
    for command, text in zip(commands, texts, strict=True):
        block = rf"(```console\n\$ {re.escape(command)}\n)(.*?)```"
        start, end = re.search(block, page, flags=re.DOTALL).span(2)
        page = f"{page[:start]}{text.strip()}\n{page[end:]}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
