"""What identify returns: all findings, as text, as a page, as JSON."""

from typing import Any

from mha_numpy.identifying.reporting import page, report
from mha_numpy.identifying.reporting.datasheet import Findings
from mha_numpy.tables import Table


class Datasheet(Findings):
    """What a function computes; see `mha_numpy.identifying.identify`.

    Examples
    --------
    >>> print(Datasheet("attend", "numpy", False, "no call of it worked"), end="")
    attend: no call of it worked
    """

    __slots__ = ()

    def __str__(self) -> str:
        return report.to_text(self)

    def sections(self) -> list[Table]:
        """Return the parts of the text, as `mha_numpy.tables.show` prints them."""
        return report.sections(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, texts and numbers, for JSON."""
        return report.to_dict(self)

    def to_html(self) -> str:
        """Return one page of HTML that needs no other file."""
        return page.to_page(self)

    def _repr_html_(self) -> str:
        return "".join(table.to_html() for table in self.sections())
