"""Odd submissions: bytes, names, notebooks, zip files and folders that no grader expects.

Each one is drawn from its own seed, so that one that is not survived can be made again.
"""

import io
import json
import os
import warnings
import zipfile

import numpy as np

from tests.teach.classroom.classes import notebook, written

RIGHT = written()
ALONE = RIGHT[RIGHT.index("def split_heads") :].split("\ndef ")[0]
ODD_TEXTS = [
    "\ufeff", "\x00", "\x0c", "\r", "\u2028", "\u202e", "\ud800", "\U0001f600", "ﬁ", "\\", "'''",
    '"""', "(" * 300, "[" * 5000, "-" * 20000 + "1", "1" * 6000, "x=" * 3000 + "1", "\t \t", "=1+1",
    "# coding: rot13\n", "# coding: no-such\n", "# -*- coding: utf-16 -*-\n", "%%bash\nrm -rf /\n",
    "!ls\n", "?", "if True:\n" + " " * 99, "lambda: " * 800 + "0", "a." * 3000 + "a", "f'{f'{1}'}'",
    "async def f(): await f()\n", "match x:\n  case _: pass\n", "class A(A): pass\n",
    "import split_heads\n", "from . import x\n", "return\n", "nonlocal x\n", "global split_heads\n",
    "del split_heads\n", "split_heads = 3\n", "def split_heads(: pass\n", "exit()\n", "1/0\n",
]  # fmt: skip
ODD_VALUES = [
    None, True, -1, 1e308, float("nan"), 10**400, "", "x", [], {}, [[]], {"cells": []}, [None],
    ["def f(", 3], {"source": None}, "\ud800", "\x00", ["\ud800\n"],
]  # fmt: skip
ODD_NAMES = [
    "hw.py", "HW.PY", "a b.py", "=1+1.py", "x;=1+1.py", ",.py", '".py', "'.py", "\n.py", "\r.py",
    "\t.py", "\u202eyp.py", "é.py", "é.py", "中.ipynb", "..py", "-rf.py", "~.py", "%s.py",
    "{}.py", "<b>.py", "&amp;.py", "hw.py.zip", "hw.ipynb.py", "x" * 200 + ".py", ".py", " .py",
    "__init__.py", "con.py", "$(id).py", "`id`.py", "|.py", "0.py", "1e5.py", "None.py", "nan.py",
    "@SUM(A1).py", "+1.py", "ada_assignsubmission_file_.py",
    "hw_eve_attempt_2030-01-01-00-00-00_s0000_attempt_2030-01-01-00-00-01_x.py",
    "a_LATE_1_2_b_LATE_3_4_c.py", "_101_assignsubmission_file_.py", "__1_2_.py",
]  # fmt: skip
RAW_NAMES = [
    b"\xff\xfe.py",
    b"\xe9.py",
    b"\xf0\x9f.ipynb",
    b"a\xffb.zip",
    b"\x80",
    b"\xed\xa0\x80.py",
]


def _some(rng, things):
    return things[rng.integers(len(things))]


def damaged(rng, data):
    """Return bytes with some changed, lost, repeated or added."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at, length = (int(rng.integers(len(data) + 1)) for _ in range(2))
        way = rng.integers(5)
        if way == 0 and at < len(data):
            data[at] = rng.integers(256)
        elif way == 1:
            del data[at : at + length]
        elif way == 2:
            data[at:at] = data[at : at + length]
        elif way == 3:
            data[at:at] = rng.bytes(int(rng.integers(40)))
        else:
            data[at:at] = _some(rng, ODD_TEXTS).encode("utf-8", "surrogatepass")
    return bytes(data[:500_000])


def odd_bytes(rng):
    """Return a text in some encoding, damaged or with an odd part."""
    text = _some(rng, [RIGHT, ALONE, "", "x = 1\n", ALONE * 50])
    lines = text.split("\n")
    for _ in range(rng.integers(3)):
        lines.insert(int(rng.integers(len(lines) + 1)), _some(rng, ODD_TEXTS))
    text = _some(rng, ["\n", "\n", "\r\n", "\r"]).join(lines)
    data = text.encode(_some(rng, ["utf-8"] * 4 + ["utf-16", "utf-32", "utf-7"]), "surrogatepass")
    return damaged(rng, data) if rng.random() < 0.5 else data


def _with_odd_value(rng, tree):
    """Return a tree of JSON with one value replaced, at a random depth."""
    if rng.random() < 0.3 or not isinstance(tree, (dict, list)) or not tree:
        return _some(rng, ODD_VALUES)
    if isinstance(tree, dict):
        key = _some(rng, sorted(tree))
        return {**tree, key: _with_odd_value(rng, tree[key])}
    at = int(rng.integers(len(tree)))
    return [*tree[:at], _with_odd_value(rng, tree[at]), *tree[at + 1 :]]


def odd_notebook(rng):
    """Return a notebook with odd values, too deep, of an old format, or damaged."""
    tree = json.loads(notebook(_some(rng, [RIGHT, ALONE, *ODD_TEXTS])))
    way = rng.integers(6)
    if way == 0:
        depth = int(rng.integers(10, 200_000))
        return b"[" * depth + b"]" * depth
    if way == 1:
        tree = {"worksheets": [{"cells": tree["cells"]}], "nbformat": 3}
    for _ in range(rng.integers(1, 4)):
        tree = _with_odd_value(rng, tree)
    data = json.dumps(tree).encode("utf-8", "surrogatepass")
    return damaged(rng, data) if way == 2 else data


def odd_zip(rng):
    """Return a zip file with odd members, or a damaged one."""
    stream = io.BytesIO()
    packing = _some(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(stream, "w", packing) as archive:
        for _ in range(int(_some(rng, [0, 1, 3, 300]))):
            name = _some(rng, ["", "../", "/", "a/b/", "C:\\", ".hidden/"]) + _some(rng, ODD_NAMES)
            info = zipfile.ZipInfo(name.replace("\x00", ""))
            info.compress_type = packing
            info.external_attr = int(_some(rng, [0, 0, 0, 0o120777 << 16, 0o40755 << 16]))
            archive.writestr(info, _some(rng, [b"", RIGHT.encode(), bytes(10**6), rng.bytes(99)]))
        if rng.random() < 0.3:
            archive.comment = rng.bytes(50)
    data = stream.getvalue()
    return damaged(rng, data) if rng.random() < 0.5 else data


def odd_content(rng):
    """Return the content and the ending of a file, which need not fit each other."""
    make, ending = _some(rng, [(odd_bytes, ".py"), (odd_notebook, ".ipynb"), (odd_zip, ".zip")])
    return make(rng), ending if rng.random() < 0.9 else _some(rng, [".py", ".ipynb", ".zip"])


def write_odd_folder(rng, folder):
    """Write a folder of odd files, links, pipes and folders in folders."""
    folder.mkdir()
    for _ in range(int(_some(rng, [0, 1, 4]))):
        where = folder.joinpath(*["d"] * int(_some(rng, [0, 1, 3, 6])))
        where.mkdir(parents=True, exist_ok=True)
        name = _some(rng, RAW_NAMES) if rng.random() < 0.3 else _some(rng, ODD_NAMES).encode()
        path = os.path.join(os.fsencode(where), name)
        if os.path.lexists(path):
            continue
        way = rng.integers(8)
        if way == 0:
            os.symlink(_some(rng, [b"/etc/passwd", b".", b"..", name, b"/dev/zero"]), path)
        elif way == 1:
            os.mkfifo(path)
        elif way == 2:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(odd_content(rng)[0])
            if way == 3:
                os.chmod(path, 0)


def hand_in_odd_work(folder, count, seed=0):
    """Write one odd submission for each of many ids; return the ids, and those that are right.

    Every tenth is plainly right. Beside them lie files with odd names, which belong to nobody.
    """
    folder.mkdir(parents=True)
    ids = [f"s{number:04}" for number in range(count)]
    right = ids[::10]
    for number, student in enumerate(ids):
        rng = np.random.default_rng([seed, number])
        if student in right:
            (folder / f"{student}.py").write_text(RIGHT)
        elif rng.random() < 0.25:
            write_odd_folder(rng, folder / student)
        else:
            data, ending = odd_content(rng)
            (folder / f"{student}{ending}").write_bytes(data)
    rng = np.random.default_rng([seed, count])
    for _ in range(count // 10):
        name = _some(rng, RAW_NAMES) if rng.random() < 0.2 else _some(rng, ODD_NAMES).encode()
        with open(os.path.join(os.fsencode(folder), name), "wb") as file:
            file.write(odd_content(rng)[0])
    return ids, right
