"""What statistics by class have in common: counts and sums of features."""

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.core.value import Value


class ClassSums(Value):
    """Counts (C,) and sums (C, d) of features by class, about `origin` (d,); some are `narrow`: they were float32."""

    counts: Ints
    sums: Floats
    origin: Floats
    narrow: bool

    @property
    def num_classes(self) -> int:
        """C, how many classes there are."""
        return len(self.counts)

    @property
    def dim(self) -> int:
        """d, the feature dimension."""
        return int(self.sums.shape[1])

    @property
    def means(self) -> Floats:
        """(C, d): the prototypes under the current model, `origin` added back; NaN rows without samples.

        A new array every time, which may be written to: put a reconstructed prototype into its row.
        """
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts[:, None] + self.origin
