"""Ctrl-C while a run goes on: what has been done is on the disk before it ends."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """The user has stopped a run; the message says how far it has come."""


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed inside.

    Ctrl-C raises `KeyboardInterrupt` as ever, but where that strikes a destructor or a callback Python drops it.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    usual = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, usual)
