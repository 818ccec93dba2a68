"""using: other numbers and other conventions for all that is asked about a function."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from mha_numpy.errors import ConfigError, did_you_mean
from mha_numpy.teach.diagnosis.conventions import CONVENTIONS, Convention

SEED = 20240229


class Variant(NamedTuple):
    """What one student's functions are called with, and how they are to write their arrays."""

    seed: int = SEED
    conventions: tuple[str, ...] = ()  # keys of CONVENTIONS

    def of(self, piece: str) -> tuple[Convention, ...]:
        """Return the conventions that are about a piece, in the order of the table."""
        return tuple(
            convention
            for name, convention in CONVENTIONS.items()
            if name in self.conventions and piece in convention.at
        )


DEFAULT = Variant()
_IN_FORCE: ContextVar[Variant] = ContextVar("variant", default=DEFAULT)


@contextmanager
def using(variant: Variant) -> Iterator[Variant]:
    """Let probes, right answers, mistakes, laws and slopes be those of a variant, for a while.

    The seed draws other numbers of the same sizes; where sizes are drawn by chance, as those of a
    mask, they change too. A convention counts for the functions that it is about.

    Parameters
    ----------
    variant : Variant

    Yields
    ------
    Variant
        The one in force.

    Raises
    ------
    ConfigError
        There is no such convention.

    Examples
    --------
    >>> from mha_numpy.teach.diagnosis import diagnose, find_piece, make
    >>> usual = make("softmax")
    >>> with using(Variant(seed=1, conventions=("True = blocked",))):
    ...     answers = [usual(**probe) for probe in find_piece("softmax").probes()]
    ...     print(diagnose("softmax", answers).mistakes[0].name)
    not followed: True = blocked
    """
    for name in variant.conventions:
        if name not in CONVENTIONS:
            meant = did_you_mean(name, CONVENTIONS) or f"they are {', '.join(CONVENTIONS)}"
            raise ConfigError(
                f"conventions: expected the names of conventions; got {name!r}; {meant}"
            )
    token = _IN_FORCE.set(variant)
    try:
        yield variant
    finally:
        _IN_FORCE.reset(token)


def variant_in_force() -> Variant:
    """Return the variant that is being used."""
    return _IN_FORCE.get()


def conventions_of(piece: str) -> tuple[Convention, ...]:
    """Return the conventions in force that are about a piece."""
    return _IN_FORCE.get().of(piece)
