"""An embedding model is replaced by one that was trained from scratch, without one class, whose devices are gone.

    python benchmarks/upgrades.py [--seeds 5 6 7 8] [--left 0 0.02]

On `motion`, made windows of a phone's sensors. Each activity is lost in turn: a cnn1d is trained on all six, the
class's devices leave, and another one is trained from scratch on the other five. The first table has the lost class's
F1 on test subjects by how its prototype is kept, the mean over the seeds; the second what MPT-X's verdict said of it,
with the rule for prototypes far out (X12) and without it, and how often F1 was more than .1 below that of the lost
samples themselves. The rule was made with the seeds 1 to 4. A seed takes about half a minute on one core.
"""

import argparse
from collections import defaultdict

import numpy as np
import torch

import mpt
from mpt.core import mapped
from mpt.data import load
from mpt.data.motion import CLASSES
from mpt.learning import TrainingSettings, embed, generator, train
from mpt.learning.backbones import build_for

WAYS = ("frozen", "remaining-mean", "mpt", "mpt-x", "themselves")
VERDICTS = ("good", "unconfirmed", "degraded", "lost", "disputed")
SETTINGS = TrainingSettings(epochs=6, lr=0.02)


def encoder(split, seed, without=None):
    """A cnn1d that was trained from scratch on all classes but one."""
    kept = np.flatnonzero(split.labels != without)
    model = build_for("cnn1d", split.sample_shape, num_classes=len(CLASSES), seed=seed)
    windows, labels = (torch.from_numpy(array[kept]) for array in (split.images, split.labels))
    train(model, windows, labels, SETTINGS, generator=generator(seed, "training", 1, 0))
    return model


def features(model, split):
    """(N, 64)."""
    return embed(model, torch.from_numpy(np.array(split.images))).double().numpy()


def f1(said, labels, c):
    """Of a class."""
    right = np.sum((said == c) & (labels == c))
    return 2 * right / max(1, np.sum(said == c) + np.sum(labels == c))


def trial(old, new, labels, new_test, test_labels, c, left, seed):
    """A class's F1 by how it is kept, and MPT-X's reconstruction with the rule and without it."""
    stays = labels != c
    mine = np.random.default_rng([seed, c]).permutation(np.flatnonzero(~stays))
    stays[mine[: round(left * len(mine))]] = True

    def report(rows, who):
        return mpt.ClassStatistics.from_features(rows[who], labels[who], num_classes=len(CLASSES), watched=[c])

    deposit = mpt.deposit(report(old, labels >= 0), c, staying=report(old, stays))
    now, weights = report(new, stays), mpt.class_weights(deposit, len(CLASSES))
    cross = mpt.CrossStatistics.from_features(
        old[stays], new[stays], labels[stays], num_classes=len(CLASSES), weights=weights
    )
    found = mpt.reconstruct(deposit, now, variant="cross", cross=cross)
    limit, mapped.OUTSIDE = mapped.OUTSIDE, np.inf
    without = mpt.reconstruct(deposit, now, variant="cross", cross=cross)
    mapped.OUTSIDE = limit
    kept = (deposit.prototype, now.means[c], mpt.reconstruct(deposit, now).prototype, found.prototype)
    scores = {}
    for way, prototype in zip(WAYS, (*kept, new[labels == c].mean(axis=0)), strict=True):
        prototypes = now.means
        prototypes[c] = prototype
        readout = mpt.NearestClassMean(prototypes, now.covariance())
        readout = readout.outwards(c) if way == "mpt-x" else readout
        scores[way] = f1(readout.predict(new_test), test_labels, c)
    return scores, found, without


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8])
    parser.add_argument("--left", type=float, nargs="+", default=[0.0, 0.02])
    options = parser.parse_args()
    torch.set_num_threads(1)
    table, judged = defaultdict(list), defaultdict(list)
    for seed in options.seeds:
        data = load("motion", seed=seed)
        first = encoder(data.train, 100 + seed)
        old = features(first, data.train)
        for c in range(len(CLASSES)):
            second = encoder(data.train, 200 + 10 * seed + c, without=c)
            new, tested = features(second, data.train), features(second, data.test)
            for left in options.left:
                about = old, new, data.train.labels, tested, data.test.labels, c, left, seed
                scores, found, without = trial(*about)
                table[left, CLASSES[c]].append([scores[way] for way in WAYS])
                lost = scores["themselves"] - scores["mpt-x"] > 0.1
                for rule, one in (("with", found), ("without", without)):
                    judged[left, rule, one.verdict].append(lost)
    print(f"{'left':>5} {'lost':<11}" + "".join(f"{way:>15}" for way in WAYS))
    for (left, name), rows in sorted(table.items(), key=lambda item: (item[0][0], CLASSES.index(item[0][1]))):
        means = np.nan_to_num(np.mean(rows, axis=0))
        print(f"{left:>5.0%} {name:<11}" + "".join(f"{value:>15.2f}" for value in means))
    print(f"\n{'left':>5} {'rule':<8}" + "".join(f"{verdict:>15}" for verdict in VERDICTS))
    for left in options.left:
        for rule in ("without", "with"):
            cells = [judged[left, rule, verdict] for verdict in VERDICTS]
            print(f"{left:>5.0%} {rule:<8}" + "".join(f"{f'{sum(c)} of {len(c)}' if c else '-':>15}" for c in cells))


if __name__ == "__main__":
    main()
