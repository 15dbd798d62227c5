"""Settings as Flower's commands take them, `key=value key="text"` or a TOML file, refused where Flower would guess."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from flwr.common.config import parse_config_args

from mpt.tracking.errors import FleetError

_PAIR = re.compile(r"(\S+?)=(\'[^\']*\'|\"[^\"]*\"|\S+)")
"""What Flower takes for a setting; it passes over everything else in silence."""
_OTHER_FILES = {".cfg", ".conf", ".ini", ".json", ".txt", ".yaml", ".yml"}


def given(texts: Sequence[str], what: str) -> dict[str, Any]:
    """The settings, by name.

    Args:
        texts: as after `-c` or `--node-config`; a file's name that ends in .toml stands alone.
        what: they are called in sentences.

    Raises:
        FleetError: something is no setting, is given twice, or is no TOML.
    """
    if len(texts) == 1 and texts[0].endswith(".toml"):
        return _from_file(Path(texts[0]).expanduser(), what)
    seen: dict[str, str] = {}
    for text in texts:
        if text.endswith(".toml"):
            raise FleetError(f"{what}: {text} beside others, should stand alone")
        for word in _PAIR.sub("", text).split():
            if Path(word).suffix.lower() in _OTHER_FILES or Path(word).is_file():
                raise FleetError(f"{what}: {word}, a settings file should end in .toml")
            raise FleetError(f'{what}: {word!r} is no setting, should be key=value or key="text", without spaces at =')
        for key, value in _PAIR.findall(text):
            if key.startswith(",") or value.endswith(","):
                raise FleetError(f"{what}: {key}={value} has a comma, settings should have spaces between them")
            if key in seen:
                raise FleetError(f"{what}: {key} is given twice, {seen[key]} and {value}, should be once")
            seen[key] = value
            try:
                parse_config_args([f"{key}={value}"])
            except click.ClickException:
                raise FleetError(
                    f'{what}: {key} = {value}, should be a number, true, false, or a text in quotes: {key}="{value}"'
                ) from None
            except ValueError:
                raise FleetError(f"{what}: {key} = {value}, should be a number, true, false, or a text") from None
    return dict(parse_config_args(list(texts)))


def _from_file(path: Path, what: str) -> dict[str, Any]:
    try:
        for key, value in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if isinstance(value, list):
                text = ",".join(map(str, value))
                raise FleetError(f'{what}: {path}: {key} is a list, should be a text: {key} = "{text}"')
        return dict(parse_config_args([str(path)]))
    except OSError as error:
        raise FleetError(f"{what}: {path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FleetError(f"{what}: {path} is not TOML ({error})") from None
    except ValueError as error:
        raise FleetError(f"{what}: {path}: {error}") from None
