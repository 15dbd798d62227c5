"""The one exception of the datasets."""


class DataError(ValueError):
    """A dataset cannot be had or is wrong; the message is one sentence: what, where, and what would be right."""
