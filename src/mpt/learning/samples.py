"""One vehicle's training samples, on the device."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Samples:
    """Images (n, C, H, W) uint8, labels (n,).

    They equal themselves and no others, so that who keeps something of them may know them by themselves.
    """

    images: Tensor
    labels: Tensor

    def without(self, label: int) -> "Samples":
        """All but one class's."""
        kept = self.labels != label
        return self if bool(kept.all()) else Samples(self.images[kept], self.labels[kept])
