"""explain_crash: what a tutor would say about each kind of error, in the student's own names.

An error's message says what Python noticed. Most students need another sentence: which line to
change, and into what. Where a change can be tried, it is told only if the function runs with it.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.errors import did_you_mean
from mha_numpy.teach.conventions import conventions_of
from mha_numpy.teach.diagnosis import TASKS, find_task, right_answers
from mha_numpy.teach.diagnosis.sizes import axes_of
from mha_numpy.teach.exercises.mends import Mend, Works, first_that_works, line_of
from mha_numpy.teach.exercises.verdict import Verdict

FILE = Path(__file__).with_name("crashes.txt")  # patterns, each with its sentence below it
PLACE = re.compile(r" \(line (\d+) of [^)]*?(: `.*`)?\)(?=$|;| \((call|while))")
REDUCTIONS = {"sum", "mean", "max", "min", "amax", "amin", "std", "var", "prod"}
SIZES = {  # in words
    "B": "the batch", "H": "the number of heads", "num_heads": "the number of heads",
    "H_kv": "the number of key/value heads", "T": "the number of tokens",
    "T_q": "the number of queries", "T_k": "the number of keys", "D": "the width of the model",
    "d": "the width of a head", "d_k": "the width of queries and keys",
    "d_v": "the width of values",
}  # fmt: skip
LIBRARIES = {
    "jax", "keras", "mha_numpy", "numba", "pandas", "scipy", "sklearn", "tensorflow", "torch",
    "transformers", "einops", "cupy", "matplotlib",
}  # fmt: skip
TORCH = {  # what PyTorch's tensors and functions are called: what to write
    "dim": "`x.ndim`", "unsqueeze": "`x[..., None]`", "permute": "`x.transpose(...)`",
    "masked_fill": "`np.where(mask, x, -np.inf)`", "view": "`x.reshape(...)`",
    "matmul": "`x @ y`", "cat": "`np.concatenate`", "exp": "`np.exp(x)`", "sqrt": "`np.sqrt(x)`",
    "tril_": "`np.tril`", "norm": "`np.linalg.norm`",
}  # fmt: skip
NEEDLESS = {"contiguous": "NumPy copies by itself", "numpy": "it is an array already"}


@dataclass
class Crash:
    """An error, the text it comes from, and the input on which it was raised."""

    message: str
    line: int
    quoted: str  # the line in backticks, if the error has it
    text: str
    works: Works
    inputs: Mapping[str, Any]
    sizes: Mapping[int, list[str]]

    @property
    def tree(self) -> ast.Module:
        """The text's tree; an empty one if it has none."""
        try:
            return ast.parse(self.text or self.quoted.strip("`"))
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])

    @property
    def here(self) -> list[ast.AST]:
        """The parts of the statement that raised the error."""
        parts = [
            part
            for part in ast.walk(self.tree)
            if isinstance(part, ast.stmt)
            and part.lineno <= self.line <= (part.end_lineno or part.lineno)
        ]
        return list(ast.walk(parts[-1])) if parts else []

    def mended(self, mends: Iterator[Mend]) -> str:
        """Return the line to change, if one of the changes, or all of them, work."""
        found = first_that_works(self.text, mends, self.works)
        numbers = sorted({mend.node.lineno for mend in found})
        lines = dict.fromkeys(line_of(self.text, number) for number in numbers)
        return " and in ".join(f"`{line}`" for line in lines)

    def length(self, number: str) -> str:
        """Return a length, with what it is if nothing else is as long."""
        names = self.sizes.get(int(number), []) if number.strip().isdecimal() else []
        words = dict.fromkeys(SIZES.get(name, name) for name in names)
        return f"{number} ({next(iter(words))})" if len(words) == 1 else number


Explain = Callable[..., str]  # of a crash, and what the pattern has found in the message
CASES: list[tuple[str, Explain]] = []


def about(*patterns: str) -> Callable[[Explain], Explain]:
    """Enter a function that explains the messages with one of some patterns."""

    def enter(explain: Explain) -> Explain:
        CASES.extend((pattern, explain) for pattern in patterns)
        return explain

    return enter


@about(
    r"^ModuleNotFoundError: No module named '([\w.]+)'",
    r"^ImportError: ([\w.]+) is not available when you are graded",
    r"^ImportError: cannot import name '\w+' from '([\w.]+)'",
)
def _absent(crash: Crash, name: str) -> str:
    imports = [
        part for part in ast.walk(crash.tree) if isinstance(part, (ast.Import, ast.ImportFrom))
    ]
    mine = [one for one in imports if name.partition(".")[0] in ast.unparse(one)]
    quoted = f"`{ast.unparse(mine[0])}`" if mine else crash.quoted or f"the import of {name}"
    names = [alias.name for one in mine if isinstance(one, ast.ImportFrom) for alias in one.names]
    what = ", ".join(f"`{one}`" for one in names if one != "*") or "what you need from it"
    is_known = name.partition(".")[0] in LIBRARIES
    there = "NumPy is" if is_known else "this file and NumPy are"
    or_copy = "" if is_known else ", or copy it from another file of yours"
    why = f"because only {there} there when you are graded"
    return f"{quoted} fails, {why}: write {what} yourself{or_copy}"


@about(
    r"'float' object cannot be interpreted as an integer",
    r"'numpy.float64' object cannot be interpreted",
    r"slice indices must be integers",
    r"expected a sequence of integers",
    r"only integers, slices",
    r"indices must be integers or slices, not float",
)
def _whole_number(crash: Crash) -> str:
    divisions = (
        Mend(part, f"({ast.unparse(ast.BinOp(part.left, ast.FloorDiv(), part.right))})")
        for part in ast.walk(crash.tree)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div)
    )
    line = crash.mended(divisions)
    if line:
        return f"`/` gives a float, and a size has to be a whole number: use `//` in {line}"
    return "a size or an index is a float: use `//` to divide whole numbers"


@about(
    r"could not be broadcast together with (?:remapped )?(shapes.*)",
    r"could not broadcast input array from (shape \(.*\) into shape \(.*\))",
    r"(non-broadcastable output operand.*)",
)
def _shapes(crash: Crash, told: str = "") -> str:
    """Explain shapes that do not fit: often a reduction has lost its axis."""
    calls = (
        Mend(part, ast.unparse(ast.Call(part.func, part.args, [*part.keywords, _KEEPDIMS])))
        for part in ast.walk(crash.tree)
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in REDUCTIONS
        and all(keyword.arg != "keepdims" for keyword in part.keywords)
    )
    line = crash.mended(calls)
    if line:
        return (
            f"`keepdims=True` is missing in {line}: without it the axis is gone, and the result no "
            "longer lines up with the array"
        )
    shapes = re.findall(r"\(([\d, ]*)\)", told)
    if len(shapes) < 2:
        return ""
    one, other = ([part for part in shape.split(",") if part.strip()] for shape in shapes[:2])
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if a.strip() != b.strip() and "1" not in (a.strip(), b.strip()):
            return (
                "NumPy lines shapes up from the right, where two lengths must be equal or one of "
                f"them 1; here it meets {crash.length(a)} and {crash.length(b)}"
            )
    return ""


_KEEPDIMS = ast.keyword("keepdims", ast.Constant(True))


@about(
    r"matmul: .*\(size (\d+) is different from (\d+)\)",
    r"shapes \(.*\) and \(.*\) not aligned: (\d+) \(dim \d\) != (\d+)",
)
def _product(crash: Crash, *sizes: str) -> str:
    """Explain a matrix product whose inner lengths differ."""

    def turned() -> Iterator[Mend]:
        for part in ast.walk(crash.tree):
            if isinstance(part, ast.Attribute) and part.attr == "T":
                yield Mend(part, f"{ast.unparse(part.value)}.swapaxes(-1, -2)")
        for part in ast.walk(crash.tree):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult):
                left, right = ast.unparse(part.left), ast.unparse(part.right)
                yield Mend(part, f"(({left}) @ ({right}).swapaxes(-1, -2))")
                yield Mend(part, f"(({left}).swapaxes(-1, -2) @ ({right}))")

    found = first_that_works(crash.text, turned(), crash.works, least=2)
    if len(found) == 1:
        line, part = line_of(crash.text, found[0].node.lineno), found[0].node
        if isinstance(part, ast.Attribute):
            name = ast.unparse(part.value)
            return (
                f"`.T` reverses all axes, also those of batch and heads: write "
                f"`{name}.swapaxes(-1, -2)` in `{line}`"
            )
        return f"one of the two factors has to be transposed, `x.swapaxes(-1, -2)`, in `{line}`"
    numbers = " and ".join(crash.length(size) for size in sizes if size)
    met = f"; here they are {numbers}" if numbers else ""
    return (
        "in a matrix product, the last axis of the left array has to be as long as the last but "
        f"one of the right array{met}"
    )


@about(r"cannot reshape array of size (\d+) into shape \(([-\d, ]+)\)")
def _reshape(crash: Crash, size: str, shape: str) -> str:
    lengths = [part.strip() for part in shape.split(",") if part.strip()]
    if "-1" in lengths:
        return f"the {size} numbers cannot be divided up into this shape, ({', '.join(lengths)})"
    once = [one for one in lengths if lengths.count(one) == 1]  # of others, which is which?
    told = ", ".join(crash.length(one) if one in once else one for one in lengths)
    return (
        f"the array has {size} numbers, and a shape of {told} holds {np.prod([*map(int, lengths)])}"
        ": which axis is missing or too long?"
    )


@about(
    r"not enough values to unpack \(expected (\d+), got (\d+)\)",
    r"too many values to unpack \(expected (\d+)",
)
def _unpacked(crash: Crash, expected: str, got: str = "") -> str:
    """Explain an unpacking of a shape with the wrong number of names."""
    for part in crash.here:
        if isinstance(part, ast.Attribute) and part.attr == "shape":
            name = ast.unparse(part.value)
            array = crash.inputs.get(name)
            if isinstance(array, np.ndarray):
                axes = f"{array.ndim} {'axis' if array.ndim == 1 else 'axes'}"
                return f"`{name}` has {axes}, and the line has {expected} names for them"
    return f"the line has {expected} names for {got or 'more'} values"


@about(r"^NameError: name '(\w+)' is not defined")
def _name(crash: Crash, name: str) -> str:
    if name in ("np", "numpy"):
        return "`import numpy as np` is missing in the file, or in a cell above"
    tree = crash.tree
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)} - {name}
    names |= {part.arg for part in ast.walk(tree) if isinstance(part, ast.arg)}
    names |= {p.name for p in ast.walk(tree) if isinstance(p, (ast.FunctionDef, ast.ClassDef))}
    if meant := _meant(name, names):
        return f"there is no `{name}`: {meant}"
    return (
        f"there is no `{name}` in the code that could be read: define it, or copy it into this file"
    )


def _meant(name: str, names: Iterable[str], least: float = 0.7) -> str:
    is_close = get_close_matches(name, names, 1, least)
    return did_you_mean(name, names).replace("'", "`") if is_close else ""


@about(r"(module 'numpy[\w.]*'|'[\w.]+' object) has no attribute '(\w+)'")
def _no_attribute(crash: Crash, owner: str, name: str) -> str:
    if name in TORCH:
        return f"NumPy has no `{name}`; write {TORCH[name]}"
    if name in NEEDLESS:
        return f"NumPy has no `{name}`; leave it out: {NEEDLESS[name]}"
    known = dir(np) if owner.startswith("module") else dir(np.ndarray)
    if "numpy" not in owner:
        return f"this is a {owner}, not an array: did the line above return what you expect?"
    where = "NumPy" if owner.startswith("module") else "an array"
    return f"{where} has no `{name}`: {_meant(name, known, 0.8) or 'write it yourself'}"


@about(r"NoneType")
def _none(crash: Crash) -> str:
    names = [name for name, value in crash.inputs.items() if value is None]
    used = {part.id for part in crash.here if isinstance(part, ast.Name)}
    if names and used & set(names):
        name = next(name for name in names if name in used)
        return f"`{name}` can be None, as the task says: ask `if {name} is not None:` first"
    return "something is None here: is a `return` missing in a function that you call?"


@about(r"truth value of an array")
def _truth(crash: Crash) -> str:
    tests = [part.test for part in crash.here if isinstance(part, (ast.If, ast.While, ast.IfExp))]
    name = next((ast.unparse(test) for test in tests if isinstance(test, ast.Name)), "")
    if name:
        return f"an array has no single truth value: write `if {name} is not None:`"
    return (
        "an array has no single truth value: use `np.where` to choose cell by cell, `&`, `|` and "
        "`~` in place of `and`, `or` and `not`"
    )


@about(r"axes don't match array")
def _transposed(crash: Crash) -> str:
    calls = (
        Mend(
            part,
            f"{ast.unparse(part.func.value)}.swapaxes({', '.join(map(ast.unparse, part.args))})",
        )
        for part in ast.walk(crash.tree)
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr == "transpose"
        and len(part.args) == 2
    )
    line = crash.mended(calls)
    where = f" in {line}" if line else ""
    return (
        "`transpose` takes the number of every axis, in its new order; to exchange two axes, use "
        f"`swapaxes`{where}"
    )


def explain_crash(verdict: Verdict, error: str, text: str, works: Works) -> str:
    """Return a tutor's sentence about an error; "" where Python's message says it all.

    Parameters
    ----------
    verdict : Verdict
        Of the run.
    error : str
        One line, as a run reports it: kind, message and place.
    text : str
        The text of the function, with line numbers that fit the error's.
    works : callable
        Whether the function runs if its text is changed to another one.
    """
    place = PLACE.search(error)
    message = PLACE.sub("", error)
    probes = find_task(verdict.exercise.task).probes()
    number = next((stage.probe for stage in verdict.stages if stage.passed is False), 0) or 0
    inputs = probes[number] if verdict.exercise.kind != "tests" else {}
    crash = Crash(
        message, int(place[1][:9]) if place else 0, (place[2] or "")[2:] if place else "",
        text, works, inputs,
        _sizes_of(verdict.exercise.task, number) if inputs else {},
    )  # fmt: skip
    for pattern, explain in CASES:
        found = re.search(pattern, message)
        if found and (told := explain(crash, *found.groups())):
            return told
    for pattern, sentence in _sentences():
        if found := re.search(pattern, message):
            lengths = [crash.length(text) for text in found.groups("")]
            return sentence.format(*found.groups(), lengths=lengths)
    return ""


@cache
def _sentences() -> list[tuple[str, str]]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [(pattern, told.strip()) for pattern, told in zip(lines[::2], lines[1::2], strict=True)]


def _sizes_of(task: str, number: int) -> dict[int, list[str]]:
    """Return the names of each length in an input, as the task's text has them."""
    if conventions_of(task):  # its arrays have other shapes than the text
        return {}
    inputs, expected = TASKS[task].probes()[number], leaves(right_answers(task)[number])
    arrays = {**inputs, **{f"out {name or TASKS[task].result}": a for name, a in expected.items()}}
    sizes = dict[int, list[str]]()
    for name, letters in axes_of(task).items():
        shape = np.shape(arrays[name]) if isinstance(arrays.get(name), np.ndarray) else ()
        if letters[:1] == ("...",):
            shape, letters = shape[len(shape) - len(letters) + 1 :], letters[1:]
        if len(shape) == len(letters):
            for letter, size in zip(letters, shape, strict=True):
                sizes.setdefault(size, []).append(letter)
    for name, value in inputs.items():
        if type(value) is int:
            sizes.setdefault(value, []).append(name)
    return sizes
