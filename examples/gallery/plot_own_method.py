"""
Score a method of your own on a recorded run
============================================

This example writes a method in twenty lines, checks it, and scores it on a recorded run of the paper's size, beside
the methods that come with MPT. It needs the extra ``data``, matplotlib and a clone of the repository; it needs no GPU,
no images and no training.
"""

# %%
# Write it
# --------
#
# The prototype of a class is the mean of its features. A method says where the prototype of a departed class is now.
# ``depart`` is called in the last round with the departing vehicle and says what the server keeps. ``track`` is called
# in later rounds and gives the prototype. This one moves the stored prototype as the nearest classes have moved. Then
# it pulls it towards the mean of the remaining samples: the moved prototype counts for ``worth`` samples, the measured
# mean for as many as remain.

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

METHOD = """
import numpy as np


class Neighbours:
    name, training, needs_departure = "neighbours", "held-out", True

    def __init__(self, nearest=3, worth=10):
        self.nearest, self.worth = nearest, worth

    def depart(self, context):
        staying = context.report(context.request(scatter=False), staying=True)
        prototype, classes = context.prototype(), staying.reference_classes
        gaps = np.linalg.norm(staying.means[classes] - prototype, axis=1)
        near = classes[np.argsort(gaps)[: self.nearest]]
        return prototype, near, staying.means[near]

    def track(self, state, context):
        prototype, near, then = state
        now = context.report(context.request(scatter=False))
        moved = prototype + (now.means[near] - then).mean(axis=0)
        count = now.counts[context.departed]
        if count == 0:
            return state, moved
        measured = now.means[context.departed]
        return state, (self.worth * moved + count * measured) / (self.worth + count)
"""

# %%
# Check it
# --------
#
# ``mpt check-method`` runs the method on a small made-up federation and looks for mistakes. One such mistake is an
# answer with data of single samples.


temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)


def command(*arguments):
    """Run `mpt` in the temporary folder, and show the command and what it prints."""
    line = [sys.executable, "-m", "mpt", *arguments]
    print("$", shlex.join(["mpt", *arguments]))
    print(subprocess.run(line, cwd=work, capture_output=True, text=True, check=True).stdout)


(work / "neighbours.py").write_text(METHOD)
command("check-method", "neighbours.py:Neighbours")

# %%
# Score it
# --------
#
# ``results/record-ship`` in the repository is the record of a run at the paper's scale: CIFAR-10, a vehicle leaves
# with the ships after round 15 of 100. The record has the features of four rounds. ``mpt replay`` scores methods on it
# by the code of ``mpt run``. It writes into the run's folder, so this example takes a copy. The method has arguments,
# so it can have two rows.

here = Path.cwd()
places = [folder / "results" / "record-ship" for folder in (here, *here.parents)]
record = next(place for place in places if place.is_dir())
shutil.copytree(record, work / "ship", ignore=shutil.ignore_patterns("replay", "report.html"))

own = ("neighbours.py:Neighbours", "neighbours.py:Neighbours(nearest=1)")
command("replay", "ship", "--methods", ",".join(own))

# %%
# Compare it
# ----------
#
# The rows of the run are in ``metrics.csv``, those of the replay in ``replay/metrics.csv``. Both have the same
# columns.

files = [work / "ship" / "metrics.csv", work / "ship" / "replay" / "metrics.csv"]
both = pd.concat([pd.read_csv(file) for file in files])
after = both[(both["class"] == "ship") & (both["round"] > 15)]
f1 = after.groupby("method")["f1"].mean()

COLOURS = {
    "frozen": "#c04f63",
    "mean-shift": "#a0522d",
    "sdc": "#7a7a12",
    "remaining-mean": "#7a4b2a",
    "mpt-lite": "#4c97ee",
    "mpt": "#0b57c4",
    "mpt-x": "#5a2ca0",
    "oracle-train": "#3d434c",
}
OWN = {"neighbours": "#6a3d9a", "neighbours(nearest=1)": "#a3420f"}
colours = COLOURS | OWN
shown = f1[list(colours)].sort_values()

figure, axes = plt.subplots(figsize=(5.2, 4.2), dpi=140, layout="constrained")
bars = axes.barh(shown.index, shown, color=[colours[name] for name in shown.index])
axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
for name, bar, label in zip(shown.index, bars, axes.get_yticklabels(), strict=True):
    if name in OWN:
        bar.set(hatch="//", edgecolor="white")
        label.set_fontweight("bold")
axes.set(xlabel="mean F1 of ship after the departure", xlim=(0, 0.8))
axes.spines[["top", "right"]].set_visible(False)
plt.show()
temporary.cleanup()

# %%
# The picture shows the mean F1 of the departed class over the three recorded rounds after the departure. The bars of
# your own method are hatched. ``oracle-train`` knows what no method may know, and is there to compare with. A method
# that is changed until it does well here is tuned on this record. So choose on some classes, and report on others.
#
# Read on: :doc:`/how-to/add-a-method` has the attributes of ``context`` and takes the method to a fleet, and
# :doc:`/how-to/compare-and-tune` has paired tests over seeds.
