"""Search for the small edit of the right function that gives exactly these numbers.

The results of every edit for the usual probes are computed in advance, as a number of two bytes for
each array, and kept in `small_edits.npz`. The numbers of an answer are looked up there, and the
edits that have them are made and compared in full. For other probes, and together with a known
mistake, edits are made one after another, as many as the caller allows.
"""

import ast
import inspect
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.compare import matched
from mha_numpy.checking.differences import largest_of
from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array
from mha_numpy.progress import progress
from mha_numpy.teach.conventions import SEED, Variant, conventions_of, using, variant_in_force
from mha_numpy.teach.diagnosis import own_edits, rewrite, small_edits
from mha_numpy.teach.diagnosis.fingerprints import (
    Answer,
    attempt,
    gives,
    right_answers,
)
from mha_numpy.teach.diagnosis.mutants import assembled, edited_source, edits_of
from mha_numpy.teach.diagnosis.own_edits import read_own_edits
from mha_numpy.teach.diagnosis.small_edits import Edit, Edited, read_edits
from mha_numpy.teach.diagnosis.solutions import called_by, read_solutions
from mha_numpy.teach.in_force import cached
from mha_numpy.teach.own import Own
from mha_numpy.teach.tasks import TASKS
from mha_numpy.teach.turns import follow

FILE = Path(__file__).with_name("small_edits.npz")
MODULUS = 65521  # an array's number is below it; 0 says that there is no array
SPREAD = 997.0  # arrays that differ by more than 1 part in 10^7 have different numbers


class Candidate(NamedTuple):
    """An edit of one of the functions that make a task."""

    function: str
    edited: Edited
    edit: Edit

    def answers(self, task: str) -> Iterator[Answer]:
        """Yield the task's results with the edit, probe by probe; None where it fails."""
        code = self.edited.code(self.edit)
        if code is None:
            return
        function = follow(task, conventions_of(task), assembled(task, {self.function: code}))
        for probe in TASKS[task].probes():
            answer = attempt(function, probe, (Exception,))
            yield answer if answer is not None and holds_numbers(answer) else None


def holds_numbers(answer: Answer) -> bool:
    """Return whether an answer contains only numbers, because an edit may return anything."""
    return all(_is_numeric(leaf) for leaf in leaves(answer).values())


def _is_numeric(leaf: Any) -> bool:
    is_number = isinstance(leaf, np.ndarray | np.generic | bool | int | float)
    return is_number and np.asarray(leaf).dtype.kind in "biuf"  # an int may be too large


class SmallEdit(NamedTuple):
    """An edit that gives an answer's numbers, as a student sees it."""

    group: str  # the kind of slip: "a different variable"
    function: str  # of `right`, in which it is made
    wrong: str  # the lines with the edit; empty where a line is left out
    right: str  # what belongs there; empty where a line does not
    others: int = 0  # at most so many more edits give the same


def told_edit(edit: SmallEdit) -> str:
    """Return the kind of slip, and the effect of the edit: the wrong lines, and the right ones."""
    wrong, right = (lines.replace("\n", "; ") for lines in (edit.wrong, edit.right))
    if not wrong:
        return f"{edit.group}. If we leave out `{right}`"
    if right:
        whose = "Our" if variant_in_force().own is None else "The"
        return f"{edit.group}. {whose} solution says `{right}`; with `{wrong}` in its place"
    return f"{edit.group}. If we add `{wrong}`"


def step_of_edit(edit: SmallEdit) -> str:
    """Return the kind of slip, and in which step it gives the numbers."""
    target, is_step, _ = (edit.right or edit.wrong).splitlines()[0].partition(" = ")
    where = f"the step that computes {target}" if is_step else f"what {edit.function} returns"
    return f"{edit.group}, in {where}, gives exactly your numbers"


class Known(NamedTuple):
    """The results of a task's edits for the usual probes."""

    edits: Array  # (N,) which of the task's edits
    others: Array  # (N,) how many more give the same
    numbers: Array  # (N, arrays of all probes)
    made_of: Array  # the digest of what all this depends on


def candidates(task: str, mistake: str | None = None) -> list[Candidate]:
    """Return all small edits of a task, or of one with a known mistake, always in one order.

    Functions that call no others come first, because edits in them are more specific.
    """
    edits = edits_of(mistake) if mistake else {}
    found = []
    for name in sorted(called_by(task), key=lambda name: (len(called_by(name)), name)):
        edited = read_any_edits(edited_source(name, edits.get(name, {})))
        found += [Candidate(name, edited, edit) for edit in edited.edits]
    return found


def read_any_edits(source: str) -> Edited:
    """Read a function of a solution, of a task here or of a teacher's own."""
    is_own = variant_in_force().own is not None
    return read_own_edits(source) if is_own else read_edits(source)


def numbers_of(answers: Iterable[Answer], expected: Sequence[Answer]) -> Array:
    """Return a number for each expected array: the answer's array's, 0 where there is none."""
    found = []
    for answer, right in zip(answers, expected, strict=False):
        largest = max(float(largest_of(np.asarray(leaf))) for leaf in leaves(right).values())
        arrays = [] if answer is None else [(a, b) for _, a, b in matched(answer, right)]
        count = len(leaves(right))
        mine = [_number_of(array, largest or 1.0) for array, _ in arrays]
        found += mine if len(mine) == count else [0] * count
    return np.array(found, dtype=np.uint16)


def _number_of(array: Any, scale: float) -> int:
    """Return a number from 1 to MODULUS for an array, 0 if it is none of real numbers."""
    if not _is_numeric(array):
        return 0
    array = np.asarray(array)
    scaled = np.nan_to_num(array.astype(float).ravel() / scale, nan=0.37, posinf=1e3, neginf=-2e3)
    with np.errstate(all="ignore"):
        of_shape = sum(0.618 * n * i for i, n in enumerate(array.shape, start=1))
        mixed = scaled @ _mixer(array.size) + of_shape
        number = SPREAD * mixed % 1 * MODULUS
    return int(number) + 1 if np.isfinite(number) else 1


@lru_cache(maxsize=256)
def _mixer(size: int) -> Array:
    """Return factors that tell the places of numbers apart."""
    return np.random.default_rng(size).uniform(0.5, 1.5, size)


def have(numbers: Array, asked: Array) -> Array:
    """Return which rows have the requested numbers, ignoring zeros; neighbours count as equal."""
    is_asked = asked != 0
    off = (numbers[:, is_asked].astype(int) - asked[is_asked]) % MODULUS
    near = (off <= 1) | (off == MODULUS - 1)
    return np.asarray((near & (numbers[:, is_asked] != 0)).all(axis=1))


def made_edits(task: str) -> tuple[Array, Array, list[int]]:
    """Return which small edits give something wrong, their numbers, and which change nothing."""
    right = right_answers(task)
    usual = numbers_of(right, right)
    rows, found, same = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row, candidate in enumerate(candidates(task)):
            mine = numbers_of(candidate.answers(task), right)
            if mine.any() and have(mine[None], usual)[0]:
                same.append(row)
            elif mine.any():
                rows.append(row)
                found.append(mine)
    return np.array(rows, dtype=np.uint32), np.array(found).reshape(-1, len(usual)), same


def compute(task: str) -> Known:
    """Return the rows of the table: of all edits with the same results, the simplest."""
    rows, numbers, _ = made_edits(task)
    return table_of(task, rows, numbers)


def table_of(task: str, rows: Array, numbers: Array) -> Known:
    """Return the rows of the table from the results of all edits that give something wrong."""
    edits = candidates(task)
    ranks = np.array([edits[row].edit.rank for row in rows])
    order = np.lexsort((rows, ranks))
    _, first, counts = np.unique(numbers[order], axis=0, return_index=True, return_counts=True)
    kept = order[first]
    others = np.minimum(counts - 1, 255).astype(np.uint8)
    return Known(rows[kept], others, numbers[kept], np.array(made_of(task)))


def packed(task: str, table: Known) -> bytes:
    """Return a table as the content of a file, for a teacher's own exercise."""
    file = BytesIO()
    np.savez_compressed(file, **{f"{task}.{name}": one for name, one in table._asdict().items()})
    return file.getvalue()


def write_table() -> list[str]:
    """Compute and keep the results of small edits of the stale tasks; return the tasks' names."""
    from concurrent.futures import ProcessPoolExecutor  # not needed for a check
    from multiprocessing import get_context

    stale = stale_tasks()
    tables: dict[str, Any] = {name: known(name) for name in TASKS}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # a fork of threads hangs
        computed = progress(pool.map(compute, stale), len(stale), "making edits")
        tables |= zip(stale, computed, strict=True)
    arrays: dict[str, Any] = {}
    for name, table in tables.items():
        arrays |= {f"{name}.{field}": array for field, array in table._asdict().items()}
    np.savez_compressed(FILE, **arrays)
    known.cache_clear()
    return stale


def stale_tasks() -> list[str]:
    """Return the tasks that are missing from the table, or whose sources have changed."""
    kept = {task: known(task) for task in TASKS}
    return [task for task, one in kept.items() if not one or one.made_of != made_of(task)]


def made_of(task: str) -> str:
    """Return a digest of everything that a task's table depends on: functions, probes, rules."""
    cuts, called = read_solutions().cuts, called_by(task)
    taken = {small_edits.parameters(name) for name in called}  # who takes the same is exchanged
    used = {n for name in cuts if small_edits.parameters(name) in taken for n in called_by(name)}
    sources = [_code_alone(cut.source) for name, cut in cuts.items() if name in used]
    given = leaves(TASKS[task].probes()).items()
    # to six digits, for processors round apart, and without -0.0
    numbers = [
        (name, np.round(np.asarray(leaf, dtype=float), 6) + 0.0)
        for name, leaf in given
        if not isinstance(leaf, str)
    ]
    probes = [(name, array.shape, array.tolist()) for name, array in numbers]
    made = _how_made(is_own=variant_in_force().own is not None)
    return sha256(repr((made, sources, probes)).encode()).hexdigest()


@cache
def _how_made(*, is_own: bool) -> list[str]:
    """Return the code that makes edits and numbers."""
    code: list[Any] = [rewrite, small_edits, numbers_of, _number_of, _mixer]
    code += [own_edits] * is_own
    rules = rewrite.FILE.read_text(encoding="utf-8")
    return [str((SPREAD, MODULUS)), rules, *(_code_alone(inspect.getsource(c)) for c in code)]


def _code_alone(source: str) -> str:
    """Return a source without docstrings, imports, comments and space."""
    lines = source.splitlines()
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.Import | ast.ImportFrom) or (
            isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
        ):
            for number in range(part.lineno, (part.end_lineno or part.lineno) + 1):
                lines[number - 1] = ""
    return re.sub(r"#.*|\s", "", "\n".join(lines))


@cache
def known(task: str) -> Known | None:
    """Return a task's part of the table; None if there is none."""
    return _read(FILE, task) if FILE.exists() else None


@cached(8)
def own_known(task: str) -> Known | None:
    """Return the table of a teacher's own exercise, made now for a folder that has none.

    None if it is outdated.
    """
    own = variant_in_force().own
    if not isinstance(own, Own):
        return None
    with using(Variant(own=own)):
        table = _read(BytesIO(own.edits), task) if own.edits else compute(task)
        return table if table and table.made_of == made_of(task) else None


def _read(source: Path | BytesIO, task: str) -> Known | None:
    with np.load(source) as file:
        names = [f"{task}.{field}" for field in Known._fields]
        return Known(*(file[name] for name in names)) if names[-1] in file else None


def has_table(task: str) -> bool:
    """Return whether edits are looked up, because the probes in force are the usual ones."""
    is_usual = variant_in_force().seed == SEED and not conventions_of(task)
    return is_usual and _kept(task) is not None


def _kept(task: str) -> Known | None:
    """Return the table of a task here, or of a teacher's own exercise."""
    return known(task) if variant_in_force().own is None else own_known(task)


def find_edit(
    task: str, answers: Sequence[Answer], most: int, wrong: Sequence[bool] = ()
) -> SmallEdit | None:
    """Return the simplest small edit that gives these answers, if one of the `most` tried does.

    If `wrong` says which arrays are wrong, only those count.
    """
    table = _kept(task)
    if table is None or not has_table(task):
        different = candidates(task)
        if table and variant_in_force().own:  # edits with equal results have them elsewhere, too
            different = [different[row] for row in table.edits]
        return _first_that_fits(task, answers, _in_order(different)[:most], wrong)
    asked = _asked(numbers_of(answers, right_answers(task)), wrong)
    rows = np.flatnonzero(have(table.numbers, asked)) if asked.any() else np.array([], int)
    if not len(rows):
        return None
    all_edits = candidates(task)
    found = _in_order(all_edits[table.edits[row]] for row in rows)
    told = _first_that_fits(task, answers, found[:most], wrong)
    return told and told._replace(others=int(table.others[rows].sum()) + len(rows) - 1)


def _asked(numbers: Array, wrong: Sequence[bool]) -> Array:
    return np.where(np.resize(wrong, numbers.shape), numbers, 0) if wrong else numbers


def find_edit_beside(
    task: str, answers: Sequence[Answer], most: int, mistakes: Iterable[str]
) -> tuple[str, SmallEdit] | None:
    """Return one of some known mistakes and the small edit that give these answers together."""
    for mistake in filter(edits_of, mistakes):  # a convention that is not followed is no edit
        if most == 0:
            break
        in_order = _in_order(candidates(task, mistake))[:most]
        if told := _first_that_fits(task, answers, in_order):
            return mistake, told
        most -= len(in_order)
    return None


def _is_of_right_lines(edit: SmallEdit) -> bool:
    """Return whether the replaced lines are in the right function, and not part of a mistake."""
    right = ast.unparse(read_any_edits(edited_source(edit.function, {})).module)
    usual = {line.strip() for line in right.splitlines()}
    return usual.issuperset(edit.right.splitlines())


def _in_order(found: Iterable[Candidate]) -> list[Candidate]:
    return sorted(found, key=lambda candidate: candidate.edit.rank)


def _first_that_fits(
    task: str,
    answers: Sequence[Answer],
    tried: Iterable[Candidate],
    wrong: Sequence[bool] = (),
) -> SmallEdit | None:
    """Return the first edit that gives the answers."""
    right = right_answers(task)
    first = next((i for i, answer in enumerate(answers) if answer is not None), len(answers))
    asked = _asked(numbers_of(answers[first : first + 1], right[first : first + 1]), wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for candidate in tried if asked.any() else ():
            given = candidate.answers(task)
            found = list(islice(given, first + 1))  # before the others are computed
            mine = numbers_of(found[first:], right[first : first + 1])
            if not len(mine) or not have(mine[None], asked)[0]:
                continue
            if gives(answers, [*found, *given], wrong):
                edited, edit = candidate.edited, candidate.edit
                told = SmallEdit(edit.group, candidate.function, *edited.lines(edit))
                if _is_of_right_lines(told):
                    return told
    return None
