"""
The data that you have
======================

A folder of images without a split, a table of paths and labels, and NumPy arrays in a file: each is a dataset as it
is. The notebook needs the extra ``data``.
"""

# %%
# A folder for each class
# -----------------------
#
# Your images are there already; here a few digits are written as PNG files, in one folder for each class, without
# ``train`` and ``test``. The last fifth of every class is for the test then, and a sentence says so.

# sphinx_gallery_capture_repr = ("_repr_html_", "__repr__")

import csv
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import mpt

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name, "numbers")
NAMES = ("zero", "one", "two", "three", "four")
digits = load_digits()
images = np.kron(digits.images * 15.9, np.ones((4, 4))).astype(np.uint8)  # 32 x 32 pixels
rows = []
for number, (image, label) in enumerate(zip(images, digits.target, strict=True)):
    if label < len(NAMES) and number < 600:
        place = folder / NAMES[label] / f"{number:04}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place)
        rows.append((place.relative_to(folder), NAMES[label]))

mpt.data.load(f"folder:{folder}")

# %%
# A table
# -------
#
# A CSV file with an image's path and label in every row. Paths are beside the table.

with open(folder / "labels.csv", "w", newline="") as file:
    csv.writer(file).writerows([("path", "label"), *rows])

mpt.data.load(f"csv:{folder / 'labels.csv'}")

# %%
# Arrays
# ------
#
# A NumPy file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``, grey or in colour.

pixels = np.stack([np.asarray(Image.open(folder / path)) for path, _ in rows])
labels = np.array([NAMES.index(name) for _, name in rows])
test = np.arange(len(labels)) % 5 == 0
np.savez(folder / "all.npz", x_train=pixels[~test], y_train=labels[~test], x_test=pixels[test], y_test=labels[test])

mpt.data.load(f"npz:{folder / 'all.npz'}")

# %%
# Run on any of them
# ------------------
#
# There are as many vehicles as classes. The one with the fours leaves after round 2.

result = mpt.simulate(
    mpt.RunConfig(
        dataset=f"folder:{folder}",
        rare="four",
        rounds=4,
        depart_at=2,
        epochs=1,
        batch_size=16,
        eval_every=1,
        methods=("frozen", "mpt", "mpt-x"),
    )
)
result

# %%
# Read on: :doc:`/how-to/use-your-own-images`, and :doc:`/reference/datasets` has every kind.
