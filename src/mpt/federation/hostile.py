"""The vehicles of a run that lie: what they train on, send and report instead."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from mpt.base.extensions import own_code
from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.validation import Floats, Ints
from mpt.federation.attacks import Attack, AttackError, Scene, find_attacks, lies_about
from mpt.federation.presence import PlannedPresence
from mpt.learning import Samples
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.local import Local
from mpt.protocol.request import StatisticsRequest

Honest = Callable[[], Mapping[int, ClassStatistics]]


@dataclass(frozen=True, eq=False)
class Hostile:
    """A plan's attacks.

    Attributes:
        attacks: by vehicle.
        presence: who is there when.
        num_classes: C.
    """

    attacks: Mapping[int, Attack]
    presence: PlannedPresence
    num_classes: int
    _relabelled: dict[tuple[Samples, bytes], Samples] = field(default_factory=dict)

    @classmethod
    def of(cls, presence: PlannedPresence, labels: Mapping[int, Ints], num_classes: int) -> "Hostile":
        """As the plan says."""
        plan = presence.plan
        return cls(find_attacks(plan.attack, labels, presence.owner, plan.rare), presence, num_classes)

    def scene(self, training: str, number: int, vehicle: int, honest: Honest = dict) -> Scene:
        """What a vehicle knows in a round."""
        plan, presence = self.presence.plan, self.presence
        return Scene(
            round=number,
            vehicle=vehicle,
            rare=plan.rare,
            num_classes=self.num_classes,
            gone=presence.gone(training, number),
            leaving=vehicle in presence.leaving(training, number),
            seed=plan.seed,
            honest=honest,
        )

    def updates(self, training: str, number: int, who: Collection[int]) -> dict[int, tuple[Attack, Scene]]:
        """Those who send another update than they have made."""
        liars = [v for v in who if v in self.attacks and lies_about(self.attacks[v], "update")]
        return {v: (self.attacks[v], self.scene(training, number, v)) for v in liars}

    def samples(self, samples: Samples, training: str, number: int, vehicle: int) -> Samples:
        """What a vehicle trains on, the same object for the same samples and labels."""
        attack = self.attacks.get(vehicle)
        if attack is None or not lies_about(attack, "labels"):
            return samples
        with own_code("attack", AttackError):
            labels = np.asarray(attack.labels(samples.labels.cpu().numpy(), self.scene(training, number, vehicle)))
        key = samples, labels.tobytes()
        if key not in self._relabelled:
            self._relabelled[key] = Samples(samples.images, torch.from_numpy(labels).to(samples.labels))
        return self._relabelled[key]

    def local(self, local: Local, training: str, number: int, vehicle: int, honest: Honest) -> Local:
        """A vehicle as it presents itself."""
        attack = self.attacks.get(vehicle)
        if attack is None or not any(lies_about(attack, what) for what in ("features", "report", "cross")):
            return local
        scene = self.scene(training, number, vehicle, honest)
        features, labels = local.features, local.labels
        if lies_about(attack, "features"):
            with own_code("attack", AttackError):
                features, labels = attack.features(features, labels, scene)
            if features.shape != local.features.shape or labels.shape != local.labels.shape:
                raise AttackError(
                    f"attack: features gave shapes {features.shape} and {labels.shape}, should be those of the "
                    f"vehicle's own, {local.features.shape} and {local.labels.shape}"
                )
        lying = replace(local, labels=labels, embedded=features, report=None, cross=None)
        return replace(
            lying,
            report=partial(_report, attack, scene, features, labels),
            cross=partial(_cross, attack, scene, lying.earlier, features, labels),
        )


def _report(
    attack: Attack, scene: Scene, features: Floats, labels: Ints, request: StatisticsRequest
) -> ClassStatistics:
    made = request.statistics(features, labels)
    if not lies_about(attack, "report"):
        return made
    with own_code("attack", AttackError):
        return attack.report(made, scene)


def _cross(
    attack: Attack,
    scene: Scene,
    earlier: Callable[[], Floats],
    features: Floats,
    labels: Ints,
    request: CrossRequest,
) -> CrossStatistics:
    made = request.moments(earlier(), features, labels)
    if not lies_about(attack, "cross"):
        return made
    with own_code("attack", AttackError):
        return attack.cross(made, scene)
