"""Whether what runs on a vehicle could run there: a method's answers, away from the server's memory."""

import copy
import functools
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from mpt.core.value import Value
from mpt.methods.method import Cost, Now
from mpt.protocol.local import Answer


class OnVehicleError(RuntimeError):
    """An answer uses what a vehicle does not have."""


def apart(answer: Answer, now: Now) -> Answer:
    """The answer with copies of all that it closes over, as if it had been sent to a vehicle with the method's code.

    Of the round it has what the vehicle knows: its number, the class, the head. What it changes stays on the vehicle.
    """
    servers = {name: _refused(name) for name in ("report", "ask", "reference")}
    here = replace(now, **servers, cost=Cost(), notes=_Refused(), rng=copy.deepcopy(now.rng))
    made: Answer = _copied(answer, {id(now): here})
    return made


def carried(answer: Answer, now: Now) -> Iterator[str]:
    """The names of arrays and bytes of the server's that an answer closes over: no message has brought them."""
    function: Any = answer
    while isinstance(function, functools.partial):
        given = {**{f"argument {i}": value for i, value in enumerate(function.args)}, **function.keywords}
        yield from (name for name, value in given.items() if _is_data(value, now))
        function = function.func
    if isinstance(function, types.FunctionType):
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        yield from (name for name, cell in zip(names, cells, strict=True) if _is_data(_content(cell), now))
        yield from ("a default" for value in function.__defaults__ or () if _is_data(value, now))


def _refused(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OnVehicleError(f"calls now.{name}, which is the server's")

    return refuse


class _Refused(dict[str, float]):
    """Notes, where none can be made or read."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise OnVehicleError("calls now.notes, which is the server's")

    __getitem__ = __setitem__ = get = update = setdefault = _refuse


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy`, of functions too."""
    if id(value) in memo or isinstance(value, types.ModuleType):
        return memo.get(id(value), value)
    if isinstance(value, functools.partial):
        given = {name: _copied(part, memo) for name, part in value.keywords.items()}
        return functools.partial(_copied(value.func, memo), *(_copied(part, memo) for part in value.args), **given)
    if not isinstance(value, types.FunctionType):
        return copy.deepcopy(value, memo)
    cells = tuple(types.CellType() for _ in value.__closure__ or ())
    defaults = copy.deepcopy(value.__defaults__, memo)
    made = types.FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
    made.__kwdefaults__ = copy.deepcopy(value.__kwdefaults__, memo)
    memo[id(value)] = made
    for cell, original in zip(cells, value.__closure__ or (), strict=True):
        cell.cell_contents = _copied(_content(original), memo)
    return made


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that nothing was given yet
        return None


def _is_data(value: Any, now: Now) -> bool:
    """Whether this is, or has in it, what a message would have to bring."""
    if value is now:
        return False
    if isinstance(value, np.ndarray | bytes | bytearray | Value):
        return np.size(value) > 1 if isinstance(value, np.ndarray) else True
    if isinstance(value, dict):
        return any(_is_data(part, now) for part in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_is_data(part, now) for part in value)
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "track"):
        return any(_is_data(getattr(value, field.name), now) for field in fields(value))
    return False
