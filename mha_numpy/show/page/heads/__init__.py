"""The report of heads: what each head of a model does on some texts, in one page."""

from mha_numpy.show.page.heads.report import HeadReport, head_report, stored_report

__all__ = ["HeadReport", "head_report", "stored_report"]
