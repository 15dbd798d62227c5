"""What the core's dataclasses have in common: they are values."""

from __future__ import annotations

import dataclasses
from typing import Any

from mpt.base.notebook import table
from mpt.core.validation import same


class Value:
    """A frozen dataclass of arrays: equal by its fields, and rebuilt from them when copied or unpickled.

    Rebuilding checks the fields again, keeps the arrays read-only, and leaves behind what was computed and cached.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same(getattr(self, name), getattr(other, name)) for name in field_names(self))

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        """For notebooks: its fields, arrays by their shape and range."""
        rows = [(name, getattr(self, name)) for name in field_names(self)]
        return table(repr(self).strip("<>"), (), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), {name: getattr(self, name) for name in field_names(self)})


def field_names(value: Any) -> list[str]:
    """The names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(value)]


def _rebuild(kind: type[Any], values: dict[str, Any]) -> Any:
    return kind(**values)
