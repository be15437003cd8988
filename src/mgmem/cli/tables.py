"""Tables on the terminal, and whole ones in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console, JustifyMethod
from rich.table import Table


def new_table(*columns: str, left: tuple[str, ...] = ()) -> Table:
    """A plain table; columns are right-aligned but the first and those in ``left``."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        justify: JustifyMethod = "left" if index == 0 or column in left else "right"
        table.add_column(column, justify=justify, no_wrap=True)
    return table


def print_table(table: Table) -> None:
    """Print; a pipe has no width of its own, so there nothing is cut."""
    Console(width=None if sys.stdout.isatty() else 200).print(table)
