"""The one exception of the fleet."""

from mpt.base.errors import MptError


class FleetError(MptError):
    """A setting, file or call is wrong; the message says what, where, and what would be right."""
