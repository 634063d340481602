"""Tables for people, JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

BROKER_PORT = 9092

# A pipe has no width: what is cut into lines for it, no program can put together again.
WHOLE_WIDTH = 1 << 20

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="What to print."
)


def with_ports(_context: click.Context, option: click.Parameter, text: str) -> str:
    """``a,b:9093`` with a port for each, Kafka's own where none is given: what takes it from here is never asked again."""
    from ottla.runtime.settings.definitions import SettingError
    from ottla.runtime.settings.endpoints import parse_endpoint

    try:
        return ",".join(str(parse_endpoint(each.strip(), option.opts[0], BROKER_PORT)) for each in text.split(","))
    except SettingError as error:
        raise click.UsageError(str(error)) from None


bootstrap_option = click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    default="localhost:9092",
    envvar="OTTLA_BOOTSTRAP_SERVER",
    show_default=True,
    callback=with_ports,
    help=f"Any broker of the cluster, host[:port]; several by comma. Without a port it is {BROKER_PORT}.",
)

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
    Console(highlight=False, width=None if sys.stdout.isatty() else WHOLE_WIDTH).print(table)


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
