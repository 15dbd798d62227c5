"""Settings: a dataclass field that knows what it means and what it may be.

    @dataclass(frozen=True, kw_only=True)
    class TrainingSettings:
        lr: float = setting(0.01, "learning rate of SGD", above=0)

        def __post_init__(self) -> None:
            check(self, LearningError)

Another class that has the same setting says `lr: float = like(TrainingSettings, "lr")`. So a default, a bound and a
sentence stand once, and the command line, TOML, Python and Flower's configuration read the same ones.
"""

import json
import math
import numbers
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from mpt.base.errors import ConfigError, MptError
from mpt.base.extensions import split
from mpt.base.text import did_you_mean, listed

_KEY = "setting"
KINDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("least", "at least", operator.ge),
    ("above", "above", operator.gt),
    ("most", "at most", operator.le),
    ("below", "below", operator.lt),
)


@dataclass(frozen=True)
class Setting:
    """What a field means and may be.

    Attributes:
        about: what it means, in a line.
        least, above, most, below: bounds of a number.
        choices: of a text.
        should: what it should be where bounds and choices do not say.
        fits: whether a value is that.
    """

    about: str
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    should: str = ""
    fits: Callable[[Any], bool] | None = None

    @property
    def expected(self) -> str:
        """What it should be; empty where its kind says all."""
        if self.should or self.choices:
            return self.should or listed(self.choices, "or")
        bounds = [f"{words} {getattr(self, name):g}" for name, words, _ in _BOUNDS if getattr(self, name) is not None]
        return listed(bounds) if bounds else ""

    def wrong(self, value: Any) -> str:
        """What a value of the right kind should be instead; empty where it is that."""
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        for name, words, holds in _BOUNDS:
            bound = getattr(self, name)
            if bound is not None and not holds(value, bound):
                return self.should or f"{words} {bound:g}"
        if (self.choices and value not in self.choices) or (self.fits is not None and not self.fits(value)):
            return self.expected
        return ""


def setting(default: Any, about: str, **rule: Any) -> Any:
    """A field with its default, what it means, and what it may be (the attributes of `Setting`)."""
    return field(default=default, metadata={_KEY: Setting(about, **rule)})


def like(owner: type, name: str, default: Any = MISSING, **changes: Any) -> Any:
    """The same setting as another class's, with another default or another rule where they are given."""
    theirs = next(f for f in fields(owner) if f.name == name)
    rule = replace(theirs.metadata[_KEY], **changes)
    return field(default=theirs.default if default is MISSING else default, metadata={_KEY: rule})


def rules_of(owner: type) -> dict[str, Setting]:
    """The settings of a class, by name, in their order."""
    return {f.name: f.metadata[_KEY] for f in fields(owner) if _KEY in f.metadata}


def default_of(owner: type, name: str) -> Any:
    """What a setting is where nobody says."""
    return next(f.default for f in fields(owner) if f.name == name)


@cache
def kinds_of(owner: type) -> dict[str, tuple[Any, bool]]:
    """Of every setting its kind, and whether it may be None. A kind is str, int, float, bool or tuple."""
    hints, found = get_type_hints(owner), {}
    for name in rules_of(owner):
        parts = get_args(hints[name]) if get_origin(hints[name]) in (Union, types.UnionType) else (hints[name],)
        kind = next(part for part in parts if part is not type(None))
        found[name] = (str if get_origin(kind) is Literal else get_origin(kind) or kind, type(None) in parts)
    return found


def coerced(owner: type, name: str, value: Any) -> Any:
    """A value as the setting's kind has it: whole numbers are numbers, texts with commas are lists."""
    kind, _ = kinds_of(owner)[name]
    if kind is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if kind is tuple:
        return split(value) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    return value


def problem(owner: type, name: str, value: Any) -> str:
    """What a value should be instead, for a sentence; empty where nothing is wrong with it."""
    rule, (kind, may_be_none) = rules_of(owner)[name], kinds_of(owner)[name]
    if value is None and may_be_none:
        return ""
    if kind is tuple:
        return _problem_of_list(rule, value)
    if type(value) is not kind:
        return KINDS[kind]
    return rule.wrong(value)


def _problem_of_list(rule: Setting, value: Any) -> str:
    if not isinstance(value, tuple) or not all(isinstance(one, str) for one in value):
        return "a list of texts"
    return next((wrong for one in value if (wrong := rule.wrong(one))), "")


def check(settings: Any, error: type[MptError] = ConfigError) -> None:
    """In `__post_init__`: values are turned into their kinds, and the first that is wrong is said."""
    owner = type(settings)
    for name in rules_of(owner):
        given = getattr(settings, name)
        value = coerced(owner, name, given)
        should = problem(owner, name, value)
        if should:
            raise error(f"{name}: {_first_wrong(owner, name, value, given)!r}, should be {should}")
        object.__setattr__(settings, name, value)


def _first_wrong(owner: type, name: str, value: Any, given: Any) -> Any:
    if isinstance(value, tuple):
        return next((one for one in value if rules_of(owner)[name].wrong(one)), given)
    return given


def unknown(owner: type, name: str) -> str:
    """What to say of a name that is no setting."""
    known = rules_of(owner)
    return f"{name}: there is no such setting, {did_you_mean(name, known, 'should be one of ' + ', '.join(known))}"


def to_toml(settings: Any, values: Mapping[str, Any] | None = None) -> str:
    """Settings as TOML; what is not set is left out."""
    chosen = {f.name: getattr(settings, f.name) for f in fields(settings)} if values is None else values
    return "".join(f"{key} = {_toml(value)}\n" for key, value in chosen.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings have JSON's escapes
    return repr(value)
