"""A plausible folder of results, in the format that `mpt run --out` writes, without running anything."""

import csv
import json
import struct
import zlib
from pathlib import Path

import numpy as np

ROAD = ("car", "van", "truck", "bus", "motorcycle", "bicycle", "pedestrian", "traffic cone")
LEVELS = {  # F1 right after the departure, and at the end
    "fedavg": (0.10, 0.0),
    "fedlc": (0.12, 0.01),
    "ccvr": (0.20, 0.15),
    "icarl": (0.30, 0.25),
    "sdc": (0.30, 0.02),
    "sdc:all": (0.34, 0.05),
    "ldc": (0.35, 0.05),
    "ldc:all": (0.41, 0.40),
    "frozen": (0.40, 0.0),
    "remaining-mean": (0.10, 0.05),
    "mpt": (0.42, 0.40),
    "mpt-lite": (0.40, 0.34),
    "mpt:in-span": (0.33, 0.28),
    "mpt:stored-residual": (0.40, 0.1),
    "mpt:predicted": (0.41, 0.37),
    "mpt:measured": (0.36, 0.33),
    "oracle": (0.45, 0.44),
    "oracle-train": (0.44, 0.42),
    "live": (0.46, 0.55),
}
COST = {
    "sdc": (3864, 3808),
    "remaining-mean": (29248, 364),
    "ldc": (917840, 0),
    "ldc:all": (917840, 0),
    "ccvr": (1907880, 4172),
    "icarl": (29248, 364),
    "mpt-lite": (58496, 50904),
    "mpt": (260416, 364),
}
NO_PROTOTYPE = {"fedavg", "fedlc", "ccvr", "icarl"}
DEFAULT = ("fedavg", "ccvr", "icarl", "sdc", "ldc", "frozen", "remaining-mean", "mpt", "mpt-lite", "oracle-train")
TRAININGS = {"fedavg": "continued", "fedlc": "fedlc", "ccvr": "continued", "live": "live"}
KEY = ("seed", "round", "method", "readout")
SCORES = ("f1", "precision", "recall", "accuracy", "balanced_accuracy", "others_accuracy")
ERRORS = ("prototype_distance", "in_span_error", "out_of_span_error")
COSTS = ("messages", "bytes_up", "bytes_down", "readout_bytes_up", "readout_bytes_down")
METRICS = (*KEY, "class", "departed", *SCORES, *ERRORS, *COSTS, "vehicle_seconds", "server_seconds")
NORMS = ("in_span_norm", "predicted_norm", "measured_norm", "residual_norm")
STEPS = ("step_references", "step_rare", "step_rounds")
NOTES = ("alpha", "growth", "noise", "remaining", *NORMS, "drift", "rare_drift", *STEPS)
DIAGNOSTICS = ("seed", "round", "method", "class", *NOTES)
CONFUSION = (*KEY, "label", "predicted", "count")
NOTHING = ("",) * len((*SCORES[3:], *ERRORS, *COSTS, "vehicle_seconds", "server_seconds"))  # of classes that stay


def write(path, header, rows):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row] for row in rows)


def png(height=120, width=200, seed=0):
    """A real image of noise, made without Pillow."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height // 10, width // 10, 3), dtype=np.uint8)
    return encoded(pixels.repeat(10, axis=0).repeat(10, axis=1))


def encoded(pixels):
    """(H, W, 3) as PNG."""
    height, width, _ = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def write_run(
    folder,
    *,
    classes=ROAD,
    rare=2,
    methods=DEFAULT,
    readouts=("mahalanobis",),
    seeds=1,
    rounds=100,
    depart_at=15,
    eval_every=5,
    finished=True,
    distances=True,
    image=True,
):
    """The files of a run under `folder`, which is made."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    every = sorted({*range(eval_every, rounds + 1, eval_every), depart_at, rounds})
    rng, of_others = np.random.default_rng(7), np.random.default_rng(11)
    metrics, diagnostics, confusion = [], [], []
    for seed in range(seeds):
        shift = rng.normal(0, 0.03)
        for number in every:
            for method in methods:
                for readout in ("own",) if method in NO_PROTOTYPE else readouts:
                    start, end = LEVELS.get(method, (0.3, 0.2))
                    fade = np.exp(-(number - depart_at) / 15) if number > depart_at else 1.0
                    level = end + (start - end) * fade if number > depart_at else 0.5 * min(1, number / 12)
                    f1 = float(np.clip(level + (shift + rng.normal(0, 0.015)) * (level > 0.02), 0, 1))
                    others = float(np.clip(0.5 + 0.06 * number / rounds - 0.04 * f1 + rng.normal(0, 0.004), 0, 1))
                    balanced = (others * (len(classes) - 1) + f1) / len(classes)
                    far = 0.0 if number <= depart_at or method == "oracle-train" else 3 * (1 - fade) * (1.1 - 2 * end)
                    far = "" if method in NO_PROTOTYPE or not distances else float(abs(far))
                    up, down = COST.get(method, (0, 0)) if number > depart_at else (0, 0)
                    seconds = float(rng.uniform(0.001, 0.03))
                    scores = (f1, min(1.0, f1 * 1.1), f1 * 0.93, balanced, balanced, others)
                    errors = (far, "", "") if far == "" else (far, 0.6 * far, 0.8 * far)
                    extra = 231168 if readout == "mahalanobis" and method != "mpt" else 0
                    cost = (int(up > 0), up, down, extra, 0, seconds / 2, seconds / 2)
                    key = (seed, number, method, readout)
                    gone = int(number > depart_at and method != "live")
                    metrics.append((*key, classes[rare], gone, *scores, *errors, *cost))
                    drawn = np.clip(others + of_others.normal(0, 0.05, len(classes)), 0, 1).tolist()
                    metrics += [
                        (*key, name, 0, drawn[c], min(1.0, drawn[c] * 1.1), drawn[c] * 0.93, *NOTHING)
                        for c, name in enumerate(classes)
                        if c != rare
                    ]
                    if number in (depart_at, rounds):
                        table = counts(rng, len(classes), rare, f1, others)
                        confusion += [
                            (*key, classes[i], classes[j], int(table[i, j]))
                            for i, j in zip(*np.nonzero(table), strict=True)
                        ]
            space = [float(v * (1 - np.exp(-max(0, number - depart_at) / 30))) for v in (1.4, 2.3)]
            step = [""] * 3 if number == every[0] else [0.3, 0.5, number - every[every.index(number) - 1]]
            diagnostics.append((seed, number, "", classes[rare], *[""] * 8, *space, *step))
            for method in methods:
                if method in ("mpt", "mpt-lite") and number > depart_at:
                    alpha = 0.3 if method == "mpt" else 0.18
                    values = (alpha + float(rng.normal(0, 0.02)), 1.0, 0.1, 6, 1.0, 0.5, 0.6, 0.5)
                    diagnostics.append((seed, number, method, classes[rare], *values, *space, *[""] * 3))
    write(folder / "metrics.csv", METRICS, metrics)
    write(folder / "diagnostics.csv", DIAGNOSTICS, diagnostics)
    write(folder / "confusion.csv", CONFUSION, confusion)
    config = {
        "dataset": "road",
        "rare": classes[rare],
        "methods": list(methods),
        "backbone": "cnn3",
        "per_class": 300,
        "remaining": 0.02,
        "participation": 1.0,
        "rounds": rounds,
        "depart_at": depart_at,
        "eval_every": eval_every,
        "epochs": 5,
        "lr": 0.01,
        "readout": list(readouts),
        "ridge": 0.2,
        "cov_ridge": 0.1,
        "seeds": seeds,
        "device": "auto",
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in config.items()]
    (folder / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    manifest = {
        "format": 2,
        "mpt": "0.1.0",
        "commit": "8daa803aaaaa",
        "python": "3.11.7",
        "numpy": "2.4.6",
        "torch": "2.13.0+cpu",
        "device": "cpu",
        "dataset": "road",
        "dataset_fingerprint": "9f3c" * 16,
        "trainings": {name: TRAININGS.get(name, "held-out") for name in methods},
        "classes": list(classes),
        "rare": rare,
        "counts": {"train": [300] * len(classes), "test": [100] * len(classes)},
        "vehicles": len(classes),
        "remaining_samples": [6] * seeds,
        "feature_dim": 128,
        "model_bytes": 381000,
        "finished": finished,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    if image:
        (folder / "samples.png").write_bytes(png())
    return folder


def counts(rng, classes, rare, f1, others, samples=100):
    """A confusion matrix with about these recalls; the rare class goes mostly to its neighbours."""
    table = np.zeros((classes, classes), dtype=int)
    for label in range(classes):
        right = f1 if label == rare else float(np.clip(others + rng.normal(0, 0.1), 0, 1))
        weights = np.exp(-np.abs(np.arange(classes) - label) / 1.5)
        weights[label] = 0
        weights = weights / weights.sum() * (1 - right)
        weights[label] = right
        table[label] = rng.multinomial(samples, weights / weights.sum())
    return table
