"""A vehicle's samples in a fresh process: decoded (`load_local`), and from the file kept of them (`load_local_cached`).

    python benchmarks/decoding.py [--images 200] [--image-size 64] [--repeats 3]

JPEGs of 1280 x 720, quality 85, drawn with seed 0. Each figure is that of one call in a process of its own that has
imported mpt.data, median of the repeats: seconds by the clock, and of the processor, which depend less on what else the
machine does. The first call of `load_local_cached` decodes and writes, the second reads. The check is what it costs to
see that nothing has changed; the operating system has the files' sizes and times in memory.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image, ImageDraw

from mpt.data.image_cache import known_by

WIDTH, HEIGHT, QUALITY = 1280, 720, 85
CLASSES = ("car", "truck")
FILES = (200, 20_000)
CALL = """
import sys, time
from pathlib import Path
from mpt.data import load_local, load_local_cached
spec, kept, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.perf_counter(), time.process_time()
held = load_local_cached(spec, path=Path(kept), image_size=size) if kept else load_local(spec, image_size=size)
print(time.perf_counter() - start[0], time.process_time() - start[1], held.train.images.sum())
"""


def picture(rng: np.random.Generator) -> Image.Image:
    """A street without noise: sky, road, and boxes, wheels and lines of many sizes."""
    image = Image.new("RGB", (WIDTH, HEIGHT), tuple(rng.integers(120, 220, 3).tolist()))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, HEIGHT // 2, WIDTH, HEIGHT), fill=tuple(rng.integers(60, 110, 3).tolist()))
    for _ in range(120):
        x, y = int(rng.integers(WIDTH)), int(rng.integers(HEIGHT))
        width, height = (int(n) for n in rng.integers(6, 160, 2))
        colour = tuple(rng.integers(0, 256, 3).tolist())
        draw.rectangle((x, y, x + width, y + height), fill=colour)
        draw.ellipse((x, y + height // 2, x + width // 2, y + height), fill=colour[::-1])
        draw.line((x, y, x + 2 * width, y - height), fill=colour[::-1], width=3)
    return image


def write_images(root: Path, count: int) -> int:
    """`count` JPEGs in train/; how many bytes they have."""
    rng, written = np.random.default_rng(0), 0
    for i in range(count):
        file = root / "train" / CLASSES[i % len(CLASSES)] / f"{i:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture(rng).save(file, quality=QUALITY)
        written += file.stat().st_size
    return written


def call(spec: str, kept: Path | None, size: int) -> tuple[float, float, str]:
    """Seconds in a fresh process, those of the processor, the sum of all pixels; without `kept`, of `load_local`."""
    command = [sys.executable, "-c", CALL, spec, str(kept or ""), str(size)]
    wall, processor, pixels = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(wall), float(processor), pixels


def decoding(folder: Path, images: int, size: int, repeats: int) -> None:
    """Print the table."""
    kept, spec = folder / "v1.samples", f"folder:{folder / 'set'}"
    there = write_images(folder / "set", images)
    took: dict[str, list[tuple[float, float]]] = {
        "load_local": [],
        "load_local_cached, first": [],
        "load_local_cached, second": [],
    }
    sums = set()
    for _ in range(repeats):
        kept.unlink(missing_ok=True)
        for name, path in zip(took, (None, kept, kept), strict=True):
            wall, processor, pixels = call(spec, path, size)
            took[name].append((wall, processor))
            sums.add(pixels)
    if len(sums) > 1:
        raise SystemExit(f"decoding: the pixels' sums are {', '.join(sorted(sums))}, should be the same each time")
    print(f"{images:,} JPEGs of {WIDTH} x {HEIGHT}, {there / 1e6:.1f} MB, at {size} x {size}; ", end="")
    print(f"the kept file has {kept.stat().st_size / 1e6:.2f} MB\n")
    print("                        clock   processor")
    for name, seconds in took.items():
        wall, processor = (statistics.median(each) for each in zip(*seconds, strict=True))
        print(f"{name:18s} {wall:8.3f} s {processor:9.3f} s", flush=True)


def checking(folder: Path, count: int, repeats: int) -> None:
    """Print what the check of so many image files takes."""
    root = folder / f"set-{count}"
    for i in range(count):
        file = root / "train" / CLASSES[i % len(CLASSES)] / f"{i:05d}.jpg"
        if i < len(CLASSES):
            file.parent.mkdir(parents=True)
        file.touch()
    took = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        known_by(f"folder:{root}")
        took.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, processor = (statistics.median(each) for each in zip(*took, strict=True))
    print(f"{f'check of {count:,} files':22s} {1e3 * wall:6.1f} ms {1e3 * processor:8.1f} ms", flush=True)


def main() -> None:
    """Print the table and what the check takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("images", 200), ("image-size", 64), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        decoding(Path(folder), args.images, args.image_size, args.repeats)
        print()
        for count in FILES:
            checking(Path(folder), count, args.repeats)


if __name__ == "__main__":
    main()
