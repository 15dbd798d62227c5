"""
Your embedding model was upgraded, and one class's devices are gone
===================================================================

An encoder of sensor windows is replaced by a new one, trained from scratch. The devices of one activity have left
before that, so nobody can embed its windows again. This example carries the activity's prototype over from version to
version. It needs the extra ``sim`` and matplotlib, and about half a minute.
"""

# %%
# Windows and an encoder
# ----------------------
#
# The windows are made on the fly and shaped like UCI-HAR: nine channels, 128 readings, six activities, thirty subjects.
# Nine of the subjects are for the test.

import matplotlib.pyplot as plt
import numpy as np
import torch

import mpt
from mpt.data import load
from mpt.learning import TrainingSettings, embed, generator, train
from mpt.learning.backbones import build_for

data = load("motion", seed=0)
print(data)
windows, labels = data.train.images, data.train.labels
num_classes = len(data.classes)


def encoder(seed, without=None):
    """A small 1-d CNN, trained from scratch on all activities but one."""
    kept = np.flatnonzero(labels != without)
    model = build_for("cnn1d", data.sample_shape, num_classes=num_classes, seed=seed)
    samples = torch.from_numpy(windows[kept]), torch.from_numpy(labels[kept])
    train(model, *samples, TrainingSettings(epochs=6, lr=0.02), generator=generator(seed, "training", 1, 0))
    return model


def embedded(model, split):
    """(N, 64)."""
    return embed(model, torch.from_numpy(np.array(split.images))).double().numpy()


old = embedded(encoder(100), data.train)

# %%
# From the old version to the new one
# -----------------------------------
#
# Devices report sums by class. The departing prototype is deposited under the old encoder. When the new one comes, the
# devices that are left embed their windows under both and add up how the two go together. The others' prototypes are
# measured; the lost one is carried over by the map that comes of it, and corrected by its own windows where a few are
# left.


def carried_over(lost, new, stays):
    """What is kept and known of a lost class: its prototypes by name, the others' statistics, what MPT-X found."""

    def report(features, who):
        return mpt.ClassStatistics.from_features(features[who], labels[who], num_classes=num_classes, watched=[lost])

    deposit = mpt.deposit(report(old, labels >= 0), lost, staying=report(old, stays))
    now, weights = report(new, stays), mpt.class_weights(deposit, num_classes)
    cross = mpt.CrossStatistics.from_features(
        old[stays], new[stays], labels[stays], num_classes=num_classes, weights=weights
    )
    found = mpt.reconstruct(deposit, now, variant="cross", cross=cross)
    ways = {"the old prototype": deposit.prototype, "mean of what is left": now.means[lost], "MPT-X": found.prototype}
    return ways | {"the lost samples themselves": new[labels == lost].mean(axis=0)}, now, found


def f1(prototype, now, lost, features):
    """Of the lost class on the test subjects."""
    prototypes = now.means
    prototypes[lost] = prototype
    said = mpt.NearestClassMean(prototypes, now.covariance()).predict(features)
    right = np.sum((said == lost) & (data.test.labels == lost))
    return 2 * right / max(1, np.sum(said == lost) + np.sum(data.test.labels == lost))


# %%
# Each activity is lost in turn
# -----------------------------
#
# The new encoder never sees the lost activity. First 2% of its windows are left on other devices, then none.

scores = {}
for lost, name in enumerate(data.classes):
    upgraded = encoder(200 + lost, without=lost)
    new, tested = embedded(upgraded, data.train), embedded(upgraded, data.test)
    for left in (0.02, 0.0):
        mine = np.random.default_rng(lost).permutation(np.flatnonzero(labels == lost))
        stays = labels != lost
        stays[mine[: round(left * len(mine))]] = True
        ways, now, found = carried_over(lost, new, stays)
        for way, prototype in ways.items():
            scores.setdefault((left, way), []).append(f1(prototype, now, lost, tested))
        told = ", ".join(f"{way} {scores[left, way][-1]:.2f}" for way in ways)
        print(f"{name}, {left:.0%} left: {told}; {found.verdict}, reach {found.reach:.1f}")

# %%
# The picture
# -----------

COLOURS = {"frozen": "#c04f63", "remaining-mean": "#7a4b2a", "mpt-x": "#5a2ca0", "oracle-train": "#3d434c"}
figure, axes = plt.subplots(2, 1, figsize=(7.2, 5.2), dpi=140, sharex=True, layout="constrained")
for axis, left in zip(axes, (0.02, 0.0), strict=True):
    for i, (way, colour) in enumerate(zip(ways, COLOURS.values(), strict=True)):
        values = np.nan_to_num(scores[left, way])
        axis.bar(np.arange(num_classes) + 0.2 * (i - 1.5), values, 0.2, color=colour, label=way)
    axis.set(ylabel="F1 of the lost class", ylim=(0, 1), title=f"{left:.0%} of its windows are left")
    axis.spines[["top", "right"]].set_visible(False)
axes[1].set_xticks(range(num_classes), data.classes)
axes[0].legend(ncols=2, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.55))
plt.show()

# %%
# The picture shows F1 of each activity when it is the lost one. The old prototype is of no use in the new space. With
# 2% of the windows MPT-X is near the lost samples themselves. With none it depends on where the class lies: where the
# other classes' samples do not reach, no map can know where it goes, and the verdict printed above says so.
#
# Read on: :doc:`/how-to/model-upgrades` has the steps, precomputed features with ``mpt run``, and what was measured;
# :doc:`/explanation/mpt-x` has the equations.
