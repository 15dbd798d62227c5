"""What `mpt.simulate` gives: the tables, and what people want to see of them first."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mpt.base.seeds import Series
from mpt.base.text import score
from mpt.pages.html import DASH, with_deviation
from mpt.pages.lines import Chart, last_round, lines_of
from mpt.pages.standalone import standalone
from mpt.pages.styles import SeriesStyle, styles_of
from mpt.pages.svg import esc
from mpt.runs.compare import pair_in
from mpt.runs.config import RunConfig
from mpt.runs.errors import RunError
from mpt.runs.pair import Pair
from mpt.runs.reader import Run
from mpt.runs.summary import Figures, curves, records
from mpt.runs.tables import COLUMNS, Tables, pandas


@dataclass(frozen=True, repr=False)
class RunResult:
    """The tables of all seeds as data frames, and where they come from.

    Attributes:
        config: the settings.
        manifest: versions, device and dataset, as in `manifest.json`.
        tables: what was measured, as records.
        computed: False where a finished run was found in the folder.
        folder: where its files are; None where nothing was written.
    """

    config: RunConfig
    manifest: dict[str, Any]
    tables: Tables
    computed: bool = True
    folder: Path | None = None

    def __repr__(self) -> str:
        what = f"{self.config.dataset} without {self.figures.departing!r} after round {self.config.depart_at}"
        looks = styles_of(self.figures.series)
        f1 = ", ".join(f"{looks[row.series].label} {row.last_f1.mean:.3f}" for row in self.figures.summaries)
        return f"<RunResult: {what} of {self.config.rounds}, F1 at the end: {f1}>"

    def to_pandas(self, table: str = "metrics") -> Any:
        """One of its tables, metrics, diagnostics or confusion, as a data frame; or the summary."""
        if table == "summary":
            return self.summary
        if table not in COLUMNS:
            raise RunError(f"table: {table!r}, should be one of {', '.join(COLUMNS)}, summary")
        return self.tables.frame(table)

    def compare(self, one: str, other: str, readout: str | None = None) -> Pair:
        """What one method's F1 is ahead of another's, paired over seeds, with its interval and test.

        Args:
            one: the method.
            other: the one that it is compared with.
            readout: of both, where they have several; default: the first.
        """
        return pair_in(self.as_read, one, other, readout)

    def plot_f1(self, ax: Any = None) -> Any:
        """F1 of the class that departs by round, into `ax` or a new figure of matplotlib; returns the axes."""
        try:
            from matplotlib import pyplot  # noqa: PLC0415 - where it is asked for
        except ImportError:
            raise RunError("plot_f1 needs matplotlib, which is not installed; pip install matplotlib") from None
        ax = pyplot.subplots(figsize=(8, 4), layout="constrained")[1] if ax is None else ax
        for row, look in styles_of(self.figures.series).items():
            points = self.figures.curve(row, "f1").points
            rounds, means = list(points), [p.mean for p in points.values()]
            ax.plot(rounds, means, color=look.light, linewidth=look.width, label=look.label)
            apart = [p.deviation or 0.0 for p in points.values()]
            if any(apart):
                low, high = ([m + sign * a for m, a in zip(means, apart, strict=True)] for sign in (-1, 1))
                ax.fill_between(rounds, low, high, color=look.light, alpha=0.1, linewidth=0)
        ax.axvline(self.config.depart_at, color="black", linestyle=":", linewidth=1)
        ax.set(xlabel="round", ylabel=f"F1 of {self.figures.departing}", ylim=(0, 1))
        ax.legend(fontsize="small")
        return ax

    def _repr_html_(self) -> str:
        """For notebooks: the summary, and F1 by round as a picture."""
        looks = styles_of(self.figures.series)
        heads = ("", "at the departure", "last round", "mean after", "balanced accuracy")
        lines = []
        for row in self.figures.summaries:
            before = DASH if row.departure_f1 is None else score(row.departure_f1)
            cells = (before, with_deviation(row.last_f1), with_deviation(row.mean_f1), with_deviation(row.balanced))
            shown = "".join(f"<td>{one}</td>" for one in cells)
            lines.append(f'<tr><th scope="row">{esc(looks[row.series].label)}</th>{shown}</tr>')
        head = "".join(f'<th scope="col">{one}</th>' for one in heads)
        what = f"F1 of {esc(repr(self.figures.departing))} on {esc(self.config.dataset)}"
        packed = b64encode(self._drawn(looks).encode()).decode()
        return (
            f"<table><caption>{what}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
            f'<img alt="{what} by round" src="data:image/svg+xml;base64,{packed}">'
        )

    def _drawn(self, looks: Mapping[Series, SeriesStyle]) -> str:
        f1, departs = curves(self.figures, "f1"), self.config.depart_at
        label, note = f"F1 of {self.figures.departing}", f"{self.figures.departing} departs after round {departs}"
        last = max(last_round(list(f1.values())), departs)
        chart = Chart("f1", label, lines_of(f1, looks), departs, last, note, 1.0)
        return standalone(chart.draw(720, 340, labels=True), list(looks.values()), f"{self.config.dataset}, {note}")

    @property
    def as_read(self) -> Run:
        """The run, as `read_run` reads it from a folder."""
        return Run(self.folder or Path(), asdict(self.config), self.manifest, self.tables, {})

    @property
    def metrics(self) -> Any:
        """One row a seed, evaluated round, method, readout and class."""
        return self.tables.frame("metrics")

    @property
    def diagnostics(self) -> Any:
        """What methods noted (MPT: alpha, growth, lengths); rows without a method have the feature space's drift."""
        return self.tables.frame("diagnostics")

    @property
    def confusion(self) -> Any:
        """Test samples by label and prediction, in the round of the departure and the last."""
        return self.tables.frame("confusion")

    @property
    def figures(self) -> Figures:
        """Of the class that departs: what every summary is taken from."""
        departing = self.manifest["classes"][self.manifest["rare"]]
        return Figures.of(self.tables.metrics, departing, self.config.depart_at)

    @property
    def summary(self) -> Any:
        """One row a method and readout: F1 at the departure, at the last round and on average after the departure."""
        return pandas().DataFrame.from_records(records(self.figures.summaries))
