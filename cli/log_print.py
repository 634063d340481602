"""What `ottla log dump` prints: rows of files, or findings."""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import msgspec

from ottla.cli.failures import CommandError
from ottla.cli.log_records import decoder_of
from ottla.cli.output import WHOLE_WIDTH, cell
from ottla.log.tools.dump import Damage, Row, dump_file
from ottla.log.tools.verify import Finding, verify, verify_root
from ottla.runtime.real_disk import RealDisk

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", ".metadata", ".properties")


def print_all(paths: tuple[Path, ...], output: str, *, records: bool) -> None:
    """The rows of every file that the paths name; ``records``: also of every record."""
    for path in paths:
        for file in _files(path):
            _print(file, dump_file(RealDisk(), str(file), records=records, decode=decoder_of(file.parent.name)), output)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(DUMPED))


def _print(path: Path, rows: Iterator[Row], output: str) -> None:
    if output == "json":
        for row in rows:
            line = {"file": str(path), **msgspec.to_builtins(row)}
            sys.stdout.buffer.write(msgspec.json.encode(line, enc_hook=str) + b"\n")
        return
    click.echo(click.style(str(path), bold=True))
    for kind, group in groupby(rows, key=type):
        if kind is Damage:
            for damage in group:
                assert isinstance(damage, Damage)
                click.echo(f"  broken off at byte {damage.position}: {damage.reason}", err=True)
        else:
            _table(list(group))


def _table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    names = rows[0].__struct_fields__
    table = Table(*names, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_cell(getattr(row, name)) for name in names))
    # A batch has more columns than a terminal has room: lines that wrap can be read, columns of no width cannot.
    Console(highlight=False, width=WHOLE_WIDTH).print(table, soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return cell(value)


def verify_all(paths: tuple[Path, ...], output: str) -> None:
    """Raises CommandError when there is a fault."""
    findings: list[Finding] = []
    for path in paths:
        if not path.is_dir():
            raise CommandError(f"{path} is a file: --verify takes a partition's directory or a log directory")
        partition = any(file.suffix == ".log" for file in path.iterdir())
        findings.extend((verify if partition else verify_root)(RealDisk(), str(path)))
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    else:
        for finding in findings:
            click.echo(str(finding))
    faults = sum(finding.fault for finding in findings)
    if faults:
        raise CommandError(f"{faults} faults found")
    click.echo(f"sound ({len(findings)} notes)", err=True)
