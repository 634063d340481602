"""Tables for people, JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="What to print."
)
bootstrap_option = click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    default="localhost:9092",
    envvar="OTTLA_BOOTSTRAP_SERVER",
    show_default=True,
    help="Any broker of the cluster, host:port; several by comma.",
)

_PIPE_WIDTH = 1000

Row = dict[str, Any]
Command = Callable[..., Any]


def show(rows: Sequence[Row], columns: Iterable[str], output: str, title: str | None = None) -> None:
    """Prints the rows: JSON gets every key, the table gets ``columns`` in that order."""
    if output == "json":
        click.echo(json.dumps(list(rows), indent=2, default=str))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    names = list(columns)
    for name in names:
        numbers = all(isinstance(row.get(name), int | float) for row in rows) and bool(rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in names))
    # A pipe has no width: what is cut into lines for it, no program can put together again.
    Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table)


def cell(value: object) -> str:
    """A value as a table shows it: lists by comma, nothing as a dash, numbers with separators."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value) or "-"
    return str(value)
