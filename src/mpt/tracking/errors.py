"""The one exception of the fleet."""


class FleetError(ValueError):
    """A setting, file or call is wrong; the message says what, where, and what would be right."""
