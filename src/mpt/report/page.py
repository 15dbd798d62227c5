"""`write_report`: the page, put together from its sections."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpt.base.files import write_atomically
from mpt.base.seeds import Curve, Series, curve
from mpt.base.text import quantity
from mpt.methods import METHODS
from mpt.pages.document import WIDE, document
from mpt.pages.html import figure, legend, pairs
from mpt.pages.lines import Chart, Line, last_round, lines_of
from mpt.pages.styles import SeriesStyle, styles_of
from mpt.pages.svg import esc
from mpt.report.classes import MOST_COLUMNS, confusions, moments, others_table
from mpt.report.health import health_table
from mpt.report.image import image_uri
from mpt.report.scatter import scatter
from mpt.report.summary_table import by_round, meanings, summary_table
from mpt.report.words import notes, title, verdict
from mpt.runs.errors import RunError
from mpt.runs.reader import Run, read_run
from mpt.runs.summary import Summary, curves
from mpt.version import MADE_BY

HALF = 500


def write_report(folder: Path) -> Path:
    """Make `report.html` from the files of a run under `folder`; its path.

    Raises `RunError` where a file is missing or broken; an older page then stays as it is.
    """
    page, path = render(read_run(folder)), folder / "report.html"
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise RunError(f"{path}: cannot be written ({error.strerror}), should be a file in a folder of yours") from None
    return path


def render(run: Run) -> str:
    """The page as text; the same run gives the same page."""
    methods = dict.fromkeys(series.method for series in run.figures.series)
    look = styles_of(run.figures.series, {name: _about(name) for name in methods})
    summaries = run.figures.summaries
    charts = _charts(run, look)
    sections = [
        _header(run, summaries, list(look.values())),
        _curves(run, look, charts),
        _summary(run, summaries, look),
        _cost(run, summaries, look),
        _confusions(run, look),
        _others(run, summaries, look),
        _samples(run),
        _settings(run),
    ]
    return document(title(run), sections, charts, list(look.values()))


def _about(method: str) -> str:
    """What a method does, in a line."""
    name = method.partition("(")[0]
    return METHODS.builtin[name].about if name in METHODS else "of your own"


def _model(run: Run) -> str:
    """What has made the features."""
    trained = run.manifest.get("model_bytes") != 0
    return str(run.config.get("backbone", "")) if trained else f"{run.config['rounds']} versions of a model"


def _header(run: Run, summaries: Sequence[Summary], looks: Sequence[SeriesStyle]) -> str:
    remaining = run.manifest.get("remaining_samples")
    counts = sorted(set(remaining)) if isinstance(remaining, list) and remaining else []
    share = run.share_remaining
    facts = [f"{run.config.get('dataset', '')}, {len(run.classes)} classes", _model(run)]
    if isinstance(run.manifest.get("vehicles"), int):
        facts.append(f"{run.manifest['vehicles']} vehicles")
    samples = f"{_range(counts)} sample{'' if counts == [1] else 's'}" if counts else ""
    if share is not None:
        facts.append(f"{100 * share:g}% of {run.rare_name} remain{samples and f', {samples}'}")
    elif samples:
        facts.append(f"{samples} of {run.rare_name} remain")
    facts.append(f"{run.rounds} rounds")
    facts.append("1 seed" if len(run.figures.seeds) == 1 else f"{len(run.figures.seeds)} seeds")
    sentences = "".join(f'<p class="verdict">{esc(s)}</p>' for s in verdict(run, summaries, looks))
    warnings = "".join(f'<p class="warning" role="note">{esc(s)}</p>' for s in notes(run, summaries))
    return (
        f'<header><p class="over">Missing prototype tracking · one run</p><h1>{esc(title(run))}</h1>{sentences}'
        f'<p class="facts">{esc(" · ".join(f for f in facts if f))}</p>{warnings}</header>'
    )


def _range(counts: Sequence[Any]) -> str:
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _charts(run: Run, look: dict[Series, SeriesStyle]) -> dict[str, Chart]:
    """The charts by round that have anything to show."""
    f1 = curves(run.figures, "f1")
    distance = curves(run.figures, "prototype_distance")
    space = [d for d in run.diagnostics if not d["method"]]
    space = space if any(d["round"] > run.depart_at for d in space) else []
    drifts = {
        "drift": ("reference classes", curve((d["seed"], d["round"], d["drift"]) for d in space)),
        "rare-drift": (run.rare_name, curve((d["seed"], d["round"], d["rare_drift"]) for d in space)),
    }
    alphas: dict[Series, Curve] = {}
    for row in look:
        noted = [d for d in run.diagnostics if d["method"] == row.method and d["alpha"] is not None]
        if row.method not in {other.method for other in alphas} and all(0 <= d["alpha"] <= 1 for d in noted):
            alphas[row] = curve((d["seed"], d["round"], d["alpha"]) for d in noted)
    lines = {
        "f1": lines_of(f1, look),
        "distance": lines_of(distance, look),
        "drift": tuple(Line(key, label, c) for key, (label, c) in drifts.items() if c.points),
        "alpha": lines_of(alphas, look),
    }
    labels = {
        "f1": f"F1 of {run.rare_name}",
        "distance": "Mahalanobis distance",
        "drift": "Mahalanobis distance",
        "alpha": "alpha",
    }
    last = max(last_round(list(f1.values())), run.depart_at)
    note = f"{run.rare_name} departs after round {run.depart_at}"
    return {
        name: Chart(name, labels[name], mine, run.depart_at, last, note, 1.0 if name in {"f1", "alpha"} else None)
        for name, mine in lines.items()
        if mine
    }


def _curves(run: Run, look: dict[Series, SeriesStyle], charts: dict[str, Chart]) -> str:
    several = len(run.figures.seeds) > 1
    rare = esc(run.rare_name)
    band = f" Mean over {len(run.figures.seeds)} seeds; the bands are ± one deviation." if several else ""
    drawn = legend(list(look.values()), singles=several) + charts["f1"].figure(WIDE, 380)
    parts = [
        "<section><h2>Round by round</h2><p>A name switches its row off and on all over the page.</p>"
        + figure(drawn, f"F1 of {rare} on the test samples.{band}")
        + by_round(curves(run.figures, "f1"), look, run.depart_at)
    ]
    if "distance" in charts:
        told = (
            "How far a row&rsquo;s prototype lies from oracle-train&rsquo;s, which the departed samples themselves "
            "would give under the current model. Rows without a prototype are not in it."
        )
        drawn = legend(_drawn(charts["distance"], look)) + charts["distance"].figure(WIDE, 330)
        parts.append(figure(drawn, told, f"Distance to the prototype of all samples of {rare}"))
    pair = []
    if "drift" in charts:
        told = f"How far prototypes have moved since the departure: mean over the reference classes, and {rare} itself."
        drawn = _drift_keys(charts) + charts["drift"].figure(HALF, 320)
        pair.append(figure(drawn, told, "Drift of the feature space"))
    if "alpha" in charts:
        told = "alpha: 0 takes the predicted residual, 1 the one measured on the remaining samples."
        keys = f'<div class="narrow">{legend(_drawn(charts["alpha"], look), switches=False)}</div>'
        pair.append(figure(keys + charts["alpha"].figure(HALF, 320), told, "Trust in the remaining samples"))
    two = f'<div class="two">{"".join(pair)}</div>' if pair else ""
    return "".join(parts) + two + health_table(run, list(look.values())) + "</section>"


def _drawn(chart: Chart, look: dict[Series, SeriesStyle]) -> list[SeriesStyle]:
    """The rows that a chart shows."""
    keys = {line.key for line in chart.lines}
    return [k for k in look.values() if f"s{k.index}" in keys]


def _drift_keys(charts: dict[str, Chart]) -> str:
    keys = "".join(
        f'<span class="{line.key}"><i class="patch" style="background:var(--c)"></i>{esc(line.label)}</span>'
        for line in charts["drift"].lines
    )
    return f'<div class="patches narrow-only">{keys}</div>'


def _summary(run: Run, summaries: Sequence[Summary], look: dict[Series, SeriesStyle]) -> str:
    over = "mean ± deviation over seeds; " if len(run.figures.seeds) > 1 else ""
    mean = f" That mean is over {esc(run.figures.mean_over)}." if run.figures.mean_over else ""
    told = (
        f"F1, precision and recall are those of {esc(run.rare_name)}; {over}all but the mean after the departure at "
        f"the last evaluated round.{mean} Bytes and milliseconds are {run.figures.costs_over}. A heading sorts."
    )
    table = figure(summary_table(run, summaries, look), told)
    return f"<section><h2>Summary</h2>{table}{meanings(run, list(look.values()))}</section>"


def _cost(run: Run, summaries: Sequence[Summary], look: dict[Series, SeriesStyle]) -> str:
    size, vehicles = run.manifest.get("model_bytes"), run.manifest.get("vehicles")
    traffic = None
    told = ""
    if isinstance(size, int) and size > 0 and isinstance(vehicles, int) and vehicles > 1:
        share = run.config.get("participation", 1.0)
        traffic = 2 * size * max(1.0, (vehicles - 1) * share)
        told = f" Beside them: FedAvg&rsquo;s models, to and from the vehicles that stay, {quantity(traffic)}."
    readout = any(s.readout_bytes for s in summaries)
    told = (" Hollow marks add what the readout needs." if readout else "") + told
    after = any(s.mean_f1 for s in summaries)
    shown = [s for s in summaries if s.mean_f1 or not after]
    what = "Mean F1 after the departure" if after else "F1 at the last evaluated round"
    drawn = legend([look[s.series] for s in shown], switches=False) + scatter(shown, look, traffic)
    caption = f"{what} against a method&rsquo;s own bytes a round, on a logarithmic axis with a column for none.{told}"
    return f"<section><h2>Cost against F1</h2>{figure(drawn, caption)}</section>"


def _confusions(run: Run, look: dict[Series, SeriesStyle]) -> str:
    if not moments(run):
        return ""
    rare = esc(run.rare_name)
    told = f"Fractions of {rare}&rsquo;s test samples by predicted class, all seeds together."
    return f"<section><h2>What {rare} is taken for</h2>{figure(confusions(run, look), told)}</section>"


def _others(run: Run, summaries: Sequence[Summary], look: dict[Series, SeriesStyle]) -> str:
    when = moments(run)
    if not when:
        return ""
    last = when.get("after", when.get("before"))
    change = f", and its change since round {when['before']}" if {"before", "after"} <= set(when) else ""
    many = len(run.classes) - 1 > MOST_COLUMNS
    some = f" Shown are the {MOST_COLUMNS} classes in which rows differ most." if many else ""
    told = (
        f"Recall of each other class at round {last}{change}.{some} “All others” is others_accuracy, the mean over all "
        f"classes but {esc(run.rare_name)}."
    )
    table = figure(others_table(run, summaries, look), told)
    return f"<section><h2>What the other classes pay</h2>{table}</section>"


def _samples(run: Run) -> str:
    path = run.path / "samples.png"
    image = image_uri(path) if path.exists() else None
    if image is None:
        return ""
    rare = esc(run.rare_name)
    shown = f'<img class="samples" alt="Sample images, a row a class, {rare} first" src="{image}">'
    return f"<section><h2>Samples</h2>{figure(shown, f'A row a class; the first is {rare}.')}</section>"


def _settings(run: Run) -> str:
    settings = [(key, _plain(value)) for key, value in run.config.items()]
    apart = {"classes", "rare", "counts", "finished"}
    known = [(k, _plain(v)) for k, v in run.manifest.items() if k not in apart and v not in ([], {})]
    return (
        f"<section><h2>Settings</h2>{pairs(settings)}<h3>Where the numbers come from</h3>{pairs(known)}{_counts(run)}"
        "<h3>To repeat it</h3><pre>mpt run --config config.toml</pre></section>"
        f"<footer>Made by mpt report ({MADE_BY}) from metrics.csv, diagnostics.csv and confusion.csv, which lie beside "
        "this page.</footer>"
    )


def _counts(run: Run) -> str:
    counts = run.manifest.get("counts")
    counts = counts if isinstance(counts, dict) else {}
    items = []
    for index, name in enumerate(run.classes):
        parts = [
            f"{counts[split][index]} {split}"
            for split in ("train", "test")
            if isinstance(counts.get(split), list) and index < len(counts[split])
        ]
        items.append((name, ", ".join(parts)))
    return f"<details><summary>{len(run.classes)} classes and their samples</summary>{pairs(items)}</details>"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
