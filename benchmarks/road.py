"""How fast `road` is drawn, and how hard it is for a linear model: `python benchmarks/road.py`."""

import argparse
import time

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mpt.data import load


def main() -> None:
    """Print processor seconds for the default set, then accuracy and confusions of PCA and logistic regression."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default="road", help="the set to draw and time")
    parser.add_argument("--per-class", type=int, default=500, help="training images a class for the linear model")
    options = parser.parse_args()
    start = time.process_time()
    dataset = load(options.spec)
    print(f"{time.process_time() - start:.1f} s of one core for {dataset!r}, fingerprint {dataset.fingerprint()}")

    few = dataset.limited(options.per_class)
    model = make_pipeline(PCA(64, random_state=0), StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(few.train.images.reshape(len(few.train), -1) / 255, few.train.labels)
    guesses = model.predict(few.test.images.reshape(len(few.test), -1) / 255)
    print(f"PCA(64) and logistic regression on {options.per_class} a class: {np.mean(guesses == few.test.labels):.3f}")
    print("rows: truth, columns: guess")
    for name, row in zip(few.classes, confusion_matrix(few.test.labels, guesses), strict=True):
        print(f"{name:>14}" + "".join(f"{n:5d}" for n in row))


if __name__ == "__main__":
    main()
