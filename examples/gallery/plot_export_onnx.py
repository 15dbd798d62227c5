"""
Export a model to ONNX and use it
=================================

This example trains a federation on handwritten digits, exports the model with MPT's readout as one ONNX file, and runs
that file with onnxruntime. It needs the extra ``export`` and, beside it, onnxruntime and matplotlib.
"""

# %%
# Run a federation
# ----------------
#
# The vehicle that holds the eights leaves after round 4 of 8. A run that is given a folder keeps its last models
# there.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from PIL import Image

import mpt
from mpt.data import load

temporary = tempfile.TemporaryDirectory()
work = Path(temporary.name)
result = mpt.simulate(
    mpt.RunConfig(
        dataset="digits",
        rare="8",
        rounds=8,
        depart_at=4,
        epochs=2,
        batch_size=32,
        eval_every=4,
        methods=("mpt",),
    ),
    out=work / "run",
)
print(*sorted(path.name for path in result.folder.iterdir()))

# %%
# Export it
# ---------
#
# The file holds the backbone, the readout as its last linear layer, and the normalisation of the images.


def command(*arguments):
    """Run `mpt` in the temporary folder; what it prints."""
    line = [sys.executable, "-m", "mpt", *arguments]
    return subprocess.run(line, cwd=work, capture_output=True, text=True, check=True).stdout


print(command("export", "run", "--out", "model.onnx"))

# %%
# Use the file
# ------------
#
# It takes uint8 images (N, C, H, W), any number of them, and gives logits. The names of the classes are in its
# metadata. A vehicle needs onnxruntime for this, and neither MPT nor torch.

session = onnxruntime.InferenceSession(work / "model.onnx", providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
names = json.loads(about["class_names"])
print("classes:", ", ".join(names), "| departed:", ", ".join(json.loads(about["tracked"])))

test = load("digits").test
images = np.ascontiguousarray(test.images.transpose(0, 3, 1, 2))
(logits,) = session.run(["logits"], {"images": images})
predicted = logits.argmax(axis=1)

# %%
# Compare it with ``mpt predict``
# -------------------------------
#
# ``mpt predict`` reads image files and asks the run's own model. The program writes the test images as PNG files and
# compares the answers.

paths = []
for number, image in enumerate(test.images):
    paths.append(f"{number:03}.png")
    Image.fromarray(image[:, :, 0]).save(work / paths[-1])
answers = json.loads(command("predict", "run", *paths, "--json"))
same = np.mean([answer["name"] == names[c] for answer, c in zip(answers, predicted, strict=True)])
eights = test.labels == names.index("8")
print(f"the same class as mpt predict: {same:.1%} of {len(images)} test images")
right = predicted == test.labels
print(f"right: {right.mean():.1%} of all, {right[eights].mean():.1%} of the eights")

# %%
# Look at some answers
# --------------------
#
# The first two rows are eights. No vehicle has trained on them since round 4. The other two rows are other digits.


def spread(mask):
    """Twelve of them, from the first to the last."""
    return np.flatnonzero(mask)[np.linspace(0, mask.sum() - 1, 12).astype(int)]


chosen = np.concatenate([spread(eights), spread(~eights)])
figure, grid = plt.subplots(4, 6, figsize=(5.2, 4.4), dpi=140, layout="constrained")
for axes, number in zip(grid.flat, chosen, strict=True):
    axes.imshow(test.images[number, :, :, 0], cmap="gray_r")
    colour = "#0b57c4" if right[number] else "#c04f63"
    axes.set_title(names[predicted[number]], color=colour, fontsize=13, fontweight="bold", pad=2)
    axes.set_axis_off()
figure.suptitle("predicted by model.onnx: blue is right, red is wrong", fontsize=10)
plt.show()
temporary.cleanup()

# %%
# The picture shows test images with the class that the exported file gives them. The departed class is in the upper
# two rows.
#
# Read on: :doc:`/how-to/export` says which row of a run is exported, and how to export the model of a fleet.
