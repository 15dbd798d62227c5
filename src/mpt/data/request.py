"""A dataset spec taken apart: `parquet:cars?label=model` is the loader parquet, target cars, option label."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mpt.data.errors import DataError


@dataclass(frozen=True)
class DatasetSpec:
    """What a loader is asked for.

    Attributes:
        spec: the text as the user gave it, to begin messages with.
        target: what stands between the colon and the question mark: a path, a name; empty where there is none.
        options: what stands after the question mark, `a=1&b=2`.
        image_size: the side of the square images wanted, or None for the loader's own choice.
        seed: for what a loader draws.
        per_class: training samples of a class that are wanted at most, for loaders that need not read the others; None
            for all.
        say: takes a sentence for the user.
    """

    spec: str
    target: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    image_size: int | None = None
    seed: int = 0
    per_class: int | None = None
    say: Callable[[str], None] = logging.getLogger("mpt").warning

    @property
    def path(self) -> Path:
        """The target as a path, `~` expanded."""
        return Path(self.target).expanduser()

    def file(self, wanted: str) -> Path:
        """The path of a file that is there; `wanted` says what it should be."""
        if not self.path.is_file():
            raise self.error(f"{self._lacking('file')}, should be {wanted}")
        return self.path

    def folder(self, wanted: str) -> Path:
        """The path of a folder that is there."""
        if not self.path.is_dir():
            raise self.error(f"{self._lacking('folder')}, should be {wanted}")
        return self.path

    def _lacking(self, what: str) -> str:
        if not self.path.exists():
            return f"there is no {what} {self.path}"
        return f"{self.path} is a {'folder' if self.path.is_dir() else 'file'}"

    def error(self, what: str) -> DataError:
        """An error about this request."""
        return DataError(f"{self.spec}: {what}")

    def integer(self, option: str, default: int, *, least: int) -> int:
        """The value of an option that is an integer."""
        text = self.options.get(option, str(default))
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise self.error(f"{option} is {text!r}, should be an integer of at least {least}")
        return int(text)


def split_options(spec: str) -> tuple[str, dict[str, str]]:
    """`(head, options)` of `head?a=1&b=2`."""
    head, mark, tail = spec.partition("?")
    options: dict[str, str] = {}
    for part in tail.split("&") if mark else ():
        name, equals, value = part.partition("=")
        if not (name and equals and value) or name in options:
            raise DataError(f"{spec}: options are {tail!r}, should be like a=1&b=2, each name once")
        options[name] = value
    return head, options
