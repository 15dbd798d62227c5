r"""`mpt compare` as LaTeX, for \usepackage{booktabs}."""

from mpt.base.text import score
from mpt.cli.render import comparison_lines as lines
from mpt.experiments.table import Entry, Table, TableRow
from mpt.runs.compare import Comparison
from mpt.runs.pair import Pair

_TESTED = ("A less B", "p", "Holm", "could show")


def as_latex(found: Comparison) -> str:
    """The cells' table, and below it the pooled one where there are several cells."""
    tables = [_cells(found), *([_pooled(found)] if found.pooled else [])]
    return "\n".join(table.latex() for table in tables)


def _cells(found: Comparison) -> Table:
    several = len({pair.rows for pair in found.pairs}) > 1
    heads = [*(["method"] if several else []), "seeds", "F1 of A", "F1 of B", *_TESTED, "last round", "bal. acc."]
    rows = tuple(TableRow(str(found.names[pair.cells]), _entries(found, pair, several)) for pair in found.pairs)
    return Table(
        "compared", lines.title(found), "cell", tuple(("", head) for head in heads), rows, tuple(lines.about(found))
    )


def _entries(found: Comparison, pair: Pair, several: bool) -> tuple[Entry, ...]:
    test = pair.mean_f1.difference
    method = [lines.label_of(found, pair.rows)] if several else []
    texts = [*method, str(len(pair.seeds)), score(pair.mean_f1.one), score(pair.mean_f1.other)]
    texts += [lines.difference(test), lines.p_value(test.p), lines.p_value(pair.holm), lines.smallest(test)]
    texts += [lines.short_difference(figure.difference) for figure in (pair.last_f1, pair.balanced)]
    return tuple(map(Entry, texts))


def _pooled(found: Comparison) -> Table:
    columns = (("", "over"), ("", "n"), *(("", name) for name in _TESTED))
    rows = []
    for one in found.pooled:
        texts = [lines.OVER[one.over], str(one.test.n), lines.difference(one.test), lines.p_value(one.test.p)]
        texts += [lines.p_value(one.holm), lines.smallest(one.test)]
        rows.append(TableRow(lines.label_of(found, one.rows), tuple(map(Entry, texts))))
    title = f"{lines.title(found)}, pooled over cells"
    return Table("pooled", title, "method", columns, tuple(rows), tuple(lines.about_pooled(found)))
