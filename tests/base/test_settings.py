"""A setting stands once: its default, what it means, what it may be."""

import tomllib
from dataclasses import dataclass
from typing import Literal

import pytest

from mpt.base.errors import ConfigError, MptError
from mpt.base.settings import check, like, rules_of, setting, to_toml


class OtherError(MptError):
    pass


@dataclass(frozen=True, kw_only=True)
class Engine:
    power: float = setting(1.5, "of the engine", above=0, most=10)
    gears: int = setting(5, "of the box", least=1)
    fuel: str = setting("diesel", "in the tank", choices=("diesel", "petrol"))
    names: tuple[str, ...] = setting(("a",), "of the parts")
    limit: int | None = setting(None, "of the speed; default: none", least=1, below=300)
    turbo: bool = setting(False, "whether it has one")
    mode: Literal["slow", "fast"] = setting("slow", "how it goes", choices=("slow", "fast"))
    plate: str = setting("", "as it is", should="three letters", fits=lambda v: v == "" or len(v) == 3)

    def __post_init__(self):
        check(self, OtherError)


@dataclass(frozen=True, kw_only=True)
class Car:
    power: float = like(Engine, "power")
    gears: int = like(Engine, "gears", 6, about="of this car's box")

    def __post_init__(self):
        check(self)


def test_values_are_turned_into_their_kinds():
    made = Engine(power=2, names="a, b(c=1, d=2)", limit=None)
    assert (made.power, type(made.power), made.names) == (2.0, float, ("a", "b(c=1, d=2)"))
    assert Engine(names=["x", "y"]).names == ("x", "y")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"power": 0}, "power: 0, should be above 0"),
        ({"power": 11.0}, "power: 11.0, should be at most 10"),
        ({"power": float("nan")}, "power: nan, should be a finite number"),
        ({"power": "2"}, "power: '2', should be a number"),
        ({"power": True}, "power: True, should be a number"),
        ({"gears": 2.5}, "gears: 2.5, should be a whole number"),
        ({"gears": 0}, "gears: 0, should be at least 1"),
        ({"gears": None}, "gears: None, should be a whole number"),
        ({"fuel": "tea"}, "fuel: 'tea', should be diesel or petrol"),
        ({"names": 3}, "names: 3, should be a list of texts"),
        ({"names": ("a", 3)}, "names: ('a', 3), should be a list of texts"),
        ({"limit": 300}, "limit: 300, should be below 300"),
        ({"turbo": 1}, "turbo: 1, should be true or false"),
        ({"mode": "quick"}, "mode: 'quick', should be slow or fast"),
        ({"plate": "ABCD"}, "plate: 'ABCD', should be three letters"),
    ],
)
def test_what_is_wrong_is_one_sentence(given, message):
    with pytest.raises(OtherError) as caught:
        Engine(**given)
    assert str(caught.value) == message


def test_another_class_has_the_same_setting_with_what_it_changes():
    assert (Car().power, Car().gears) == (1.5, 6)
    assert rules_of(Car)["power"] == rules_of(Engine)["power"]
    assert rules_of(Car)["gears"].about == "of this car's box"
    with pytest.raises(ConfigError, match="power: -1, should be above 0"):
        Car(power=-1)
    with pytest.raises(ConfigError, match="gears: 0, should be at least 1"):
        Car(gears=0)


def test_what_is_expected_is_said_for_tables():
    rules = rules_of(Engine)
    assert rules["power"].expected == "above 0 and at most 10"
    assert rules["fuel"].expected == "diesel or petrol"
    assert rules["plate"].expected == "three letters"
    assert rules["turbo"].expected == ""


def test_toml_has_all_that_is_set():
    made = Engine(names=('quo"te', "ü"), turbo=True)
    assert tomllib.loads(to_toml(made)) == {
        "power": 1.5, "gears": 5, "fuel": "diesel", "names": ['quo"te', "ü"], "turbo": True, "mode": "slow", "plate": ""
    }  # fmt: skip
