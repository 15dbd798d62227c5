"""Pages that are read off the code: every command with its options, and what there is at every extension point."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
from typer.main import get_command

from mpt.cli.lists import POINTS, listed
from mpt.cli.main import app as mpt_app

GENERATED = Path(__file__).parents[1] / "_generated"


def commands() -> Iterator[str]:
    """Every command of `mpt` as Markdown."""
    group = get_command(mpt_app)
    assert isinstance(group, click.Group)
    yield from _group(group, "mpt")


def _group(group: click.Group, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        full = f"{path} {name}"
        yield f"## {full}\n\n"
        if isinstance(command, click.Group):
            yield f"{_plain(command.help)}\n\n"
            yield from _group(command, full)
        else:
            yield from _command(command, full)


def _command(command: click.Command, full: str) -> Iterator[str]:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and "--help" not in p.opts and not p.hidden]
    words = [full, *(_metavar(p) if p.required else f"[{_metavar(p)}]" for p in arguments), "[OPTIONS]" * bool(options)]
    yield f"```console\n$ {' '.join(filter(None, words))}\n```\n\n{_plain(command.help)}\n\n"
    for param in (*arguments, *options):
        names = (*param.opts, *param.secondary_opts) if param in options else (_metavar(param),)
        yield f"{', '.join(f'`{name}`' for name in names)}\n: {_about(param)}\n\n"


def _metavar(param: click.Parameter) -> str:
    return (param.metavar or param.name or "").upper().strip("[]")


def _about(param: click.Parameter) -> str:
    """What it is, with its default where that is a text or a number and is not said yet."""
    about, value = _plain(getattr(param, "help", "")), param.default
    shown = isinstance(value, str | int | float) and value not in ("", False) and not param.required
    return f"{about}; default: `{value}`" if shown and "default:" not in about else about


def _plain(text: str | None) -> str:
    """Without what only a terminal shows; options as code."""
    words = " ".join((text or "").split()).replace("<", "&lt;")
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)", r"`\1`", re.sub(r"\[/?(dim|bold|red|required)\]", "", words))


def lists() -> dict[str, str]:
    """A table for each extension point, by its name."""
    made = {}
    for name, (module, point, about) in POINTS.items():
        found = getattr(import_module(module), point)
        head = ["name", *(["training"] if name == "methods" else []), "what it is"]
        rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for spec, said in listed(name):
            training = [found.find(spec).training if spec in found else ""] if name == "methods" else []
            rows.append("| " + " | ".join([f"`{spec}`", *training, said.replace("|", "\\|")]) + " |")
        made[name] = f"What there is: {about}.\n\n" + "\n".join(rows) + "\n"
    return made


def write(app) -> None:
    """Before the pages that include them are read."""
    GENERATED.mkdir(exist_ok=True)
    for name, text in {"commands": "".join(commands()), **lists()}.items():
        path = GENERATED / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app) -> dict[str, bool]:
    """As Sphinx calls it."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
