"""`reproduce`: compute the cells of some exhibits, and write exhibits, claims and page from what there is."""

import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from mpt.base.files import write_atomically
from mpt.experiments.cells import CellStore
from mpt.experiments.claims import judged
from mpt.experiments.exhibits import EXHIBITS, made
from mpt.experiments.figures import Figure, drawn, looks
from mpt.experiments.page import page
from mpt.experiments.plans import SCALES, CellSpec, Grid
from mpt.experiments.results import Results
from mpt.experiments.sets import parse_sources
from mpt.experiments.sweep import Swept, sweep
from mpt.experiments.table import Table
from mpt.pages.standalone import standalone
from mpt.runs.config import ConfigError

SIZE = (720.0, 380.0)
"""Of the figures' files: about two columns of a paper."""


@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes:
        folder: where everything is.
        files: the exhibits' files.
        swept: of the sweep; None where nothing was to be computed.
        missing: cells that are not there, a sentence each.
    """

    folder: Path
    files: tuple[Path, ...]
    swept: Swept | None
    missing: tuple[str, ...]


def reproduce(
    names: Sequence[str],
    out: Path,
    *,
    scale: str = "quick",
    data: Sequence[str] = (),
    seeds: int | None = None,
    jobs: int | None = None,
    device: str = "auto",
    seconds: float | None = None,
    compute: bool = True,
    png: bool = False,
    methods: Sequence[str] = (),
    models: bool = True,
    console: Console | None = None,
    say: Callable[[str], None] = print,
) -> Reproduction:
    """Make exhibits of the paper in `out`.

    Args:
        names: of `EXHIBITS`, or "all".
        out: a folder; cells are in `out/cells`, which several processes may fill at the same time.
        scale: "paper" or "quick".
        data: as `parse_sources` takes it. At the quick scale, sets that are not named get stand-ins.
        seeds: how many; None: as the scale has it, and cells that have more are shown with all that they have.
        jobs: processes; None: one a GPU, or one a core.
        device: as in `RunConfig`.
        seconds: after these no further cell is begun, and those that are running end; None: all are computed.
        compute: False: only show what is there.
        png: PNG files as well, where a program that draws SVG is installed.
        methods: of your own, or further built-in ones, in cells of their own: a row in Tables 1 to 3, in Figures 4 and
            5, and in the claims.
        models: whether cells keep their models.
        console: for progress.
        say: takes a sentence for the user.
    """
    until = math.inf if seconds is None else time.time() + seconds
    if scale not in SCALES:
        raise ConfigError(f"scale: {scale!r}, should be one of {', '.join(SCALES)}")
    unknown = [n for n in names if n not in EXHIBITS and n != "all"]
    if unknown or not names:
        what = repr(unknown[0]) if unknown else "none"
        raise ConfigError(f"exhibit: {what}, should be one of {', '.join(EXHIBITS)}, all")
    for word, count in (("seeds", seeds), ("jobs", jobs)):
        if count is not None and count < 1:
            raise ConfigError(f"{word}: {count}, should be at least 1")
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds: {seconds:g}, should be above 0")
    ordered = in_order(names)
    chosen = [n for n in EXHIBITS if n in ordered]
    sources = parse_sources(data, stand_ins=scale == "quick")
    planned = seeds or SCALES[scale].seeds
    grid = Grid(SCALES[scale], sources, planned, tuple(methods), models, every_seed=seeds is None)
    _ = grid.own_names  # says what is wrong with a method before anything is computed
    store = CellStore(out / "cells")

    def looked() -> tuple[Results, list[CellSpec]]:
        found = Results(grid, store)
        return found, [w for name in ordered for w in EXHIBITS[name].wanted(found)]

    results, wanted = looked()
    swept = None
    if compute:
        jobs = jobs or _jobs(device)
        while cells := [cell for cell in results.cells(wanted, jobs) if swept is None or cell.key not in swept.asked]:
            new = sweep(cells, store, jobs=jobs, device=device, until=until, console=console or Console())
            swept = new if swept is None else swept + new
            results, wanted = looked()  # what a grid of cells has chosen may ask for more of them
    out.mkdir(parents=True, exist_ok=True)
    shown = [name for name in EXHIBITS if name in chosen or (out / f"{name}.md").exists()]
    files = _write(results, shown, out)
    if png:
        files += _pngs([out / f"{panel}.svg" for name in chosen for panel in _panels(made(name, results))], say)
    return Reproduction(out, tuple(files), swept, tuple(results.missing(wanted)))


def in_order(names: Sequence[str]) -> list[str]:
    """The exhibits asked for in the order in which one process computes them: Table 2, then as they are named."""
    every = EXHIBITS if "all" in names else ()
    return sorted(dict.fromkeys([*(n for n in names if n != "all"), *every]), key=lambda n: n != "table2")


def _jobs(device: str) -> int:
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return os.cpu_count() or 1
    return torch.cuda.device_count() if device in ("auto", "cuda") else 1


def _panels(thing: Table | Figure) -> list[str]:
    """The names of an exhibit's drawings."""
    return [panel.name for panel in thing.panels if panel.drawing is not None] if isinstance(thing, Figure) else []


def _write(results: Results, names: Sequence[str], out: Path) -> list[Path]:
    """Every exhibit's files, the claims, and the page."""
    written = []

    def put(name: str, text: str) -> None:
        write_atomically(out / name, text.encode(), several=True)
        written.append(out / name)

    exhibits = {name: made(name, results) for name in names}
    sources = [source.full_label for source in results.grid.sources.values()]
    claims = judged(results)
    for name, thing in (*exhibits.items(), ("claims", claims)):
        table = thing if isinstance(thing, Table) else thing.table
        if table is not None:
            put(f"{table.name}.md", table.markdown())
            put(f"{table.name}.csv", table.csv())
            put(f"{table.name}.tex", table.latex())
        if isinstance(thing, Figure):
            sets = dict.fromkeys(w.set for w in EXHIBITS[name].wanted(results) if w.set in results.grid.sources)
            used = [results.grid.sources[s] for s in sets]
            shown = [s.short if used[1:] else s.label for s in used]  # one line has no room for several labels
            if name == "regimes":
                shown = [f"{s.name} ({', '.join(s.tuning)})" if used[1:] else s.tuning_label for s in used]
            caption = f"{'; '.join(shown)}, scale {results.grid.scale.name}"
            for panel in thing.panels:
                if panel.drawing is not None:
                    drawing = drawn(panel.drawing, *SIZE)
                    put(f"{panel.name}.svg", standalone(drawing, list(looks(results.grid.own_names).values()), caption))
    styles = list(looks(results.grid.own_names).values())
    put("index.html", page(exhibits, claims, sources, results.grid.scale.name, styles))
    return written


def _pngs(drawings: Sequence[Path], say: Callable[[str], None]) -> list[Path]:
    """The drawings as PNG at twice their size, by the first of three programs that is installed."""
    rsvg, inkscape = shutil.which("rsvg-convert"), shutil.which("inkscape")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not (rsvg or inkscape or chromium):
        say("png: none were made, rsvg-convert, inkscape or chromium should be installed")
        return []
    made = []
    for svg in drawings:
        target = svg.with_suffix(".png")
        target.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as place:
            if rsvg:
                command = [rsvg, "--zoom=2", f"--output={target}", str(svg)]
            elif inkscape:
                command = [inkscape, str(svg), "--export-dpi=192", f"--export-filename={target}"]
            else:
                root = ElementTree.parse(svg).getroot()
                width, height = (math.ceil(float(root.get(side, "0"))) for side in ("width", "height"))
                flags = ["--headless", "--no-sandbox", "--disable-gpu", "--force-device-scale-factor=2"]
                where = [f"--user-data-dir={place}", f"--window-size={width},{height}"]
                shot = f"--screenshot={target.resolve()}"
                command = [str(chromium), *flags, *where, shot, svg.resolve().as_uri()]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, check=False, timeout=60)
        if not target.exists():
            say(f"png: {svg.name} could not be drawn by {Path(command[0]).name}")
        else:
            made.append(target)
    return made
