"""`python -m mpt.data.contact_sheet SPEC OUT.png`: a row of samples for every class of a dataset, to look at."""

import argparse
import sys
from pathlib import Path

import numpy as np

from mpt.data.dataset import Dataset, Images
from mpt.data.encoded import require_pillow
from mpt.data.errors import DataError
from mpt.data.registry import load
from mpt.data.request import DatasetSpec

_GAP = 2


def sheet(dataset: Dataset, columns: int = 12, zoom: int = 1, first: int = 0) -> Images:
    """(H, W, 3): the first `columns` test samples of each class, a row a class, each pixel `zoom` pixels wide.

    The class `first` has the first row; the others follow in their order.
    """
    images, labels = dataset.rgb().test.images, dataset.test.labels
    height, width, _ = dataset.image_shape
    step_y, step_x = height * zoom + _GAP, width * zoom + _GAP
    page = np.full((dataset.num_classes * step_y - _GAP, columns * step_x - _GAP, 3), 255, dtype=np.uint8)
    for row, c in enumerate(sorted(range(dataset.num_classes), key=lambda c: c != first)):
        for column, i in enumerate(np.flatnonzero(labels == c)[:columns]):
            tile = images[i].repeat(zoom, axis=0).repeat(zoom, axis=1)
            page[row * step_y : row * step_y + height * zoom, column * step_x : column * step_x + width * zoom] = tile
    return page


def main(arguments: list[str] | None = None) -> int:
    """Write the sheet; 2 with one sentence where that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m mpt.data.contact_sheet", description=__doc__)
    parser.add_argument("spec", help="a dataset, as for mpt.data.load")
    parser.add_argument("out", type=Path, help="a PNG file to write")
    parser.add_argument("--columns", type=int, default=12, help="samples of each class (12)")
    parser.add_argument("--zoom", type=int, default=1, help="enlarge each pixel to so many (1)")
    parser.add_argument("--colours", type=int, help="use no more than so many, up to 256, for a smaller file")
    parser.add_argument("--image-size", type=int, help="the images' side")
    parser.add_argument("--per-class", type=int, help="training samples of a class, where reading all takes long")
    options = parser.parse_args(arguments)
    try:
        pillow = require_pillow(DatasetSpec("contact_sheet"))
        dataset = load(options.spec, image_size=options.image_size, per_class=options.per_class)
        page = pillow.fromarray(sheet(dataset, options.columns, options.zoom))
        page = page.quantize(options.colours) if options.colours else page
        page.save(options.out, "PNG", optimize=True)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError:
        print(f"{options.out}: cannot be written, should be a PNG file in a folder that exists", file=sys.stderr)
        return 2
    print(f"{options.out}: {dataset!r}; rows from the top: {', '.join(dataset.classes)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
