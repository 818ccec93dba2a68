"""The settings and the results of a benchmark."""

import shlex
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from mha_numpy.bench.contestants import CONTESTANTS, OURS
from mha_numpy.bench.machine import cores
from mha_numpy.bench.timing import Ratio
from mha_numpy.checks import check_count, check_number
from mha_numpy.errors import BackendError, ConfigError, describe

AGAINST = ("torch", "jax", "onnxruntime", "numpy")  # loops take minutes where these take seconds
TOLERANCE = 1e-4  # of float32 results, see `plan.difference`


@dataclass(frozen=True)
class Settings:
    """What to measure, and how.

    Parameters
    ----------
    ours : str
        The backend that is compared with all others.
    against : tuple of str
        Names in `CONTESTANTS`; those that are not installed are left out and reported. Ours
        against itself shows how much of a ratio is noise.
    only : str
        Run only measurements with this in their name; default all.
    threads : int
        The same number for each contestant; default one for each core.
    seconds : float
        Budget of a measurement; at least five pairs are measured in any case.
    mask : bool
        Add the cases with a boolean mask.
    quick : bool
        A rough look: short shapes in a tenth of the seconds, the peak and imports.
    sweep : int
        Measure this many random calls instead of the listed shapes; see `sweep.draw_calls`.
    seed : int
        Of the sweep.

    Raises
    ------
    BackendError
        Our backend cannot run here.

    Examples
    --------
    >>> Settings(ours="numpy", against=("torch",), threads=2, quick=True).command
    'mha-numpy bench --ours numpy --against torch --threads 2 --quick'
    """

    ours: str = "numba"
    against: tuple[str, ...] = AGAINST
    only: str = ""
    threads: int = field(default_factory=cores)
    seconds: float = 2.0
    mask: bool = False
    quick: bool = False
    sweep: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ours not in OURS:
            raise ConfigError(f"ours: expected one of {', '.join(OURS)}; got {self.ours!r}")
        for name in self.against:
            if name not in CONTESTANTS:
                raise ConfigError(
                    f"against: expected some of {','.join(CONTESTANTS)}; got {describe(name)}"
                )
        check_count("threads", self.threads)
        check_count("sweep", self.sweep, least=0)
        check_count("seed", self.seed, least=0)
        check_number("seconds", self.seconds, positive=True)
        if not CONTESTANTS[self.ours].is_here:
            install = CONTESTANTS[self.ours].install
            raise BackendError(f"ours: {self.ours} is not installed: {install}")

    @property
    def budget(self) -> float:
        """The seconds of one measurement."""
        return self.seconds / 10 if self.quick else self.seconds

    @property
    def others(self) -> list[str]:
        """The installed contestants that ours is compared with."""
        return [name for name in self.against if CONTESTANTS[name].is_here]

    @property
    def absent(self) -> dict[str, str]:
        """The contestants that are not installed, and how to install them."""
        missing = [name for name in self.against if not CONTESTANTS[name].is_here]
        return {name: CONTESTANTS[name].install for name in missing}

    @property
    def command(self) -> str:
        """The shell command that measures the same again."""
        words = ["mha-numpy", "bench"]
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value == setting.default:
                continue
            words.append(f"--{setting.name}")
            if value is not True:
                words.append(",".join(value) if isinstance(value, tuple) else str(value))
        return shlex.join(words)


class Cell(NamedTuple):
    """Ours against another in one case of one shape."""

    shape: str
    case: str
    other: str
    ratio: Ratio  # the other's time / ours
    ours_ms: float  # medians
    other_ms: float
    pairs: int
    difference: float | None  # of the results; None: NaN
    peak: float | None = None  # of the processor meanwhile, GFLOP/s; None: not known
    ours_fraction: float | None = None  # of this peak, medians
    other_fraction: float | None = None

    @property
    def agrees(self) -> bool:
        """Whether both have computed the same."""
        return self.difference is not None and self.difference <= TOLERANCE


class Fact(NamedTuple):
    """A single figure, or why there is none."""

    what: str
    who: str
    value: float | None
    unit: str  # "x" for a ratio
    note: str = ""


@dataclass(frozen=True)
class Results:
    """Everything that was found."""

    settings: Settings
    machine: dict[str, str]
    cells: list[Cell]
    facts: list[Fact]

    @property
    def all_right(self) -> bool:
        """Whether no result differs from ours, and no measurement failed."""
        failed = any(fact.note.startswith("failed") for fact in self.facts)
        return not failed and all(cell.agrees for cell in self.cells)


def in_digits(value: float, digits: int = 3) -> str:
    """Return a number with this many digits, or with all digits before the point."""
    return f"{value:.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def in_quartiles(ratio: Ratio) -> str:
    """Return a ratio with its quartiles.

    >>> in_quartiles(Ratio(2.0, 1.875, 2.25))
    '2.00 (1.88-2.25)'
    """
    return f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def in_words(difference: float | None) -> str:
    """Say that results differ, and how much."""
    return "RESULTS DIFFER: " + ("NaN" if difference is None else f"{difference:.0e}")
