"""Small datasets and real image files for the tests."""

import io
import json

import numpy as np

from mpt.data import Dataset, Split

CLASSES = ("bus", "car", "truck")


def make_dataset(per_class=4, size=8, channels=3, classes=CLASSES, seed=0):
    rng = np.random.default_rng(seed)

    def split(n):
        labels = np.tile(np.arange(len(classes)), n)
        return Split(rng.integers(0, 256, (len(labels), size, size, channels), dtype=np.uint8), labels)

    return Dataset("small", classes, split(per_class), split(2))


def smooth_image(c, i, size=(30, 30), grey=False):
    """An image whose mean colour says its class and number, and survives JPEG."""
    width, height = size
    image = np.full((height, width, 3), (40 + 60 * c, 30 + 20 * i, 128), dtype=np.uint8)
    image[height // 2 :] //= 2
    return image[:, :, 0] if grey else image


def encode(array, kind="PNG", **options):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(array).save(file, kind, **options)
    return file.getvalue()


def write_folder(root, classes=CLASSES, per_class=3, kind="PNG", size=lambda c, i: (30, 30), grey=False):
    suffix = {"PNG": "png", "JPEG": "jpg"}[kind]
    for which in ("train", "test"):
        for c, name in enumerate(classes):
            folder = root / which / name
            folder.mkdir(parents=True)
            for i in range(per_class):
                image = smooth_image(c, i, size(c, i), grey)
                (folder / f"{i}.{suffix}").write_bytes(encode(image, kind))
    return root


FEATURES = {
    "image": {"_type": "Image"},
    "label": {"names": list(CLASSES), "_type": "ClassLabel"},
    "model": {"dtype": "int64", "_type": "Value"},
}


def make_table(per_class=3, kind="JPEG", features=FEATURES, **columns):
    """A table in the layout of Hugging Face; `columns` replace or, when None, remove columns."""
    import pyarrow as pa

    images = [encode(smooth_image(c, i), kind) for c in range(3) for i in range(per_class)]
    labels = [c for c in range(3) for _ in range(per_class)]
    data = {
        "image": [{"bytes": b, "path": None} for b in images],
        "label": labels,
        "model": [10 * c + 5 for c in labels],
    } | columns
    table = pa.table({name: values for name, values in data.items() if values is not None})
    if features is None:
        return table
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def write_parquet(prefix, train=None, test=None):
    import pyarrow.parquet as pq

    pq.write_table(make_table() if train is None else train, f"{prefix}-train.parquet")
    pq.write_table(make_table(2) if test is None else test, f"{prefix}-test.parquet")
    return f"parquet:{prefix}"


def assert_one_sentence(raised):
    text = str(raised.value)
    assert "\n" not in text
    assert "should" in text or "pip install" in text
    assert len(text) < 600
