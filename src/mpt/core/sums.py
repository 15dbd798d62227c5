"""What statistics by class have in common: counts and sums of features."""

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.core.value import Value


class ClassSums(Value):
    """Counts (C,) and sums (C, d) of features by class, about `origin` (d,)."""

    counts: Ints
    sums: Floats
    origin: Floats

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.counts)

    @property
    def dim(self) -> int:
        """d, the feature dimension."""
        return int(self.sums.shape[1])

    @property
    def means(self) -> Floats:
        """(C, d): the prototypes under the current model, `origin` added back; NaN rows without samples."""
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts[:, None] + self.origin


def rounding_level(samples: int) -> float:
    """What a sum of squares over so many samples may be off by, as a fraction: a difference below that says nothing."""
    return float(np.finfo(np.float64).eps * (64 + np.sqrt(samples)))
