"""What can be wrong with a folder of results."""


class ReportError(ValueError):
    """A file of a run is missing or broken; the message says what, where, and what would be right."""
