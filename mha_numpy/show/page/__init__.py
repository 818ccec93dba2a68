"""Pages that run without a network: the stepper through a trace, and the report of heads."""

from mha_numpy.show.page.heads.report import HeadReport, head_report, stored_report
from mha_numpy.show.page.widget import Stepper, stepper, training_page

__all__ = ["HeadReport", "Stepper", "head_report", "stepper", "stored_report", "training_page"]
