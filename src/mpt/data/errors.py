"""The one exception of the datasets."""

from mpt.base.errors import MptError


class DataError(MptError):
    """A dataset cannot be had or is wrong; the message is one sentence: what, where, and what would be right."""
