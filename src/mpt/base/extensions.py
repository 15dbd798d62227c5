"""Extension points: what is built in by its name, what is a user's own by where it is, both with arguments.

    mpt                         built in
    mpt(ridge=0.1)              with an argument
    mine.py:Mine(lam=0.3)       a user's own, in a file
    pkg.module:Mine             a user's own, in a module that can be imported

A method, a training, a partition, a readout, a dataset and a backbone are each found like this, by one `Extensions` in
the room that they belong to: an entry there is what makes one built in.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from mpt.base.errors import MptError
from mpt.base.files import importable
from mpt.base.text import did_you_mean

T = TypeVar("T")
_IN_FILE = re.compile(r"(?P<head>.*?\.py:[\w.]*)\s*(?P<arguments>\(.*\))?\s*", re.DOTALL)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_OPENING, _CLOSING = "([{", ")]}"


class Builtin(NamedTuple):
    """What comes with the package.

    Attributes:
        make: makes it of the arguments that a spec has, or is it.
        about: one line on it.
        takes: settings of the run that it is made with, where the spec does not say otherwise.
    """

    make: Any
    about: str
    takes: tuple[str, ...] = ()


class Spec(NamedTuple):
    """A text such as `mine.py:Mine(lam=0.3)` taken apart.

    Attributes:
        head: the text without arguments.
        place: the file or module; empty where the head has no colon.
        name: what is looked for there.
        positional, named: the arguments.
        arguments: as they were written, with their brackets; empty where there are none.
    """

    head: str
    place: str
    name: str
    positional: tuple[Any, ...] = ()
    named: Mapping[str, Any] = {}
    arguments: str = ""

    @property
    def in_file(self) -> bool:
        """Whether it names a file."""
        return self.place.endswith(".py")


@dataclass(frozen=True)
class Extensions(Generic[T]):
    """One extension point.

    Attributes:
        word: what one of them is called in sentences: "method".
        builtin: those that come with the package, by name.
        error: what is raised.
        own: how a user's own is written, for lists and sentences.
        bound: whether a function is what is wanted, to be called later; else it makes what is wanted.
        words: specs that begin with these and a colon are none of these; the room knows what they are.
    """

    word: str
    builtin: Mapping[str, Builtin]
    error: type[MptError]
    own: str = "path.py:Class"
    bound: bool = False
    words: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return name in self.builtin

    def __iter__(self) -> Iterator[str]:
        return iter(self.builtin)

    def about(self, text: str) -> str:
        """One line on what a spec names."""
        head = self.parse(text).head
        return self.builtin[head].about if head in self.builtin else "your own"

    def parse(self, text: str) -> Spec:
        """The text taken apart; its arguments are Python's literals."""
        word, colon, rest = text.partition(":")
        if colon and word in self.words:
            return Spec(text, word, rest)
        head, arguments = self._divided(text)
        place, colon, name = ("", "", head) if head in self.builtin else head.rpartition(":")
        if colon and not (place and name):
            raise self.error(
                f"{self.word}: {text!r} has nothing {'after' if place else 'before'} the colon, should be "
                f"like {self.own}"
            )
        try:
            call = ast.parse(f"f{arguments or '()'}", mode="eval").body
            if not isinstance(call, ast.Call) or any(keyword.arg is None for keyword in call.keywords):
                raise ValueError
            positional = tuple(map(ast.literal_eval, call.args))
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        except (ValueError, SyntaxError):
            raise self.error(
                f"{self.word}: {text!r}, arguments should be literals: numbers, texts in quotes, True, None, lists"
            ) from None
        return Spec(head, place, name, positional, named, arguments if positional or named else "")

    def _divided(self, text: str) -> tuple[str, str]:
        """What is named, and its arguments with their brackets."""
        first, bracket, more = text.partition("(")
        found = _IN_FILE.fullmatch(text)
        if first.strip() not in self.builtin and found is not None:
            return found["head"].strip(), found["arguments"] or ""
        if bracket and not more.rstrip().endswith(")"):
            raise self.error(f"{self.word}: {text!r} has brackets that do not match, should be like {self.own}(size=3)")
        return first.strip(), f"({more.rstrip()}" if bracket else ""

    def is_own(self, spec: Spec) -> bool:
        """Whether it is written as a user's own: a file, or a module that is there."""
        if spec.head in self.builtin or not spec.place or spec.place in self.words:
            return False
        return spec.in_file or bool(_DOTTED.fullmatch(spec.place) and _importable(spec.place))

    def file_of(self, text: str) -> Path | None:
        """The file of a user's own; None for what comes with the package."""
        spec = self.parse(text)
        if not self.is_own(spec):
            return None
        if spec.in_file:
            return located(Path(spec.place).expanduser())
        origin = getattr(self._module(spec.place), "__file__", None)
        return None if origin is None else Path(origin)

    def known_by(self, text: str) -> str:
        """What a user's own file is known by, its content; empty for what comes with the package."""
        path = None if text in self.builtin else self.file_of(text)
        return digest(path) if path is not None and path.is_file() else ""

    def find(self, text: str, *given: Any, **settings: Any) -> T:
        """What a spec names, made.

        Args:
            text: the spec.
            given: what it is made of before the arguments of the spec, where this point says so.
            settings: of the run; those that a built-in `takes` are handed on.
        """
        spec = self.parse(text)
        if spec.head in self.builtin:
            builtin = self.builtin[spec.head]
            found, named = builtin.make, {**{k: settings[k] for k in builtin.takes if k in settings}, **spec.named}
        elif self.is_own(spec):
            found, named = self._load(spec), dict(spec.named)
        else:
            raise self.error(f"{self.word}: {text!r} is none, {self._hint(spec)}")
        made: T = self._made(spec, found, given, named)
        return made

    def _hint(self, spec: Spec) -> str:
        """What may have been meant by a name that is none: the nearest, a module that is not there, or anything."""
        if _DOTTED.fullmatch(spec.place) and _DOTTED.fullmatch(spec.name) and not did_you_mean(spec.head, self.builtin):
            return f"no module {spec.place!r} can be imported from {Path.cwd()}; a file is written as {self.own}"
        known = ", ".join([*self, *(f"{word}:NAME" for word in self.words if word not in self.builtin)])
        return did_you_mean(spec.head, self.builtin, f"should be one of {known}, or {self.own} of your own")

    def _made(self, spec: Spec, found: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """A class or a function is called with the arguments; a function that is itself wanted only keeps them."""
        arguments = bool(spec.positional or named)
        if self.bound and not inspect.isclass(found) and callable(found):
            if spec.positional:
                raise self.error(
                    f"{self.word}: {spec.head}{spec.arguments}, arguments should have names, as in (size=3)"
                )
            return partial(found, **named) if arguments else found
        if not inspect.isclass(found) and not inspect.isroutine(found) and not isinstance(found, partial):
            if arguments:
                raise self.error(f"{self.word}: {spec.head} is no class and no function, should have no arguments")
            return found
        self._check_names(spec, found, len(given), named)
        try:
            with importable():
                return found(*given, *spec.positional, **named)
        except MptError:
            raise
        except Exception as error:
            raise self.error(f"{self.word}: {spec.head}{spec.arguments} cannot be made ({told(error)})") from error

    def _check_names(self, spec: Spec, found: Any, given: int, named: Mapping[str, Any]) -> None:
        """Whether what is called has the arguments that are named; where Python cannot say, the call will."""
        try:
            parameters = list(inspect.signature(found).parameters.values())[given:]
        except (TypeError, ValueError):
            return
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return
        has = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        for name in named:
            if name not in has:
                known = f"it has {', '.join(has)}" if has else "it has none"
                raise self.error(f"{self.word}: {spec.head} has no argument {name}; {known}")

    def _load(self, spec: Spec) -> Any:
        place = located(Path(spec.place).expanduser()) if spec.in_file else spec.place
        found: Any = self._file(place) if isinstance(place, Path) else self._module(place)
        for part in spec.name.split("."):
            if not hasattr(found, part):
                names = [name for name in vars(found) if not name.startswith("_")]
                meant = did_you_mean(part, names, "should be one of its functions or classes")
                raise self.error(f"{self.word}: {place} has no {part!r}, {meant}")
            found = getattr(found, part)
        return found

    def _file(self, path: Path) -> ModuleType:
        """The file as a module. It is known by its content, so that what is made of it can be pickled and read."""
        if not path.is_file():
            raise self.error(f"{self.word}: there is no file {path}, should be a path from {Path.cwd()}")
        name = f"mpt_own_{digest(path)}"
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise self.error(f"{self.word}: {path} cannot be read as Python")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            with importable(path.parent.resolve()):
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise self.error(f"{self.word}: {path} does not import ({told(error)}), should import cleanly") from error
        return module

    def _module(self, name: str) -> ModuleType:
        try:
            with importable():
                return importlib.import_module(name)
        except Exception as error:
            raise self.error(
                f"{self.word}: {name} cannot be imported ({told(error)}), should import cleanly"
            ) from error

    def listed(self) -> list[tuple[str, str]]:
        """Names, each with its line, and how one writes one's own."""
        lines = [(name, entry.about) for name, entry in self.builtin.items()]
        lines += [
            (f"{word}:NAME", f"one of {word}'s, where it is installed") for word in self.words if word not in self
        ]
        return [*lines, (self.own, "your own")]


def called(made: Any, spec: Spec) -> str:
    """What a thing that a spec has made is called: its name, with its arguments where it has any but a name."""
    name = str(getattr(made, "name", spec.name))
    return name if "name" in spec.named else f"{name}{spec.arguments}"


def located(path: Path) -> Path:
    """A file from here, or beside what Python imports from: where the files are that are bundled with an app."""
    places = [Path(), *map(Path, sys.path)]
    return next((place / path for place in places if (place / path).is_file()), path)


def digest(path: Path) -> str:
    """What a file is known by: its content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def split(text: str) -> tuple[str, ...]:
    """The specs of a list with commas between, but not those inside brackets or quotes.

    Example:
        >>> split("mpt, mine.py:Mine(lam=0.3, k='a,b'), frozen,")
        ('mpt', "mine.py:Mine(lam=0.3, k='a,b')", 'frozen')
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif depth and character in "'\"":
            quote = character
        depth += (character in _OPENING) - (character in _CLOSING) if not quote else 0
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return tuple(filter(None, map(str.strip, parts)))


def files_of(pairs: Iterable[tuple["Extensions[Any]", str]]) -> dict[str, str]:
    """What users' own files are known by, by spec, for those that have one."""
    return {text: known for point, text in pairs if (known := point.known_by(text))}


@contextmanager
def own_code(name: str, error: type[MptError]) -> Iterator[None]:
    """Inside, what a user's own code raises becomes a sentence with the line of the user's file; ours stays."""
    try:
        yield
    except MptError:
        raise
    except (Exception, SystemExit) as raised:
        mine = [f for f in traceback.extract_tb(raised.__traceback__) if not _installed(Path(f.filename))]
        if not mine:
            raise
        where = f"{Path(mine[-1].filename).name}, line {mine[-1].lineno}"
        raise error(f"{name}: {told(raised)} ({where})") from raised


def _installed(path: Path) -> bool:
    """Whether a file is this package's, another's or Python's own, and not the user's."""
    places = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
    return "site-packages" in path.parts or any(path.resolve().is_relative_to(place.resolve()) for place in places)


def told(error: BaseException) -> str:
    """An error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _importable(name: str) -> bool:
    """Whether there is such a module; one that raises when it is looked for is there, and says so when imported."""
    if name in sys.modules:
        return True
    try:
        with importable():
            return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
    except Exception:
        return True
