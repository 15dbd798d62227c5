"""The one error that all of ours are."""


class MptError(ValueError):
    """Something that a user gave is wrong; the message says what, where, and what would be right.

    Every error that this package raises on purpose is one, so `except mpt.MptError` catches them all.
    """


class ConfigError(MptError):
    """A setting is unknown or out of range; the message names it and what is allowed."""
