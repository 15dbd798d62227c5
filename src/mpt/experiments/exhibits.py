"""Every exhibit: which cells it needs, and how it is made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mpt.experiments import figures, tables
from mpt.experiments.beyond import beyond, beyond_wanted, with_further
from mpt.experiments.figures import Figure
from mpt.experiments.plans import CellSpec
from mpt.experiments.regime_figure import regimes
from mpt.experiments.regime_tables import (
    network_table2,
    network_table2_wanted,
    regime_claims,
    regime_claims_wanted,
    regime_gaps,
    regime_gaps_wanted,
    regime_table2,
    regime_table2_wanted,
    uneven,
    uneven_wanted,
)
from mpt.experiments.regimes import regimes_wanted
from mpt.experiments.results import Results
from mpt.experiments.sets import SETS, Source
from mpt.experiments.table import Table

NAMED = 6
"""How many missing cells a note names."""


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure of the paper.

    Attributes:
        wanted: the cells it shows.
        make: it, from what there is.
    """

    wanted: Callable[[Results], Sequence[CellSpec]]
    make: Callable[[Results], Table | Figure]


def _further(wanted: Callable[[Results], Sequence[CellSpec]]) -> Callable[[Results], list[CellSpec]]:
    return lambda results: with_further(results, wanted(results))


def _one(wanted: Callable[[Results], CellSpec]) -> Callable[[Results], list[CellSpec]]:
    return lambda results: [wanted(results)]


EXHIBITS: dict[str, Exhibit] = {
    "table1": Exhibit(lambda results: [], tables.table1),
    "table2": Exhibit(_further(tables.table2_wanted), tables.table2),
    "table3": Exhibit(_further(tables.table3_wanted), tables.table3),
    "fig2a": Exhibit(_one(figures.fig2_wanted), figures.fig2a),
    "fig2b": Exhibit(_one(figures.fig2_wanted), figures.fig2b),
    "fig2c": Exhibit(_one(figures.fig2_wanted), figures.fig2c),
    "fig2d": Exhibit(figures.fig2d_wanted, figures.fig2d),
    "fig4": Exhibit(_further(lambda results: [CellSpec()]), figures.fig4),
    "fig5": Exhibit(_further(figures.fig5_wanted), figures.fig5),
    "fig6": Exhibit(lambda results: [CellSpec()], figures.fig6),
    "fig7": Exhibit(figures.fig7_wanted, figures.fig7),
    "departure": Exhibit(tables.departure_wanted, tables.departure),
    "augmentation": Exhibit(tables.augmentation_wanted, tables.augmentation),
    "beyond": Exhibit(beyond_wanted, beyond),
    "regimes": Exhibit(regimes_wanted, regimes),
    "table2-regime": Exhibit(regime_table2_wanted, regime_table2),
    "table2-network": Exhibit(network_table2_wanted, network_table2),
    "gaps-regime": Exhibit(regime_gaps_wanted, regime_gaps),
    "claims-regime": Exhibit(regime_claims_wanted, regime_claims),
    "uneven": Exhibit(uneven_wanted, uneven),
}
"""By the names that `mpt reproduce` takes; Figures 1 and 3 of the paper are drawings of the scenario and the design."""


def made(name: str, results: Results) -> Table | Figure:
    """An exhibit with the names of its data, and what is missing."""
    exhibit = EXHIBITS[name]
    wanted = exhibit.wanted(results)
    thing = exhibit.make(results)
    sets = dict.fromkeys(w.set for w in wanted)
    notes = list(thing.notes)
    sources = [results.grid.sources[s] for s in sets if s in results.grid.sources]
    labels = [_label(name, source) for source in sources]
    if labels:
        notes.append(f"Data: {'; '.join(labels)}. {_made_with(results, wanted)}")
    missing = results.missing(wanted)
    if missing:
        more = f"; and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        notes.append(f"Missing: {'; '.join(missing[:NAMED])}{more}. To compute them: {command(name, results)}")
    notes = list(dict.fromkeys(notes))
    if isinstance(thing, Figure) and thing.table is not None:
        thing = replace(thing, table=replace(thing.table, notes=tuple(notes)))
    return replace(thing, notes=tuple(notes))


def _label(name: str, source: Source) -> str:
    """The data's name with the classes that depart in an exhibit."""
    if name == "regimes":
        return source.tuning_label
    return source.full_label if name == "beyond" else source.label


def _made_with(results: Results, wanted: Sequence[CellSpec]) -> str:
    """Scale, seeds and devices."""
    found = [o for w in wanted if (o := results.of(w)) is not None]
    devices = sorted({str(o.manifest.get("device", "")) for o in found} - {""})
    counts = {o.seeds for o in found} or {results.grid.seeds}
    fewest, most = min(counts), max(counts)
    seeds = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    where = f", computed on {' and '.join(devices)}" if devices else ""
    warning = (
        " This scale shows that everything runs; it decides nothing." if results.grid.scale.name == "quick" else ""
    )
    return f"Scale {results.grid.scale.name}, {seeds}{where}.{warning}"


def command(name: str, results: Results) -> str:
    """What computes an exhibit's cells."""
    named = [f" --data '{s.set}={s.spec}:{s.classes}'" for s in results.grid.sources.values()]
    unnamed = [f" --data {s}=DATASET:CLASS" for s in SETS if s not in results.grid.sources]
    used = dict.fromkeys(w.set for w in EXHIBITS[name].wanted(results))
    told = [text for text in (*named, *unnamed) if any(f"{s}=" in text for s in used)]
    own = f" --methods '{','.join(results.grid.own)}'" if results.grid.own else ""
    return f"mpt reproduce {name} --scale {results.grid.scale.name} --seeds {results.grid.seeds}{''.join(told)}{own}"
