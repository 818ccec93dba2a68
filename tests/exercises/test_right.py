"""No false alarm: right solutions in many styles pass every stage."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from mha_numpy.checking.trees import leaves, replaced
from mha_numpy.exercises import EXERCISES, judge
from mha_numpy.mistakes import PIECES, make

FOLDER = Path(__file__).parent / "right"
FEW = {"cost_table", "from_gpt2", "to_gpt2"}  # there are not twelve ways to write these
SOLUTIONS = {
    path.stem: import_module(f"tests.exercises.right.{path.stem}").RIGHT
    for path in sorted(FOLDER.glob("[a-z]*.py"))
}
OF_PIECE = {e.piece: e for e in reversed(EXERCISES) if e.kind != "tests"}


def name_of(solution):
    return getattr(solution, "__name__", type(solution).__name__)


@pytest.mark.parametrize(
    ("piece", "solution"),
    [(piece, solution) for piece, found in SOLUTIONS.items() for solution in found],
    ids=lambda value: value if isinstance(value, str) else name_of(value),
)
def test_a_right_solution_passes(piece, solution):
    verdict = judge(OF_PIECE[piece], lambda: solution)
    assert verdict.passed, f"\n{verdict}"


def test_there_are_a_dozen_for_every_piece():
    assert set(SOLUTIONS) == set(PIECES)
    for piece, solutions in SOLUTIONS.items():
        assert len(set(solutions)) >= (6 if piece in FEW else 12), piece


MEMORY = {
    "Fortran order": np.asfortranarray,
    "a view of a larger array": lambda a: np.repeat(a[..., None], 2, axis=-1)[..., 1],
    "turned around twice": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "read-only": lambda a: np.broadcast_to(a, a.shape),
}


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("order", MEMORY)
def test_the_order_of_memory_does_not_matter(piece, order):
    function, change = make(piece), MEMORY[order]

    def mine(*given):
        answer = function(*given)
        arrays = {n: a for n, a in leaves(answer).items() if np.ndim(a)}
        return replaced(answer, {n: change(a) for n, a in arrays.items()})

    verdict = judge(OF_PIECE[piece], lambda: mine)
    assert verdict.passed, f"\n{verdict}"
