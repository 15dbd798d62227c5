"""
Read a run with pandas
======================

A run leaves its figures as CSV files. This example takes a run of the paper's size, reads its ``metrics.csv`` and
``diagnostics.csv``, and draws F1 and drift by round. It needs pandas, matplotlib and a clone of the repository;
nothing is trained.
"""

# %%
# Find the run
# ------------
#
# The repository has an archive of the runs that its tables are made from. Each run is a folder with the settings in
# ``config.toml``. In the run that is wanted here, a vehicle leaves with the trucks of CIFAR-10, and 2% of the trucks
# remain on other vehicles. It has five seeds.

import tarfile
import tempfile
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

here = Path.cwd()
places = [folder / "results" / "paper" / "cells.tar.gz" for folder in (here, *here.parents)]
temporary = tempfile.TemporaryDirectory()
with tarfile.open(next(place for place in places if place.is_file())) as archive:
    archive.extractall(temporary.name, filter="data")


def wanted(settings):
    """Whether these are the settings of that run."""
    asked = {"rare": "truck", "remaining": 0.02, "backbone": "cnn3", "seeds": 5}
    return asked.items() <= settings.items() and "mpt-x" in settings["methods"]


files = sorted(Path(temporary.name).glob("*/config.toml"))
runs = {file.parent: tomllib.loads(file.read_text()) for file in files}
run, settings = next((run, settings) for run, settings in runs.items() if wanted(settings))
rounds, depart_at = settings["rounds"], settings["depart_at"]
print(f"{len(runs)} runs; this one has {rounds} rounds, and the vehicle leaves after {depart_at}")

# %%
# Read F1
# -------
#
# ``metrics.csv`` has a line for each seed, evaluated round, method, readout and class. ``departed`` is 1 where the
# class has departed.

metrics = pd.read_csv(run / "metrics.csv")
trucks = metrics[metrics["class"] == "truck"]
f1 = trucks.pivot_table(index="round", columns="method", values="f1", aggfunc=["mean", "std"])
METHODS = ["frozen", "remaining-mean", "mpt", "mpt-x", "oracle-train"]
print(f1["mean"].loc[[15, 20, 40, 60, 80, 100], METHODS].round(3))

# %%
# Read the drift
# --------------
#
# ``diagnostics.csv`` has what methods note. Its lines without a method have the drift of the feature space since the
# departure: how far the prototypes have moved, as a Mahalanobis distance. ``drift`` is the mean over the classes that
# are still there, ``rare_drift`` is that of the departed class.

diagnostics = pd.read_csv(run / "diagnostics.csv")
without = diagnostics[diagnostics["method"].isna()]
drift = without.groupby("round")[["drift", "rare_drift"]].mean().dropna()
print(drift.loc[[15, 16, 20, 40, 60, 80, 100]].round(2))

# %%
# Draw both
# ---------

COLOURS = {
    "frozen": "#c04f63",
    "remaining-mean": "#7a4b2a",
    "mpt": "#0b57c4",
    "mpt-x": "#5a2ca0",
    "oracle-train": "#3d434c",
}

figure = plt.figure(figsize=(5.2, 5.4), dpi=140, layout="constrained")
above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
for method, colour in COLOURS.items():
    mean, deviation = f1["mean"][method].dropna(), f1["std"][method].dropna()
    dashes, thick = "--" if method == "oracle-train" else "-", 2.6 if method == "mpt" else 1.6
    above.plot(mean, dashes, color=colour, linewidth=thick, label=method)
    low, high = mean - deviation, mean + deviation
    above.fill_between(mean.index, low, high, color=colour, alpha=0.15, linewidth=0)
above.set(ylabel="F1 of truck", ylim=(-0.03, 0.8))
below.plot(drift.index, drift["drift"], color="#444444", label="the classes that stay")
below.plot(drift.index, drift["rare_drift"], "-.", color="#888888", label="the trucks")
below.set(xlabel="round", ylabel="drift\n(Mahalanobis\ndistance)", xlim=(1, rounds))
for axes in (above, below):
    axes.axvline(depart_at, color="0.6", linewidth=1, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
above.annotate("the vehicle leaves", (depart_at + 1.5, 0.3), color="0.35", fontsize=9)
above.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, frameon=False, fontsize=9)
below.legend(loc="upper center", bbox_to_anchor=(0.45, -0.35), ncols=2, frameon=False, fontsize=9)
plt.show()
temporary.cleanup()

# %%
# The picture shows the mean F1 of the departed class over five seeds, with one standard deviation to each side. Below,
# it shows how far the feature space has moved since the departure.
#
# Read on: :doc:`/reference/run-folder` says what each column is, and :doc:`/explanation/results` what was measured.
