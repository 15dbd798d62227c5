"""What can be wrong with a run's folder."""

from mpt.base.errors import ConfigError, MptError


class RunError(MptError):
    """A file of a run is missing or broken; the message names it, the line, and what would be right."""


class OtherRunError(ConfigError):
    """The folder holds another run, or one that cannot be read; the message says what to do."""


class RecordError(RunError):
    """A record is missing, broken or lacks what is asked for; the message says what and what would be right."""
