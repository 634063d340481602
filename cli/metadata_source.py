"""Where `ottla metadata` reads the log: a directory's files, or a controller that runs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ottla.cli.failures import CommandError
from ottla.cli.metadata_options import Source
from ottla.log.names import METADATA_PARTITION
from ottla.quorum.metadata.archive import Archive, ArchiveError, DirectoryArchive, RawBatch
from ottla.runtime.key_value import KeyValueStore
from ottla.runtime.real_disk import RealDisk

PROGRESS_AFTER_S = 1.0


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
