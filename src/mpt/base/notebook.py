"""Values as notebooks show them: a table, in plain HTML."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_SAFE = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """As `html.escape`, whose module takes a while to import.

    Example:
        >>> import html
        >>> escape("<'a' & \\"b\\">") == html.escape("<'a' & \\"b\\">")
        True
    """
    return text.translate(_SAFE)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts and numbers; the first of every row names it."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    body = ""
    for first, *others in rows:
        cells = "".join(f"<td>{escape(shown(one))}</td>" for one in others)
        body += f'<tr><th scope="row">{escape(shown(first))}</th>{cells}</tr>'
    top = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"


def shown(value: Any) -> str:
    """A number in four digits, an array by its shape and range, nothing as a dash.

    Example:
        >>> shown(0.123456), shown(np.arange(6.0).reshape(2, 3))
        ('0.1235', '2 x 3, from 0 to 5')
    """
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, np.ndarray):
        shape = " x ".join(map(str, value.shape))
        there = value[np.isfinite(value)]
        return f"{shape}, from {there.min():.4g} to {there.max():.4g}" if there.size else shape
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
