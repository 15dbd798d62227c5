"""The one exception of the core."""

from mpt.base.errors import MptError


class StatisticsError(MptError):
    """An input to the core is wrong; the message says what, where, and what would be right.

    Raised before anything changes: the objects involved stay as they were.
    """
