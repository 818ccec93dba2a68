"""The families of functions: probes, laws, slopes and mistakes of each, beside one another.

Sizes of probes are pairwise different, as equal ones hide transposes, and one square case is there
for the mistakes that only a square lets run; upstream gradients are random, biases are not zero,
and where there is a mask, one row sees nothing and one probe has large scores.
"""

from mha_numpy.errors import ConfigError
from mha_numpy.teach.diagnosis.conventions import CONVENTIONS, IGNORE_ALL
from mha_numpy.teach.diagnosis.families import (
    attention,
    attention_backward,
    blocks,
    bridges,
    costs,
    gates,
    head_parts,
    heads,
    layer,
    layer_backward,
    loss,
    masks,
    memory,
    norms,
    positions,
    training,
)
from mha_numpy.teach.diagnosis.manners import MANNERS
from mha_numpy.teach.diagnosis.mistake import Mistake
from mha_numpy.teach.diagnosis.piece import Piece

# where two mistakes give the same numbers, the first of them is named first
FAMILIES = [
    heads, masks, attention, layer, attention_backward, layer_backward, gates, head_parts, positions,
    memory, bridges, costs, norms, blocks, training, loss,
]  # fmt: skip
PIECES: dict[str, Piece] = {piece.name: piece for family in FAMILIES for piece in family.PIECES}
MISTAKES: list[Mistake] = [mistake for family in FAMILIES for mistake in family.MISTAKES]
IGNORED = [*(convention.ignored for convention in CONVENTIONS.values()), IGNORE_ALL]
BANK = {mistake.name: mistake for mistake in [*MISTAKES, *MANNERS, *IGNORED]}


def find_piece(name: str) -> Piece:
    """Return a function by its name, as the variant in force has it; raise a ConfigError if absent."""
    if name not in PIECES:
        raise ConfigError(f"piece: expected one of {', '.join(PIECES)}; got {name!r}")
    return PIECES[name].varied()
