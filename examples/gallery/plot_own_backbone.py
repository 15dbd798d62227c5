"""
Use a backbone of your own
==========================

This example writes a small network to a file, names the file where a built-in backbone would stand, and runs a
federation on handwritten digits with it, in two widths. It needs the extra ``data`` and matplotlib.
"""

# %%
# Write it
# --------
#
# A backbone is a function of the number of channels and the image size. It gives a torch module that makes features
# (N, ``dim``) of images (N, C, H, W), and ``dim`` is an attribute. MPT adds the last layer. Further arguments are
# yours.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import mpt

BACKBONE = """
from torch import nn


def layer(channels, filters):
    convolution = nn.Conv2d(channels, filters, kernel_size=3, stride=2, padding=1)
    return nn.Sequential(convolution, nn.GroupNorm(4, filters), nn.ReLU())


def tiny(in_channels, image_size, width=16):
    made = nn.Sequential(
        layer(in_channels, width),
        layer(width, 2 * width),
        layer(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    made.dim = 2 * width
    return made
"""

# %%
# Run it
# ------
#
# The file's path and the function's name stand where a built-in name would stand, with arguments in parentheses. On
# the command line this is ``mpt run --backbone 'tiny.py:tiny(width=16)'``. The vehicle that holds the eights leaves
# after round 5.

temporary = tempfile.TemporaryDirectory()
file = Path(temporary.name, "tiny.py")
file.write_text(BACKBONE)

WIDTHS = (16, 32)
METHODS = ("frozen", "mpt", "mpt-x", "oracle-train")

f1 = {}
for width in WIDTHS:
    result = mpt.simulate(
        mpt.RunConfig(
            dataset="digits",
            rare="8",
            backbone=f"{file}:tiny(width={width})",
            methods=METHODS,
            rounds=14,
            depart_at=5,
            epochs=3,
            batch_size=16,
            lr=0.02,
            eval_every=1,
        )
    )
    metrics = result.metrics
    f1[width] = metrics[metrics["class"] == "8"].pivot(index="round", columns="method", values="f1")
    print(f"width {width}")
    print(f1[width].loc[[5, 6, 10, 14], list(METHODS)].round(2))

# %%
# Draw both
# ---------

COLOURS = {"frozen": "#c04f63", "mpt": "#0b57c4", "mpt-x": "#5a2ca0", "oracle-train": "#3d434c"}

figure, panels = plt.subplots(2, 1, figsize=(5.2, 5.2), dpi=140, layout="constrained", sharex=True)
for axes, width in zip(panels, WIDTHS, strict=True):
    for method, colour in COLOURS.items():
        dashes = "--" if method == "oracle-train" else "-"
        thick = 2.6 if method == "mpt" else 1.6
        label = method if width == WIDTHS[0] else None
        axes.plot(f1[width][method], dashes, color=colour, linewidth=thick, label=label)
    axes.axvline(5, color="0.6", linewidth=1, linestyle=":")
    axes.set_title(f"tiny(width={width}): {2 * width} features", fontsize=10, loc="left")
    axes.set(ylabel="F1 of the 8", ylim=(-0.03, 1.03), xlim=(1, 14))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].annotate("the vehicle leaves", (6.3, 0.2), color="0.35", fontsize=9)
panels[1].set_xlabel("round")
figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
plt.show()
temporary.cleanup()

# %%
# The picture shows the F1 of the departed class by round, above with the narrow network and below with the wide one.
# ``frozen`` keeps the class's mean feature of the departure. ``mpt`` and ``mpt-x`` reconstruct it in every round.
# ``oracle-train`` uses the departed data, which no server has. It is there to compare with. The runs have one seed.
#
# Read on: :doc:`/how-to/extend` has the same for losses, partitions, readouts, datasets and trainings, and begins with
# weights from a file.
