"""`samples.png` as the page has it."""

import base64
import importlib
import io
from pathlib import Path

from mpt.runs.errors import RunError

LARGE_IMAGE, LARGEST_IMAGE = 60_000, 2_000_000
_PNG = b"\x89PNG\r\n\x1a\n"


def image_uri(path: Path) -> str | None:
    """A data URI, of fewer colours where the image is large; None for one that would make the page too large."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}), should be a PNG image") from None
    if not data.startswith(_PNG) or b"IEND" not in data[-12:]:
        raise RunError(f"{path}: is no whole PNG image, should be one or not be there")
    if len(data) > LARGE_IMAGE:
        data = _of_fewer_colours(data)
    return None if len(data) > LARGEST_IMAGE else "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def _of_fewer_colours(data: bytes) -> bytes:
    """The image with 256 colours where Pillow is there and that helps, or else as it is."""
    try:
        pillow = importlib.import_module("PIL.Image")
        smaller = io.BytesIO()
        pillow.open(io.BytesIO(data)).convert("RGB").quantize(256).save(smaller, "PNG", optimize=True)
    except (ImportError, OSError, ValueError):
        return data
    return min(data, smaller.getvalue(), key=len)
