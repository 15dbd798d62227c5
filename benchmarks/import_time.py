"""What `import mpt` costs beyond what it imports of NumPy and SciPy.

Processor time in fresh interpreters, with bytecode that is there already: first NumPy and SciPy, then `mpt`, then the
tracker for labels. The medians of several, and of their ratios.

    python benchmarks/import_time.py
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

CODE = """
from time import process_time
begun = process_time()
import numpy, scipy.linalg
base = process_time()
import mpt
core = process_time()
mpt.LabelledTracker
print(base - begun, core - begun, process_time() - begun)
"""


def times(folder: str) -> list[float]:
    """Seconds until NumPy and SciPy are there, `mpt`, and its tracker; `folder` is for bytecode."""
    chosen = {"OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env={**os.environ, **chosen}, check=True, capture_output=True, text=True)
    return [float(text) for text in done.stdout.split()]


def main() -> None:
    """Print a line a kind."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--repeats", type=int, default=15, help="fresh interpreters")
    repeats = options.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        times(folder)
        found = [times(folder) for _ in range(repeats)]
    for i, name in enumerate(("numpy, scipy.linalg", "mpt", "mpt.LabelledTracker")):
        middle, ratio = (statistics.median(values) for values in ([t[i] for t in found], [t[i] / t[0] for t in found]))
        print(f"{name:20} {1000 * middle:4.0f} ms, {ratio:.3f} times NumPy and SciPy")


if __name__ == "__main__":
    main()
