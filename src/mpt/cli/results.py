"""What is made of a run's folder later: `mpt report`, `mpt replay`, `mpt tune` and `mpt compare`."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import click
import typer

from mpt.base.extensions import split
from mpt.base.files import write_atomically
from mpt.cli.render import note, say, show


def add_to(app: typer.Typer) -> None:
    """Add these commands to `mpt`."""
    app.command()(report)
    app.command()(replay)
    app.command()(tune)
    app.command()(compare)


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="folder that mpt run --out has written")],
    show_it: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Make RUN/report.html, one page that needs no network."""
    from mpt.report import write_report
    from mpt.report.scenario import is_scenario, write_scenario_report

    page = (write_scenario_report if is_scenario(folder) else write_report)(folder)
    say(f"written: {page}")
    if show_it and not _opened(page):
        note(f"no browser could be started here, open {page.resolve()} in one")


def _opened(page: Path) -> bool:
    """Whether a browser was started, without what the desktop's program prints where there is none."""
    if sys.platform in ("darwin", "win32"):
        return typer.launch(page.resolve().as_uri()) == 0
    program = shutil.which("xdg-open")
    if program is None:
        return False
    quiet = subprocess.DEVNULL
    started = subprocess.Popen([program, str(page.resolve())], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        return started.wait(timeout=3) == 0
    except subprocess.TimeoutExpired:  # the browser itself
        return True


def replay(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run, best made with --record")],
    methods: Annotated[
        str, typer.Option(help="names as in `mpt methods`, or path.py:Class, with commas between; default: the run's")
    ] = "",
    readout: Annotated[
        str, typer.Option(help="names as in `mpt readouts`, or path.py:Class, with commas between; default: the run's")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an earlier row of the same name")] = False,
    device: Annotated[str, typer.Option(help="where models are loaded, without a record: auto, cpu, cuda")] = "auto",
) -> None:
    """Score methods and readouts on a finished run, without training, and put them into its report.

    From a record (mpt run --record) all evaluated rounds; else, from the models that the run has kept, the round of the
    departure and the last.
    """
    from mpt.cli.render.summary import print_summary
    from mpt.report import write_report
    from mpt.runs.replay import replay as replayed

    start = time.perf_counter()
    found = replayed(folder, split(methods), readouts=split(readout), overwrite=overwrite, device=device)
    page = write_report(folder) if found.new else folder / "report.html"
    print_summary(found.figures, found.dataset)
    say()
    for series, again in found.again.items():
        name = series.method if series.readout in ("own", *found.config.readout[:1]) else " ".join(series)
        if again.differ:
            note(
                f"{name}: {again.differ} of the run's {again.rows} rows differ, in F1 by up to {again.largest:.6f}; "
                "the run's own are shown"
            )
        else:
            note(f"{name}: the run's own numbers again, in all {again.rows} rows")
    if found.new:
        names = ", ".join(dict.fromkeys(series.method for series in found.new))
        two = f", in rounds {' and '.join(map(str, found.rounds))}, too few for a mean"
        rounds = "" if found.config.record else two
        note(f"{names}: replayed in {time.perf_counter() - start:.1f} s{rounds}, in {folder / 'replay'}")
    say(str(page))


def tune(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="folders of mpt run --record, or with several such in them")
    ],
    budget: Annotated[int, typer.Option(help="tries of every method, its default setting among them")],
    methods: Annotated[
        str,
        typer.Option(
            help="names as in `mpt methods`, or path.py:Class, with commas between; default: all with a space"
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="CSV file with a line a try; what it has is not tried again")] = Path(
        "tune.csv"
    ),
    seed: Annotated[int, typer.Option(help="of the settings that are drawn")] = 0,
    figure: Annotated[
        str, typer.Option(help="F1 that is a share of oracle-train's: mean_f1, after the departure, or last_f1")
    ] = "mean_f1",
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Try settings of methods on recorded runs, as many for each, without training or writing there."""
    from mpt.cli.render import tuning
    from mpt.runs.tune import tune as tuned

    with tuning.TuningStatus() as status:
        found = tuned(runs, split(methods), budget=budget, out=out, seed=seed, figure=figure, progress=status, say=note)
    if as_json:
        click.echo(tuning.as_json(found))
        return
    show(tuning.tuning_table(found))
    for sentence in tuning.remarks(found):
        note(sentence)
    say(str(out))


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="a run's folder, or one with several runs in it")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="another one; default: A, with --against")] = None,
    methods: Annotated[
        str, typer.Option("--methods", "--method", help="methods of A, with commas between; default: all")
    ] = "",
    against: Annotated[str | None, typer.Option(help="the method of B to compare with; default: the same")] = None,
    of_class: Annotated[str | None, typer.Option("--class", help="whose F1; default: the class that departs")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="as CSV, a line a cell and method")] = False,
    latex: Annotated[Path | None, typer.Option(metavar="FILE", help="write the tables as LaTeX, too")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="write them as one page, too")] = None,
) -> None:
    """Paired differences over seeds, A less B, with tests, cell by cell and pooled over cells.

    With p-values, Holm's correction, and the smallest difference that so many seeds could have shown.
    """
    from mpt.cli.render import comparison, comparison_latex, comparison_page
    from mpt.runs.compare import CompareError
    from mpt.runs.compare import compare as compared

    if as_json and as_csv:
        raise CompareError("compare: --json and --csv, should be one of them")
    if latex is not None and html is not None and latex.resolve() == html.resolve():
        raise CompareError(f"compare: --latex and --html are both {latex}, should be two files")
    found = compared(a, b, methods=split(methods), against=against, of_class=of_class)
    for path, render in ((latex, comparison_latex.as_latex), (html, comparison_page.as_page)):
        if path is not None:
            _write(path, render(found))
            note(f"written: {path}")
    if as_json:
        click.echo(comparison.as_json(found))
        return
    if as_csv:
        click.echo(comparison.as_csv(found), nl=False)
    else:
        comparison.print_comparison(found)
    for name, (here, there) in found.differ.items():
        note(f"{name} is {', '.join(map(str, here))} in A and {', '.join(map(str, there))} in B")
    for sentence in found.unpaired[:MOST_NOTES]:
        note(f"not paired: {sentence}")
    if len(found.unpaired) > MOST_NOTES:
        note(f"not paired: {len(found.unpaired) - MOST_NOTES} more, which --json lists")


MOST_NOTES = 5
"""Of what is not paired, in the terminal."""


def _write(path: Path, text: str) -> None:
    from mpt.runs.compare import CompareError

    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise CompareError(f"{path}: cannot be written ({error.strerror}), should be a file of yours") from None
