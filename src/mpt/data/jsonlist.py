"""The values of a very large JSON list, one at a time."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")


def json_list(path: Path) -> Iterator[Any]:
    """What the list in a file holds: objects or lists; `ValueError` where it is no list or not whole.

    No more than about a megabyte of text is in memory, or twice the longest value.
    """
    decode = json.JSONDecoder().raw_decode
    with path.open(encoding="utf-8-sig") as file:
        text, at, chunk = "", 0, CHUNK

        def read_on() -> None:
            nonlocal text, at, chunk
            added = file.read(chunk)
            if not added:
                raise ValueError("it ends early or has a value that is no JSON")
            text, at, chunk = text[at:] + added, 0, 2 * chunk

        def sign() -> str:
            """The next character that is no white space."""
            nonlocal at
            while True:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
                if at < len(text):
                    return text[at]
                read_on()

        if sign() != "[":
            raise ValueError("it is no list")
        at += 1
        while sign() != "]":
            try:
                value, at = decode(text, at)
            except ValueError:
                read_on()
                continue
            chunk = CHUNK
            yield value
            if sign() == ",":
                at += 1
            elif text[at] != "]":
                raise ValueError(f"{text[at]!r} stands between two values")
