"""One departure, with plain arrays: what vehicles report, what the server keeps, and what it can still recognise.

The "images" are points and the "backbone" is one ReLU layer whose weights wander from round to round as if it were
being trained. What happens to its features is the real thing, called as a server and its vehicles would call it.

    python examples/core_tour.py
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

import mpt

CLASSES = ["car", "van", "truck", "bus", "motorcycle", "bicycle", "pedestrian", "traffic cone"]
VAN, TRUCK, BUS = 1, 2, 3
VEHICLES, PER_CLASS, REMAINING = 8, 500, 0.02
INPUTS, D = 24, 64
DEPARTURE, LAST, SHOW_EVERY = 15, 100, 17

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
rng = np.random.default_rng(2026)


@dataclass
class Backbone:
    """A ReLU layer whose weights take a small step every round."""

    weights: Array = field(default_factory=lambda: rng.standard_normal((INPUTS, D)) / np.sqrt(INPUTS))
    bias: Array = field(default_factory=lambda: np.zeros(D))

    def train_one_round(self) -> None:
        """Stand-in for a round of federated averaging: the features drift."""
        self.weights = 1.004 * self.weights + 0.045 * rng.standard_normal(self.weights.shape) / np.sqrt(INPUTS)
        self.bias = self.bias + 0.01 * rng.standard_normal(D)

    def embed(self, images: Array) -> Array:
        """(N, d) features of (N, INPUTS) images."""
        return np.maximum(images @ self.weights + self.bias, 0)


def draw_images(per_class: int, centres: Array) -> tuple[Array, Labels]:
    """Noisy copies of each class's centre, and their labels."""
    labels = np.repeat(np.arange(len(CLASSES)), per_class)
    return centres[labels] + rng.standard_normal((len(labels), INPUTS)), labels


def truck_f1(prototype: Array, now: mpt.ClassStatistics, features: Array, labels: Labels) -> float:
    """The truck's F1 when `prototype` stands for it among the current prototypes."""
    prototypes = now.means
    prototypes[TRUCK] = prototype
    predicted = mpt.NearestClassMean(prototypes, now.covariance()).predict(features)
    hits = np.sum((predicted == TRUCK) & (labels == TRUCK))
    return float(2 * hits / (np.sum(predicted == TRUCK) + np.sum(labels == TRUCK)))


def main() -> None:
    """Run the tour."""
    centres = 0.62 * rng.standard_normal((len(CLASSES), INPUTS))
    centres[TRUCK] = (centres[VAN] + centres[BUS]) / 2 + 0.5 * centres[TRUCK]
    images, labels = draw_images(PER_CLASS, centres)
    test_images, test_labels = draw_images(200, centres)

    leaving, staying = VEHICLES - 1, range(VEHICLES - 1)
    owner = rng.integers(0, VEHICLES - 1, len(labels))
    trucks = rng.permutation(np.flatnonzero(labels == TRUCK))
    owner[trucks[int(REMAINING * PER_CLASS) :]] = leaving
    backbone = Backbone()

    def report(vehicle: int, span: Array | None = None) -> bytes:
        """On a vehicle: embed the local images with the current model, send sums per class; with a span, MPT-lite's."""
        mine = owner == vehicle
        stats = mpt.ClassStatistics.from_features(
            backbone.embed(images[mine]), labels[mine], len(CLASSES), watched=TRUCK, span=span, scatter=span is None
        )
        return stats.to_bytes("float32", frame=False)

    def collect(vehicles: range, span: Array | None = None) -> mpt.ClassStatistics:
        """On the server: merge the reports as they arrive."""
        return sum(mpt.ClassStatistics.from_bytes(report(v, span), span=span) for v in vehicles)

    print(f"1. {VEHICLES} vehicles train together; vehicle {leaving} holds {1 - REMAINING:.0%} of the trucks.")
    for _ in range(DEPARTURE):
        backbone.train_one_round()
    stay, before = collect(staying), collect(range(VEHICLES))
    span = stay.means[stay.reference_classes]
    print(f"   Each sends {len(report(0)):,} bytes a round: counts, sums, squares and one packed {D} x {D} scatter.")
    print(f"   For MPT-lite it would be {len(report(0, span)):,}: no scatter.")
    print(f"   Merged: {before}\n")

    deposit = mpt.deposit(before, TRUCK, staying=stay)
    lite_deposit = mpt.deposit(collect(range(VEHICLES), span), TRUCK, staying=collect(staying, span))
    print(f"2. After round {DEPARTURE} it drives off for good. The server keeps {deposit.nbytes:,} bytes:")
    print(f"   {deposit}")
    parts = [f"{w:+.2f} {CLASSES[c]}" for c, w in zip(deposit.classes, deposit.weights, strict=True)]
    print(f"   truck = {' '.join(parts[:4])}\n           {' '.join(parts[4:])} + residual\n")

    print(f"3. The model goes on changing, with {stay.counts[TRUCK]} trucks remaining. Truck F1 by prototype:\n")
    print("   round   drift   frozen   remaining-mean   mpt-lite     mpt   oracle-train    alpha")
    for r in range(DEPARTURE, LAST + 1):
        if (r - DEPARTURE) % SHOW_EVERY == 0:
            now = collect(staying)
            rec = mpt.reconstruct(deposit, now)
            lite = mpt.reconstruct(lite_deposit, collect(staying, span), variant="lite")
            span = now.means[now.reference_classes]
            truth = backbone.embed(images[labels == TRUCK]).mean(axis=0)
            drift = np.linalg.norm(truth - deposit.prototype) / np.linalg.norm(deposit.prototype)
            features = backbone.embed(test_images)
            scores = [
                truck_f1(prototype, now, features, test_labels)
                for prototype in (deposit.prototype, now.means[TRUCK], lite.prototype, rec.prototype, truth)
            ]
            row = "{:8.3f} {:16.3f} {:10.3f} {:7.3f} {:14.3f}".format(*scores)
            print(f"   {r:5d} {drift:7.2f} {row} {rec.alpha:8.2f}")
        backbone.train_one_round()

    prototypes = now.means
    prototypes[TRUCK] = rec.prototype
    readout = mpt.NearestClassMean(prototypes, now.covariance())
    weight, bias = readout.to_linear()
    same = np.mean((features @ weight.T + bias).argmax(axis=1) == readout.predict(features))
    print("\n   frozen: as of departure; remaining-mean: the remaining trucks alone; oracle-train: all trucks,")
    print("   departed ones included, under the current model, which is what tracking could reach at best.")
    print("   All are read out under the same covariance; alpha is how far MPT trusts the remaining trucks.\n")
    print(f"4. What is deployed is one linear layer {weight.shape}, with {same:.0%} the same decisions.")


if __name__ == "__main__":
    main()
