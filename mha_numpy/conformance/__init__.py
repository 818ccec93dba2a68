"""The conformance kit: attention as small numbers in files, for functions in any language.

`write_vectors` writes the cases, and pytest runs them on a function of yours.
"""

from mha_numpy.conformance.case import Case, solve
from mha_numpy.conformance.cases import VERSION, cases
from mha_numpy.conformance.vectors import write_vectors

__all__ = ["VERSION", "Case", "cases", "solve", "write_vectors"]
