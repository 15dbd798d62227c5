"""
The readout as a scikit-learn classifier
========================================

``PrototypeClassifier`` is fitted, fed in batches, and made of sums that devices have sent, with a class carried over
whose device is gone. The notebook needs scikit-learn and matplotlib, and no PyTorch.
"""

# %%
# Fit it
# ------
#
# It is a classifier like any other: it works in pipelines and in cross-validation.

# sphinx_gallery_capture_repr = ("_repr_html_", "__repr__")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mpt
from mpt.sklearn import PrototypeClassifier

X, y = load_digits(return_X_y=True)
scores = cross_val_score(make_pipeline(StandardScaler(), PrototypeClassifier()), X, y, cv=5)
print(f"accuracy {scores.mean():.3f}")

# %%
# Feed it in batches
# ------------------
#
# It keeps sums over classes and no sample, so batches add up to the same classifier.

X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
whole, batches = PrototypeClassifier().fit(X_train, y_train), PrototypeClassifier()
for first in range(0, len(X_train), 200):
    batches.partial_fit(X_train[first : first + 200], y_train[first : first + 200])
print((whole.predict(X_test) == batches.predict(X_test)).mean())

# %%
# Make it of sums
# ---------------
#
# Four devices report sums. Then the features move, as they do when a network goes on training, and the device with
# the eights is gone: its prototype is reconstructed and carried over.

moved = np.eye(64) + 0.1 * np.random.default_rng(0).normal(size=(64, 64))
stays = y_train != 8
EIGHT = 8


def report(features, labels):
    """What devices send: sums by class."""
    return mpt.ClassStatistics.from_features(features, labels, 10, watched=[EIGHT])


deposit = mpt.deposit(report(X_train, y_train), EIGHT, staying=report(X_train[stays], y_train[stays]))
now = report((X_train @ moved)[stays], y_train[stays])
found = {}
for name, prototype in {"frozen": deposit.prototype, "MPT": mpt.reconstruct(deposit, now).prototype}.items():
    classifier = PrototypeClassifier.from_statistics(now, carried={EIGHT: prototype})
    found[name] = classifier.predict(X_test @ moved)
    print(f"{name}: {np.mean(found[name][y_test == EIGHT] == EIGHT):.0%} of the eights are recognised")

# %%
# Statistics and reconstructions show themselves as tables.

mpt.reconstruct(deposit, now)

# %%
# Look at the mistakes
# --------------------

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, (name, predicted) in zip(axes, found.items(), strict=True):
    ConfusionMatrixDisplay.from_predictions(y_test, predicted, ax=ax, colorbar=False)
    ax.set_title(name)
plt.show()

# %%
# Read on: :doc:`/how-to/scikit-learn`, and :doc:`/tutorials/library` has a departure step by step.
