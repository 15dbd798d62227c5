"""What a recorded run shows of a backbone that has learned its training samples by heart.

    mpt run --backbone resnet18 --record --out RUN ...
    python benchmarks/by_heart.py RUN

For every recorded round: how often the nearest prototype is right on training and on test samples of the reference
classes; how far, of the way from the middle of the reference prototypes to its own, a test sample gets on average (1:
as far as a training sample); the departed prototype's distance from that middle (oracle-train's) beside the reference
prototypes' mean one; and the departed class's precision and recall with oracle-train's prototype, and with the test
samples' own mean. Distances are whitened, as the readout sees them.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from mpt.core import ClassStatistics, NearestClassMean
from mpt.federation.metrics import confusion_matrix, score
from mpt.runs.record import Record


def main() -> None:
    """Print a line a recorded round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rare = json.loads((args.run / "manifest.json").read_text())["rare"]
    record = Record.of(args.run)
    samples = record.samples(args.seed)
    print("        right on             of the way   from the middle       precision and recall of")
    print("round   training   test      by test      departed   others     oracle-train     oracle")
    for path in sorted(record.path.glob(f"{args.seed:04d}-[0-9]*.npz")):
        number = int(path.stem.partition("-")[2])
        seen = record.round(args.seed, number, samples)["held-out"]
        features = np.concatenate([*seen.features.values()])
        labels = np.concatenate([samples.labels[v] for v in seen.features])
        classes = len(seen.head[1])
        stats = ClassStatistics.from_features(features, labels, classes, watched=(rare,))
        tested = ClassStatistics.from_features(seen.test, samples.test_labels, classes, scatter=False).means
        prototypes = stats.means
        prototypes[rare] = seen.rare_mean
        readout = NearestClassMean(prototypes, stats.covariance())
        others, trained = np.arange(classes) != rare, labels != rare
        right = [
            float(np.mean(readout.predict(x) == y))
            for x, y in (
                (features[trained], labels[trained]),
                (seen.test[samples.test_labels != rare], samples.test_labels[samples.test_labels != rare]),
            )
        ]
        middle = readout.with_prototypes(prototypes[others].mean(axis=0)[None])
        own, theirs = (middle.distances(rows)[:, 0] for rows in (prototypes[[rare]], prototypes[others]))
        outwards = readout.to_linear()[0][others] - readout.to_linear()[0][others].mean(axis=0)
        ways = [
            np.einsum("cd,cd->c", outwards, (means - prototypes[others].mean(axis=0))[others])
            for means in (tested, prototypes)
        ]
        with_oracle = np.where(others[:, None], prototypes, tested)
        scores = [
            score(confusion_matrix(r.predict(seen.test), samples.test_labels, classes))
            for r in (readout, readout.with_prototypes(with_oracle))
        ]
        said = "      ".join(f"{s.precision[rare]:.3f} {s.recall[rare]:.3f}" for s in scores)
        print(
            f"{number:5d} {right[0]:10.3f} {right[1]:8.3f} {float(np.mean(ways[0] / ways[1])):10.2f} "
            f"{own[0]:12.1f} {theirs.mean():8.1f}       {said}"
        )


if __name__ == "__main__":
    main()
