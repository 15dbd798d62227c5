"""Texts are printed as they are: a class may be called [b], and `folder:car:` is no picture of a car."""

import pytest
from rich.table import Table

from mpt.cli.render import fail, note, prose, say, show

TEXT = "folder:car: no images in [b]x/[/b], should have one :boom:"


def table(text):
    made = Table(text, title=text)
    made.add_row(text)
    show(made)


@pytest.mark.parametrize("printed", [fail, note, prose, say, table])
def test_texts_are_printed_as_they_are(printed, capsys):
    printed(TEXT)
    out, error = capsys.readouterr()
    assert (out + error).count(TEXT) == (3 if printed is table else 1)
