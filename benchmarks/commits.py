"""A benchmark under another commit's code and under this tree's, by turns, in one call.

    python benchmarks/commits.py 31770bb benchmarks/merging.py --vehicles 2000
    python benchmarks/commits.py 31770bb benchmarks/reconstruction.py --turns 3

The other commit is unpacked into a temporary folder; the benchmark's file is this tree's in both cases, so that both do
the same. Machines are noisy: look at the ratio of lines that stand together, not at one of them.
"""

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def unpacked(commit: str, folder: Path) -> Path:
    """The commit's `src`, in a folder."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("--turns", type=int, default=2)
    args, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        sources = {args.commit: unpacked(args.commit, Path(place)), "this tree": ROOT / "src"}
        for turn in range(args.turns):
            for name, source in sources.items():
                print(f"--- {name}, turn {turn + 1}", flush=True)
                command = [sys.executable, str(args.benchmark), *more]
                subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(source)}, check=True)


if __name__ == "__main__":
    main()
