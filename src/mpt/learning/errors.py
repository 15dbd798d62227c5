"""The one exception of the learning package."""


class LearningError(ValueError):
    """A backbone, a setting, a vehicle's data or its update is wrong; the message says what, and what would be right.

    Raised before anything changes: models and sums involved stay as they were.
    """
