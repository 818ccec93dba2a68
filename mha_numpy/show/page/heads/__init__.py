"""The report of heads: what each head of a model does on some texts, in a page of its own."""

from mha_numpy.show.page.heads.report import HeadReport, head_report

__all__ = ["HeadReport", "head_report"]
