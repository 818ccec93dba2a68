"""The tables of a sweep: how the ratios are spread, and what is behind."""

from collections.abc import Callable, Iterator

import numpy as np

from mha_numpy.bench.contestants import CONTESTANTS
from mha_numpy.bench.problems import LayerProblem, Problem, parse
from mha_numpy.bench.results import Cell, Results, in_digits, in_quartiles, in_words
from mha_numpy.tables import Table

FEW_QUERIES = 8
LEVEL = 1.0  # of a ratio: as fast as the other


def _is_step(cell: Cell) -> bool:
    """Return whether it is a step of decoding: few queries, more keys."""
    problem = parse(cell.shape)
    return isinstance(problem, Problem) and problem.T_q <= FEW_QUERIES < problem.T_k


KINDS: dict[str, Callable[[Cell], bool]] = {
    "all": lambda cell: True,
    "fwd": lambda cell: "fwd+bwd" not in cell.case,
    "fwd+bwd": lambda cell: "fwd+bwd" in cell.case,
    "layers": lambda cell: isinstance(parse(cell.shape), LayerProblem),
    "few queries, more keys": _is_step,
    "causal": lambda cell: "causal" in cell.case,
    "padding, mask or bias": lambda cell: any(
        word in cell.case for word in ("padding", "mask", "bias")
    ),
    "float64": lambda cell: "float64" in cell.case,
}


def sweep_tables(results: Results, other: str) -> Iterator[Table]:
    """Yield how the ratios to another are spread, then what is behind."""
    cells = sorted(
        (cell for cell in results.cells if cell.other == other), key=lambda cell: cell.ratio.median
    )
    ours, label = CONTESTANTS[results.settings.ours].label, CONTESTANTS[other].label
    rows = []
    for name, belongs in KINDS.items():
        ratios = [cell.ratio.median for cell in cells if cell.agrees and belongs(cell)]
        if ratios:
            spread = np.quantile(ratios, [0, 0.1, 0.5, 0.9])
            level = f"{sum(ratio >= LEVEL for ratio in ratios)} of {len(ratios)}"
            rows.append([name, level, *(f"{number:.2f}" for number in spread)])
    columns = ["calls", "1 or more", "lowest", "a tenth below", "median", "a tenth above"]
    yield Table(f"{label}: its time / that of {ours}, in random calls", columns, rows)
    wrong = [[c.shape, c.case, in_words(c.difference), "", ""] for c in cells if not c.agrees]
    behind = [
        [cell.shape, cell.case, in_quartiles(cell.ratio), _fractions(cell), in_digits(cell.ours_ms)]
        for cell in cells
        if cell.agrees and cell.ratio.median < LEVEL
    ]
    columns = ["shape", "case", "median (quartiles)", f"parts of the peak: {ours} / {label}", "ms"]
    if wrong or behind:
        title = f"Calls in which {label} is faster"
        yield Table(title, columns, wrong + behind, frozenset(range(len(wrong))))


def _fractions(cell: Cell) -> str:
    if cell.ours_fraction is None or cell.other_fraction is None:
        return ""
    return f"{cell.ours_fraction:.1%} / {cell.other_fraction:.1%}"
