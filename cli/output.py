"""Tables for people, JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.runtime.printable import plain as plain

BROKER_PORT = 9092

# A pipe has no width: what is cut into lines for it, no program can put together again.
WHOLE_WIDTH = 1 << 20

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="What to print."
)


Command = Callable[..., Any]


def with_ports(_context: click.Context, option: click.Parameter, text: str) -> str:
    """``a,b:9093`` with a port for each, Kafka's own where none is given: what takes it from here is never asked again."""
    from ottla.runtime.settings.endpoints import parse_endpoint
    from ottla.runtime.settings.setting_error import SettingError

    try:
        return ",".join(str(parse_endpoint(each.strip(), option.opts[0], BROKER_PORT)) for each in text.split(","))
    except SettingError as error:
        raise click.UsageError(str(error)) from None


def bootstrap_option_with(words: str) -> Callable[[Command], Command]:
    """``-b``, with that help."""
    return click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        default="localhost:9092",
        envvar="OTTLA_BOOTSTRAP_SERVER",
        show_default=True,
        callback=with_ports,
        help=words,
    )


bootstrap_option = bootstrap_option_with(
    f"Any broker of the cluster, host[:port]; several by comma. Without a port it is {BROKER_PORT}."
)

if TYPE_CHECKING:
    StringChoice = click.Choice[str]
else:
    StringChoice = click.Choice  # Click 8.1 knows no type of it


class AnyCase(StringChoice):
    """Taken in any case, and told as written here: Click's own tells them in small letters."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        meant = next((each for each in self.choices if each.lower() == value.lower()), value)
        return super().convert(meant, param, ctx)


PARTITION = click.IntRange(0, (1 << 31) - 1)
Texts = TypeVar("Texts", str, str | None, tuple[str, ...])


def in_utf8(_context: click.Context, option: click.Parameter, given: Texts) -> Texts:
    """For what librdkafka's binding is given: over other bytes it takes the whole process with it."""
    for text in (given,) if isinstance(given, str) else given or ():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{option.opts[0]}: {text!a} is not UTF-8") from None
    return given


Row = dict[str, Any]


def show(rows: Sequence[Row], columns: Iterable[str], output: str, title: str | None = None) -> None:
    """Prints the rows: JSON gets every key, the table gets ``columns`` in that order."""
    if output == "json":
        click.echo(json.dumps(list(rows), indent=2, default=str))
        return
    names = list(columns)
    cells = [[cell(row.get(name)) for name in names] for row in rows]
    numbers = [bool(rows) and all(isinstance(row.get(name), int | float) for row in rows) for name in names]
    widths = [max(map(_width, column)) for column in zip(names, *cells, strict=True)]
    is_terminal = sys.stdout.isatty()
    if not is_terminal or sum(widths) + 2 * len(widths) <= get_terminal_size().columns:
        heading = (
            click.style(_line(names, widths, numbers), bold=True) if is_terminal else _line(names, widths, numbers)
        )
        lines = [title or ""] * bool(title) + [heading] + [_line(each, widths, numbers) for each in cells]
        click.echo("\n".join(lines))
    else:
        _show_folded(names, cells, numbers, title)


def _line(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = [
        " " * (width - _width(text)) + text if is_number else text + " " * (width - _width(text))
        for text, width, is_number in zip(cells, widths, numbers, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """In columns of a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _show_folded(
    names: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool], title: str | None
) -> None:
    """On a terminal that is too narrow."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, is_number in zip(names, numbers, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    Console(highlight=False).print(table)


def cell(value: object) -> str:
    """A value as a table shows it: lists by comma, nothing as a dash, numbers with separators."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return ",".join(plain(str(each)) for each in value) or "-"
    return plain(str(value))
