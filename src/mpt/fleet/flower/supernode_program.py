"""The program `flower-supernode`, which ends once it has given up.

Flower's SuperNode gives up what it does at the first error of its connection that it does not take for passing: a TLS
handshake that was cut off, an answer 500. Then it is offline, but a thread of its own API keeps its process alive, and
whoever would start it again does not hear of it. Here the process ends.
"""

import logging
import os
import sys
import traceback
from importlib.metadata import entry_points

GAVE_UP = 1
"""Exit code of a SuperNode that has given up."""


def main() -> None:
    """Run Flower's program with this process's arguments; it comes back only where the SuperNode has given up."""
    (program,) = entry_points(group="console_scripts", name="flower-supernode")
    sys.argv[0] = program.name
    try:
        program.load()()
    except Exception:
        traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GAVE_UP)


if __name__ == "__main__":
    main()
