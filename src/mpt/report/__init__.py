"""One page from the files of a run: `write_report(folder)` makes `report.html`, which needs no network."""

from mpt.report.errors import ReportError
from mpt.report.page import write_report

__all__ = ["ReportError", "write_report"]
