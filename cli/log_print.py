"""What `ottla log dump` prints: rows of files, or findings."""

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import click
import msgspec

from ottla.cli.failures import CommandError
from ottla.cli.log_records import decoder_of
from ottla.cli.output import WHOLE_WIDTH, cell, plain
from ottla.log.tools.dump import Damage, Row, dump_file
from ottla.log.tools.verify import Finding, verify, verify_root
from ottla.runtime.real_disk import RealDisk

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
NAMED = ("-checkpoint", "partition.metadata", "meta.properties")
_OF_A_SEGMENT = re.compile(r"\d{20}\b")
_PARTITION = re.compile(r".+-\d+")


def print_all(paths: tuple[Path, ...], output: str, *, records: bool) -> None:
    """The rows of every file that the paths name; ``records``: also of every record."""
    for path in paths:
        for file in _files(path):
            try:
                rows = dump_file(RealDisk(), str(file), records=records, decode=decoder_of(file.parent.name))
            except ValueError as error:
                raise CommandError(str(error)) from error
            _print(file, rows, output)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    _is_partition(path)  # or it is nothing to dump
    return sorted(file for file in path.iterdir() if file.is_file() and _is_dumped(file.name))


def _is_dumped(name: str) -> bool:
    return name.endswith(NAMED) or (name.endswith(DUMPED) and _OF_A_SEGMENT.match(name) is not None)


def _is_partition(directory: Path) -> bool:
    """Otherwise it is a log directory. Raises CommandError where it is neither: nothing in there would be found unsound."""
    if _holds_a_log(directory):
        return True
    if not any(each.name.endswith(NAMED) or _is_of_a_partition(each) for each in directory.iterdir()):
        raise CommandError(f"{directory} is neither a partition's directory nor a log directory (a node's log.dirs)")
    return False


def _is_of_a_partition(path: Path) -> bool:
    """Not by its name alone: so are the homes of nodes called."""
    return _PARTITION.fullmatch(path.name) is not None and path.is_dir() and _holds_a_log(path)


def _holds_a_log(directory: Path) -> bool:
    names = [each.name for each in directory.iterdir()]
    return "partition.metadata" in names or any(map(_OF_A_SEGMENT.match, names))


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
    from rich.markup import escape
    from rich.table import Table

    names = rows[0].__struct_fields__
    table = Table(*names, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(_cell(getattr(row, name))) for name in names))
    # A batch has more columns than a terminal has room: lines that wrap can be read, columns of no width cannot.
    Console(highlight=False, width=WHOLE_WIDTH).print(table, soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, bytes):
        return plain(value.decode("utf-8", "backslashreplace"))
    return cell(value)


def verify_all(paths: tuple[Path, ...], output: str) -> None:
    """Raises CommandError when there is a fault."""
    findings: list[Finding] = []
    for path in paths:
        if not path.is_dir():
            raise CommandError(f"{path} is a file: --verify takes a partition's directory or a log directory")
        findings.extend((verify if _is_partition(path) else verify_root)(RealDisk(), str(path)))
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(findings) + b"\n")
    else:
        for finding in findings:
            click.echo(str(finding))
    faults = sum(finding.fault for finding in findings)
    if faults:
        raise CommandError(f"{faults} faults found")
    click.echo(f"sound ({len(findings)} notes)", err=True)
