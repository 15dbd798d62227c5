"""A run as one page: `write_report(folder)` makes `report.html`, which needs no network."""

from mpt.report.page import write_report

__all__ = ["write_report"]
