"""How far a long call has come, in a notebook: a bar in the cell's output that is updated in place.

Only inside a Jupyter kernel; elsewhere there is nothing to see, and IPython is not imported.
"""

import sys
import time
from collections.abc import Callable, Sequence
from html import escape
from types import TracebackType
from typing import Any, Self

from mpt.federation.measurement import Measurement

SHOWN = ("fedavg", "frozen", "mpt", "mpt-x", "oracle-train")
"""Whose F1 is shown while a run goes on; where none of them runs, the first three methods'."""
EVERY = 0.2
"""Seconds between two updates, at least."""

Display = Callable[..., Any]


def notebook_display() -> Display | None:
    """IPython's `display` inside a notebook's kernel; None elsewhere, in IPython on a terminal too."""
    running = sys.modules.get("IPython")
    shell = None if running is None else running.get_ipython()
    if running is None or getattr(shell, "kernel", None) is None:
        return None
    shown: Display = running.display.display
    return shown


def f1_line(rows: Sequence[Measurement]) -> str:
    """The F1 of a few methods, each in its first readout."""
    f1 = {row.method: row.f1 for row in reversed(rows)}
    names = [name for name in SHOWN if name in f1] or list(dict.fromkeys(row.method for row in rows))[:3]
    return "  ".join(f"{name} {f1[name]:.3f}" for name in names)


class NotebookBar:
    """A bar with the time left and a line below it; where no notebook is, it does nothing.

    Args:
        what: what goes on, in a few words.
        total: how many steps it has; 0 as long as that is not known.
        display: `notebook_display()`.
    """

    def __init__(self, what: str, total: int, display: Display | None) -> None:
        self.what, self.total, self.display = what, total, display
        self.done, self.line, self.text = 0, "", f"{what}: reading"
        self.began = self.first = time.perf_counter()
        self.before = 0
        self.drawn = 0.0
        self.handle: Any = None

    def __enter__(self) -> Self:
        if self.display is not None:
            self.handle = self.display(self._bundle(), raw=True, display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        took = f"{time.perf_counter() - self.began:.0f} s"
        self.text = f"{self.what}: done after {took}" if kind is None else f"{self.what}: stopped after {took}"
        self.done = self.total if kind is None else self.done
        self._draw()

    def step(self, done: int, text: str, line: str = "") -> None:
        """So many steps are done; `text` says which, and `line` what came of it."""
        now = time.perf_counter()
        if not self.before:
            self.before, self.first = done, now
        self.done, self.line = done, line or self.line
        timed, todo = done - self.before, self.total - done
        left = f", about {todo * (now - self.first) / timed:.0f} s left" if timed and todo > 0 else ""
        self.text = f"{self.what}: {text}{left}"
        if now - self.drawn >= EVERY:
            self._draw()

    def _draw(self) -> None:
        if self.handle is not None:
            self.drawn = time.perf_counter()
            self.handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        """The same in HTML and as a text."""
        share = f' value="{self.done}" max="{self.total}"' if self.total and self.done else ""
        bar = f'<progress style="width:20em"{share}></progress>'
        below = f"<br><small>{escape(self.line)}</small>" if self.line else ""
        return {
            "text/html": f"<div>{bar} {escape(self.text)}{below}</div>",
            "text/plain": "  ".join(filter(None, (self.text, self.line))),
        }
