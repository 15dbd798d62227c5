"""MPT without jumps: frozen, reconstruction and measurement, each by its reliability."""

from dataclasses import dataclass

from mpt.core import ClassStatistics, CrossStatistics, Deposit, Reconstruction
from mpt.core.blending import blend
from mpt.methods.mpt import Mpt


@dataclass(frozen=True)
class MptBlend(Mpt):
    """MPT's deposit and questions; the prototype fades between what was, what is carried over and what is measured."""

    name: str = "mpt:blend"

    @property
    def calibrated(self) -> bool:
        """What it expects of itself has not been compared with the truth."""
        return False

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """By `mpt.core.blending.blend`."""
        return blend(stored, stats)
