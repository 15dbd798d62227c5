"""Arrays as bytes, for methods whose answers are not `ClassStatistics`: float32 where that holds them."""

from mpt.core.validation import Floats
from mpt.core.wire import Reader, Writer, fits_float32

_KIND = b"A"


def pack(*arrays: Floats) -> bytes:
    """The arrays as one message; as float64 where float32 could not hold one of them."""
    writer = Writer(_KIND, 0, "float32" if all(map(fits_float32, arrays)) else "float64")
    writer.numbers("I", len(arrays))
    for array in arrays:
        writer.numbers(f"I{array.ndim}I", array.ndim, *array.shape)
    for array in arrays:
        writer.reals(array, "answer")
    return writer.finish()


def unpack(message: bytes) -> list[Floats]:
    """What `pack` was given, rounded to float32 where that holds it."""
    reader = Reader(message, _KIND, 0)
    (count,) = reader.numbers("I")
    shapes = []
    for _ in range(count):
        (ndim,) = reader.numbers("I")
        shapes.append(reader.numbers(f"{ndim}I") if ndim else ())
    arrays = [reader.reals(*shape) for shape in shapes]
    reader.finish()
    return arrays
