"""The families of functions: probes, laws, slopes and mistakes of each, beside one another."""

from mha_numpy.mistakes.families import heads

FAMILIES = [heads]

BANK = {mistake.name: mistake for family in FAMILIES for mistake in family.MISTAKES}
PIECES = {piece.name: piece for family in FAMILIES for piece in family.PIECES}
