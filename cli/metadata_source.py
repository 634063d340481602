"""Where `ottla metadata` reads the log: a directory's files, or a controller that runs."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from ottla.cli.failures import CommandError
from ottla.cli.output import with_ports
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.metadata.archive import Archive, ArchiveError, DirectoryArchive, RawBatch
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.real_disk import RealDisk

PROGRESS_AFTER_S = 1.0

Command = Callable[..., Any]


class Source(NamedTuple):
    """What the options say of where to read."""

    directory: Path | None
    controller: str | None
    bootstrap: str


def source_options(command: Command) -> Command:
    """The three ways to say where the log is; the command gets them as ``source``."""

    @click.option(
        "--directory",
        "-d",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        help="Offline: a node's metadata directory, or the log.dirs it is in. The node may run: nothing is written.",
    )
    @click.option(
        "--bootstrap-controller",
        "controller",
        help="Online: host:port of a controller's own listener; several by comma.",
    )
    @click.option(
        "--bootstrap-server",
        "-b",
        "bootstrap",
        default="localhost:9092",
        envvar="OTTLA_BOOTSTRAP_SERVER",
        show_default=True,
        callback=with_ports,
        help="Online: any broker, which names the controllers.",
    )
    @wraps(command)
    def with_source(
        *args: object, directory: Path | None, controller: str | None, bootstrap: str, **rest: object
    ) -> object:
        if directory and controller:
            raise click.UsageError("give --directory or --bootstrap-controller, not both")
        return command(*args, source=Source(directory, controller, bootstrap), **rest)

    return with_source


def open_archive(source: Source) -> Archive:
    """Raises CommandError, in one line."""
    try:
        if source.directory is not None:
            return DirectoryArchive(RealDisk(), str(_metadata_directory(source.directory)), _open_snapshot)
        from ottla.cli.metadata_online import ControllerArchive, controllers_of

        controllers = source.controller.split(",") if source.controller else controllers_of(source.bootstrap)
        return ControllerArchive(controllers, _open_snapshot)
    except ArchiveError as error:
        raise CommandError(str(error)) from error


def _metadata_directory(path: Path) -> Path:
    for candidate in (path, path / str(METADATA_PARTITION)):
        if any(candidate.glob("*.log")):
            return candidate
    raise CommandError(f"{path} holds no {METADATA_PARTITION}: give the node's metadata.log.dir or log.dirs")


def _open_snapshot(path: str) -> KeyValueStore:
    from ottla.runtime.lmdb_store import LmdbStore  # only where there is a snapshot

    return LmdbStore(path, read_only=True)


def read(archive: Archive) -> Iterator[RawBatch]:
    """The archive's batches; a bar on the terminal when that takes long. Raises CommandError."""
    began = time.monotonic()
    bar: Any = None
    try:
        for batch in archive.batches():
            yield batch
            if bar is None and sys.stderr.isatty() and time.monotonic() - began > PROGRESS_AFTER_S:
                bar = click.progressbar(length=archive.end_offset, label="reading the log", file=sys.stderr)
            if bar is not None:
                bar.update(batch.header.next_offset - bar.pos)
    except ArchiveError as error:
        raise CommandError(str(error)) from error
    finally:
        if bar is not None:
            bar.render_finish()
