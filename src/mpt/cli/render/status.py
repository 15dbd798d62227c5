"""`mpt fleet status` as tables."""

from rich.table import Table

from mpt.cli.render import say, show
from mpt.fleet.status import Status
from mpt.tracking.roster import STATES, printable


def print_status(found: Status, most: int | None) -> None:
    """Vehicles, classes, tracked ones and problems, at most so many of each."""
    when = f"after round {found.round}{f', {found.time}' if found.time else ''}"
    scored = "" if found.accuracy is None else f", accuracy {found.accuracy:.3f}"
    states = [v.state for v in found.vehicles]
    always = ("present", "suspected", "departed")
    counted = ", ".join(f"{states.count(s):,} {s}" for s in STATES if s in always or s in states)
    named = any(v.name for v in found.vehicles)
    rows = sorted(found.vehicles, key=lambda v: v.state == "present")
    columns = ["vehicle", *(["id"] if named else []), "state", "since round", "seen in round", "samples"]
    say(f"{when}{scored}\n{len(states):,} vehicles: {counted}\n")
    vehicles = plain_table(*columns)
    for v in rows[:most]:
        who = (v.name or v.vehicle, v.vehicle) if named else (v.vehicle,)
        add_row(vehicles, *who, v.state, v.since, v.seen, "" if v.samples is None else v.samples)
    show(vehicles)
    _left_out(len(rows), most, "vehicles")
    _print_uncounted(found, most)
    scores = found.accuracy is not None
    classes = plain_table(
        "class", *(["F1"] if scores else []), "samples", "largest share", "on vehicle", "watched since", title=" "
    )
    for c in found.classes:
        share = f"{c.share:.0%}{' hangs on it' if c.hangs else ''}"
        f1 = ["" if c.f1 is None else f"{c.f1:.3f}"] if scores else []
        add_row(classes, c.name, *f1, c.samples, share, c.holder_name or c.holder or "", c.watched_since or "")
    show(classes)
    _print_tracked(found)
    _print_evidence(found)
    _print_shadow(found)
    if found.problems:
        problems = plain_table("problems of the last round", title=" ")
        for problem in found.problems[:most]:
            add_row(problems, problem)
        show(problems)
        _left_out(len(found.problems), most, "problems")


def _print_uncounted(found: Status, most: int | None) -> None:
    """The vehicles whose answers do not count, and why; and how many replies were refused so far."""
    rows = [v for v in found.vehicles if v.why]
    if rows:
        table = plain_table("does not count", "state", "why", title=" ")
        for v in rows[:most]:
            add_row(table, v.name or v.vehicle, v.state, v.why)
        show(table)
        _left_out(len(rows), most, "vehicles")
    if clipped := [v.name or v.vehicle for v in found.vehicles if v.clipped]:
        more = "" if most is None or len(clipped) <= most else f" and {len(clipped) - most:,} more"
        say(f"\nclipped, so that not all of the last answer counts: {printable(', '.join(clipped[:most]))}{more}")
    if found.refusals:
        counted = ", ".join(f"{times:,} {reason}" for reason, times in sorted(found.refusals.items()))
        say(f"\nreplies refused since the fleet began: {counted}")


def _print_shadow(found: Status) -> None:
    """That nothing changes in training without approval, and what waits for it."""
    if found.shadow:
        waiting = ", ".join(found.unapproved) or "none"
        approved = ", ".join(c.name for c in found.classes if c.approved) or "none"
        say(f"\nshadow mode: departed and not approved, so trained on: {printable(waiting)}")
        say(f"approved, so not trained on once departed: {printable(approved)}")


def _left_out(rows: int, most: int | None, of: str) -> None:
    if most is not None and rows > most:
        say(f" and {rows - most:,} more {of}: --all lists them, --json has them")


def _print_tracked(found: Status) -> None:
    """The classes with a deposit."""
    names = {v.vehicle: v.name or v.vehicle for v in found.vehicles}
    table = plain_table("tracked", "state", "deposit", "of", "remain", "has moved", "verdict", title=" ")
    for c in found.classes:
        if c.tracked is not None:
            t = c.tracked
            owners = ", ".join(names.get(v, v) for v in t.owners)
            moved = t.moved if t.moved_mahalanobis is None else t.moved_mahalanobis
            verdict = "" if t.verdict is None else f"{t.verdict}, error {t.expected_error:.2g}"
            deposit = f"round {t.deposit_round}, {t.samples_then} samples"
            remain = f"{t.remaining}" + (f" and {t.stale}" if t.stale else "")
            add_row(table, c.name, t.state, deposit, owners, remain, "" if moved is None else f"{moved:.3g}", verdict)
    if table.row_count:
        show(table)


def _print_evidence(found: Status) -> None:
    """How vehicles' validation samples are recognised, class by class."""
    if found.evidence_round is None:
        return
    vehicles, number = found.evidence_vehicles, found.evidence_round
    say(f"\nevidence: validation samples on {vehicles:,} vehicles, readout of round {number}")
    table = plain_table("class", "state", "recall", "95% interval")
    for c in found.classes:
        if c.recall is not None:
            r = c.recall
            share = f" = {r.right / r.samples:.3f}" if r.samples else ""
            interval = f"[{r.low:.3f}, {r.high:.3f}]" if r.samples else "not known"
            add_row(table, c.name, "" if c.state == "trained" else c.state, f"{r.right}/{r.samples}{share}", interval)
    show(table)


def plain_table(*columns: str, title: str | None = None) -> Table:
    """A table without lines, whose cells are folded."""
    table = Table(title=title, title_justify="left", box=None)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def add_row(table: Table, *cells: object) -> None:
    """A row of plain text."""
    table.add_row(*(printable(str(cell)) for cell in cells))
