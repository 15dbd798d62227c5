"""How little can travel for cross-moment tracking, on the features that `benchmarks/cross_record.py` kept.

    python benchmarks/cross_payload.py FOLDER [--svg FILE]

Each vehicle's cross moments are rounded or cut as a form of the message would, merged, and tracked from; 2% remaining
samples. Bytes are those of a vehicle and round once the static part has been sent, besides the class statistics that
MPT and the Mahalanobis readout need as well. F1 is a fraction of oracle-train's, mean over cells and rounds.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.linalg
from estimators import Cell

import mpt
from mpt.core.readout import DEFAULT_OUTWARD
from mpt.core.validation import Floats
from mpt.core.wire import WireType

Change = Callable[[mpt.CrossStatistics], tuple[mpt.CrossStatistics, int]]


def as_sent(dtype: WireType) -> Change:
    """Whole, as float64 or float32; the static part counted or not."""

    def change(report: mpt.CrossStatistics) -> tuple[mpt.CrossStatistics, int]:
        message = report.to_bytes(dtype, frame=False, known={report.static_digest})
        sums = {"sums": report.sums.astype(dtype), "cross": report.cross.astype(dtype)}
        still = {"earlier": report.earlier.astype("float32"), "gram": report.gram.astype("float32")}
        return replace(report, **sums, **still), len(message)

    return change


def everything(report: mpt.CrossStatistics) -> tuple[mpt.CrossStatistics, int]:
    """float32 with the static part in every message."""
    return as_sent("float32")(report)[0], len(report.to_bytes("float32", frame=False))


def halved(report: mpt.CrossStatistics) -> tuple[mpt.CrossStatistics, int]:
    """What `mpt-x` sends: the cross moments as float16, the rest as float32."""
    whole = mpt.CrossStatistics.from_bytes(report.to_bytes("float32", halves=True))
    return whole, len(report.to_bytes("float32", frame=False, known={report.static_digest}, halves=True))


def cut(rank: int) -> Change:
    """The leading singular vectors of the cross moments within classes; the class sums give the rest."""

    def change(report: mpt.CrossStatistics) -> tuple[mpt.CrossStatistics, int]:
        _, within = report.within
        left, values, right = scipy.linalg.svd(within)
        kept: Floats = (left[:, :rank] * values[:rank]) @ right[:rank]
        whole = len(report.to_bytes("float32", frame=False, known={report.static_digest}))
        size = whole - 4 * report.cross.size + 4 * rank * 2 * report.dim
        return replace(as_sent("float32")(report)[0], cross=report.cross - within + kept), size

    return change


FORMS: dict[str, Change] = {
    "float64": as_sent("float64"),
    "float32, static part every time": everything,
    "float32": as_sent("float32"),
    "float16": halved,
    **{f"rank {rank}": cut(rank) for rank in (64, 32, 16, 8)},
}


def vehicles(cell: Cell, path: Path) -> list[mpt.CrossStatistics]:
    """The reports of the vehicles that stay; the remaining samples are spread over them."""
    whole, holder = cell.cross(), np.load(path)["holder"]
    owner = holder[cell.rows]
    places = np.unique(owner[: len(cell.references)])
    owner[len(cell.references) :] = places[np.arange(cell.samples) % len(places)]
    return [
        mpt.CrossStatistics.from_features(
            cell.z[mine], cell.h[mine], cell.labels[mine], cell.num_classes, weights=whole.weights,
            origin=whole.origin, earlier_origin=whole.earlier_origin,
        )
        for mine in (cell.rows[owner == place] for place in places)
    ]  # fmt: skip


def plot(points: dict[str, tuple[float, float]]) -> str:
    """Cost against F1 as an SVG: kilobytes of a vehicle and round, fraction of oracle-train's F1."""
    low, across, down = 0.6, 640, 360

    def place(kilobytes: float, f1: float) -> tuple[float, float]:
        return 60 + kilobytes / 150 * (across - 90), 20 + (1 - f1) / (1 - low) * (down - 70)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" font-family="sans-serif">']
    parts.append(f'<rect width="{across}" height="{down}" fill="#fff"/>')
    for share in (0.6, 0.7, 0.8, 0.9, 1.0):
        y = place(0, share)[1]
        parts.append(f'<path d="M60 {y:.0f}H{across - 30}" stroke="#ddd"/>')
        parts.append(f'<text x="52" y="{y + 4:.0f}" font-size="12" text-anchor="end">{share:.1f}</text>')
    for kilobytes in (0, 50, 100, 150):
        x = place(kilobytes, low)[0]
        parts.append(f'<text x="{x:.0f}" y="{down - 32}" font-size="12" text-anchor="middle">{kilobytes} kB</text>')
    for name, (size, f1) in points.items():
        x, y = place(size / 1e3, f1)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{"#0b57c4" if name == "mpt" else "#5a2ca0"}"/>')
        side = f'x="{x - 8:.0f}" text-anchor="end"' if size > 9e4 else f'x="{x + 8:.0f}"'
        below = name.startswith("rank") or "still" in name
        parts.append(f'<text {side} y="{y + (18 if below else -8):.0f}" font-size="12">{name}</text>')
    parts.append(
        f'<text x="{across / 2}" y="{down - 8}" font-size="13" text-anchor="middle">bytes of a vehicle and round'
        " beyond MPT&#8217;s; F1 as a fraction of oracle-train&#8217;s</text></svg>"
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    sizes: dict[str, list[int]] = defaultdict(list)
    for path in sorted(args.folder.glob("*.npz")):
        kept = np.load(path)
        samples = round(0.02 * int(np.sum(kept["labels"] == kept["rare"])))
        for number in kept["rounds"][1:].tolist():
            cell = Cell(path, number, samples, 0)
            best = cell.scores(cell.truth)[0]
            reports = vehicles(cell, path)
            for name, form in FORMS.items():
                sent = [form(report) for report in reports]
                sizes[name] += [size for _, size in sent]
                cross = mpt.CrossStatistics.merge(report for report, _ in sent)
                rec = mpt.reconstruct(cell.deposit, cell.now, variant="cross", cross=cross)
                f1, distance = cell.scores(rec.prototype, DEFAULT_OUTWARD)[0], cell.distance(rec.prototype)
                found[name].append((f1 / best, distance, rec.alpha))
            found["mpt"].append((cell.scores(cell.plain.prototype)[0] / best, cell.distance(cell.plain.prototype), 0))
            sizes["mpt"].append(0)
    print("| form | bytes a vehicle and round | F1 / oracle-train's | distance |\n|---|---|---|---|")
    points = {}
    for name, entries in found.items():
        f1, far, _ = np.mean(entries, axis=0)
        points[name] = float(np.mean(sizes[name])), float(f1)
        print(f"| {name} | {np.mean(sizes[name]):,.0f} | {f1:.3f} | {far:.2f} |")
    if args.svg is not None:
        args.svg.write_text(plot(points), encoding="utf-8")


if __name__ == "__main__":
    main()
