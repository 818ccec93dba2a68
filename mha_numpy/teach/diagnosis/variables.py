"""Variables: what each variable of a student's function was in a call, and what it was made of."""

import dis
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from mha_numpy.checking.trees import leaves
from mha_numpy.dtypes import Array

MOST = 20_000  # values of variables that are kept of a call
VARIABLE = re.compile(r"(LOAD|STORE)(?:_FAST|_DEREF|_CLOSURE)")
ENDS = ("STORE_SUBSCR", "STORE_SLICE", "POP_TOP", "RETURN_VALUE")
RESULT = "return"  # in place of a variable
Trace = Mapping[str, Any]  # "values" and "needs" of each "line variable", ...


class Part(NamedTuple):
    """What an instruction ends: a statement, or one of its targets."""

    line: int
    stored: list[str]
    reads: set[str]
    is_empty: bool  # an array without numbers


def parts_of(code: CodeType) -> dict[int, Part]:
    """Return the parts of a function by the place of the instruction that ends each."""
    found: dict[int, Part] = {}
    reads, line, is_new, is_empty = set[str](), 0, False, False
    for one in dis.get_instructions(code):
        line = (one.positions and one.positions.lineno) or line
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        pairs = list(zip(VARIABLE.findall(one.opname), names, strict=False))
        stored = [name for kind, name in pairs if kind == "STORE"]
        if is_new and not stored:  # all variables that are unpacked have the same needs
            reads, is_new, is_empty = set(), False, False
        reads |= {name for kind, name in pairs if kind == "LOAD"}
        is_empty |= str(one.argval).startswith("empty")
        if stored or one.opname in ENDS:
            stored = [RESULT] if one.opname == "RETURN_VALUE" else stored
            found[one.offset], is_new = Part(line, stored, set(reads), is_empty), True
    return found


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes a call and returns what its variables were, and made of what.

    Each variable has its first numbers, its last ones, and all that it ever had.
    """
    code = getattr(function, "__code__", None)

    def call(*given: Any, **named: Any) -> Any:
        if code is None:
            return None
        kept, before = _Kept(parts_of(code)), sys.gettrace()

        def note(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_code is not code or kept.seen:
                return None
            frame.f_trace_opcodes = True
            kept.seen = {name: numbers_in(value) for name, value in frame.f_locals.items()}
            kept.given = set(kept.seen)
            return kept.step

        sys.settrace(note)
        try:
            function(*given, **named)
        finally:
            sys.settrace(before)
        values = {key: [some[0], some[-1], _all_of(some)] for key, some in kept.values.items()}
        trace = {"values": values, "needs": kept.needs, "passed": kept.passed}
        trace |= {"changed": kept.changed, "filled": sorted(kept.filled)}
        return trace if kept.count < MOST else None

    return call


class _Kept:
    """What the variables of a call were so far."""

    def __init__(self, parts: dict[int, Part]):
        self.parts, self.last, self.count = parts, -1, 0
        self.seen: dict[str, list[Array]] = {}
        self.writer: dict[str, str] = {}
        self.values: dict[str, list[list[Array]]] = {}
        self.needs: dict[str, list[str]] = {}
        self.given, self.changed = set[str](), list[str]()  # inputs, and those changed in place
        self.filled = set[str]()  # variables that are changed in place
        self.passed: list[bool] = []  # whether each array that is returned is a variable

    def step(self, frame: FrameType, event: str, result: Any) -> Any:
        if event == "opcode":  # the one before it has been carried out
            part, self.last = self.parts.get(self.last), frame.f_lasti
            if part is not None:
                self._end(part, frame.f_locals)
        elif event == "return" and frame.f_lasti in self.parts:
            self._end(self.parts[frame.f_lasti], {**frame.f_locals, RESULT: result})
            held = {id(one) for value in frame.f_locals.values() for one in leaves(value).values()}
            self.passed = [id(one) in held for one in leaves(result).values()]
        return self.step

    def _end(self, part: Part, held: Mapping[str, Any]) -> None:
        needs = [self.writer[name] for name in sorted(part.reads) if name in self.writer]
        for name in [*part.stored, *sorted(part.reads - set(part.stored))]:  # changed in place
            numbers = numbers_in(held.get(name))
            before = self.seen.get(name, [])
            if name not in part.stored and (
                [one.tobytes() for one in numbers] == [one.tobytes() for one in before]
            ):
                continue
            key = f"{part.line} {name}"
            if name not in part.stored:
                self.filled.add(key)
                if name in self.given:
                    self.changed.append(key)
            self.given -= set(part.stored)
            self.needs[key] = sorted({*self.needs.get(key, ()), *needs})
            self.seen[name], self.writer[name] = numbers, key
            if self.count < MOST and not part.is_empty:
                self.count += 1
                self.values.setdefault(key, []).append(numbers)


def numbers_in(value: Any) -> list[Array]:
    """Return copies of the arrays and numbers in a value."""
    kinds = (np.ndarray, np.generic, int, float, complex)
    found = [np.array(one) for one in leaves(value).values() if isinstance(one, kinds)]
    real = [np.stack([one.real, one.imag], -1) if one.dtype.kind == "c" else one for one in found]
    return [one for one in real if one.dtype.kind in "fbiu"]


def _all_of(values: Sequence[Sequence[Array]]) -> list[Array]:
    """Return all numbers that a variable had, if it had several values."""
    several = [array.ravel() for one in values for array in one]
    return [np.concatenate(several)] if len(values) > 1 and several else []
