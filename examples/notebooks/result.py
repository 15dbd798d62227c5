"""
A run's result
==============

A federation runs in the notebook, a vehicle leaves it, and the result shows itself. The notebook needs the extra
``data`` and matplotlib.
"""

# %%
# Run it
# ------
#
# Five vehicles train on scikit-learn's handwritten digits. The one that holds the eights leaves after round 3. There
# are two seeds, so that methods can be compared. In a notebook a bar shows how far it is.

# sphinx_gallery_capture_repr = ("_repr_html_", "__repr__")

import mpt

config = mpt.RunConfig(
    dataset="digits",
    rare="8",
    per_class=40,
    vehicles=5,
    rounds=6,
    depart_at=3,
    epochs=1,
    eval_every=1,
    seeds=2,
    methods=("frozen", "mpt", "mpt-x"),
)
result = mpt.simulate(config)

# %%
# Look at it
# ----------
#
# At the end of a cell, the result is its summary and F1 by round.

result

# %%
# Draw it
# -------
#
# ``plot_f1`` gives the axes, to change what you like. A band is a standard deviation over the seeds.

axes = result.plot_f1()

# %%
# Compare two methods
# -------------------
#
# Paired over the seeds, with an interval. Two seeds show little; ``seeds=5`` shows more.

result.compare("mpt-x", "mpt")

# %%
# Take the figures
# ----------------
#
# ``to_pandas`` gives the run's tables as data frames: ``metrics``, ``diagnostics`` and ``confusion``.

metrics = result.to_pandas()
eights = metrics[metrics["class"] == "8"]
eights.pivot_table(index="round", columns="method", values="f1").round(3)

# %%
# Read on: :doc:`/how-to/simulate` has the settings, and :doc:`/how-to/compare-and-tune` says what so many seeds can
# show.
