"""
Train on a folder of your own images
====================================

This example draws six kinds of traffic signs, writes them to a folder as PNG files, and trains a federation on that
folder. After round 6 the vehicle that holds the give-way signs leaves. The example needs the extra ``data`` and
matplotlib.
"""

# %%
# Draw the images
# ---------------
#
# Your own images come from a camera; here they are drawn. A sign is a shape with a face and a border, at a random
# place, in front of random rectangles, in random light, with noise.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import mpt
from mpt.data import load

SIGNS = {  # corners (0 is a circle), rotation in degrees, face, border
    "give way": (3, 180, "white", "crimson"),
    "warning": (3, 0, "gold", "black"),
    "no entry": (0, 0, "crimson", "white"),
    "speed limit": (0, 0, "white", "crimson"),
    "stop": (8, 0, "crimson", "white"),
    "priority": (4, 45, "gold", "white"),
}


def draw(sign, rng):
    """One image of 32 x 32 pixels."""
    corners, rotation, face, border = SIGNS[sign]
    image = Image.new("RGB", (64, 64), tuple(rng.integers(60, 190, 3).tolist()))
    pen = ImageDraw.Draw(image)
    for left, top, width, height in rng.integers(0, 64, (6, 4)).tolist():
        colour = tuple(rng.integers(30, 230, 3).tolist())
        pen.rectangle((left, top, left + width // 2, top + height // 2), fill=colour)
    (x, y), size, tilt = rng.uniform(22, 42, 2), rng.uniform(12, 24), rng.uniform(-15, 15)
    for radius, colour in ((size, border), (0.72 * size, face)):
        if corners:
            pen.regular_polygon((x, y, radius), corners, rotation + tilt, fill=colour)
        else:
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
    light, noise = rng.uniform(0.4, 1.1), rng.normal(0, 30, (32, 32, 3))
    pixels = light * np.asarray(image.resize((32, 32)), float) + noise
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


# %%
# Write them as MPT reads them
# ----------------------------
#
# The folder has ``train`` and ``test``. Both have one folder for each class, and the images are in there. JPEG files
# work as well as PNG files, and images may have any size.

temporary = tempfile.TemporaryDirectory()
folder, rng = Path(temporary.name, "signs"), np.random.default_rng(0)
for split, count in (("train", 120), ("test", 40)):
    for sign in SIGNS:
        place = folder / split / sign
        place.mkdir(parents=True)
        for number in range(count):
            draw(sign, rng).save(place / f"{number:03}.png")

print(load(f"folder:{folder}"))

# %%
# Run the federation
# ------------------
#
# There are as many vehicles as classes. One vehicle holds the give-way signs and leaves after round 6. Two of every
# hundred give-way signs are on other vehicles and remain. On the command line this is ``mpt run --dataset folder:signs
# --rare "give way"`` with the same settings.

METHODS = ("fedavg", "frozen", "remaining-mean", "mpt", "mpt-x", "oracle-train")

result = mpt.simulate(
    mpt.RunConfig(
        dataset=f"folder:{folder}",
        rare="give way",
        rounds=16,
        depart_at=6,
        epochs=3,
        batch_size=32,
        eval_every=1,
        methods=METHODS,
    )
)
metrics = result.metrics
f1 = metrics[metrics["class"] == "give way"].pivot(index="round", columns="method", values="f1")
print(f1.loc[[6, 7, 11, 16], list(METHODS)].round(2))

# %%
# Draw each row
# -------------
#
# The prototype of a class is the mean of its features. A row of the run is one way to recognise the class that has
# left:
#
# - ``fedavg`` is the model's own last layer, trained as always.
# - ``frozen`` keeps the prototype that the class had at the departure.
# - ``remaining-mean`` is the mean of the signs that the other vehicles still have.
# - ``mpt`` and ``mpt-x`` reconstruct the prototype in every round.
# - ``oracle-train`` is the mean of all give-way signs, also of those that have left. No server has it. It is there to
#   compare with.

COLOURS = {
    "fedavg": "#c8500a",
    "frozen": "#c04f63",
    "remaining-mean": "#7a4b2a",
    "mpt": "#0b57c4",
    "mpt-x": "#5a2ca0",
    "oracle-train": "#3d434c",
}

figure = plt.figure(figsize=(5.2, 4.9), dpi=140, layout="constrained")
above, below = figure.subplots(2, 1, height_ratios=(1, 2.8))
gap, strip, names = np.full((32, 4, 3), 255, np.uint8), [], []
for sign in SIGNS:
    strip += [gap, np.asarray(Image.open(folder / "test" / sign / "000.png"))]
    names.append(sign.replace(" ", "\n"))
above.imshow(np.hstack(strip))
above.set_xticks(36 * np.arange(len(SIGNS)) + 20, names, fontsize=9)
above.set_yticks([])
above.tick_params(length=0)
above.spines[:].set_visible(False)

for method, colour in COLOURS.items():
    dashes, thick = "--" if method == "oracle-train" else "-", 2.6 if method == "mpt" else 1.6
    below.plot(f1[method], dashes, color=colour, linewidth=thick, label=method)
below.axvline(6, color="0.6", linewidth=1, linestyle=":")
below.annotate("the vehicle leaves", (6.2, 1.05), color="0.35", fontsize=9, annotation_clip=False)
below.set(xlabel="round", ylabel='F1 of "give way"', ylim=(-0.03, 1.03), xlim=(1, 16))
below.spines[["top", "right"]].set_visible(False)
figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
plt.show()
temporary.cleanup()

# %%
# The picture shows one image of each class, and below them how well each row recognises the class that has left, round
# by round. It is one seed of small drawn images: it shows how to do it, and does not compare methods.
#
# Read on: :doc:`/how-to/use-your-own-images` has other ways to bring images, and :doc:`/how-to/simulate` has the
# settings.
