"""What `ottla metadata` tells of the log: its batches, the cluster at a moment and between two, a partition's life."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from ottla.cli.failures import CommandError
from ottla.cli.metadata_options import LATEST, Source
from ottla.cli.metadata_source import open_archive, read
from ottla.cli.metadata_text import Names, batch_row, record_line, time_text
from ottla.cli.metadata_tree import plain_image, summary
from ottla.cli.output import Row, plain, show
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata import history
from ottla.quorum.metadata.archive import Archive
from ottla.quorum.metadata.image import MetadataImage, UnreadableRecordError
from ottla.quorum.metadata.views import PartitionView

# --- dump -------------------------------------------------------------------------------------------------------------


def dump(source: Source, first: int | None, last: int | None, output: str) -> None:
    """Prints the batches from ``first`` to ``last``. Raises CommandError."""
    archive = open_archive(source)
    names = Names(archive.start)
    if archive.start is not None and output == "table":
        click.echo(_begins_with(archive))
    for batch in read(archive):
        if last is not None and batch.header.base_offset > last:
            break
        with followed():
            row = batch_row(batch, names)
        if first is not None and batch.header.last_offset < first:
            continue
        if output == "json":
            click.echo(json.dumps(row))
            continue
        heading = f"{row['offset']:>10}  epoch {row['epoch']}  {row['time']}  {plain(row['cause'])}"
        click.echo(click.style(heading, bold=True))
        for record in row["records"]:
            click.echo(plain(record_line(record)))


def _begins_with(archive: Archive) -> str:
    return f"the log before offset {archive.first_offset} is gone: a snapshot holds what it came to"


# --- at, diff ---------------------------------------------------------------------------------------------------------


def at(source: Source, moment: str, output: str) -> None:
    """Prints the cluster as it was. Raises CommandError."""
    archive = open_archive(source)
    image = image_at(archive, offset_of(archive, moment))
    if output == "json":
        click.echo(json.dumps(plain_image(image), indent=2))
        return
    for title, rows, columns in summary(image):
        click.echo(click.style(title, bold=True))
        show(rows, columns, output)
        click.echo()


def diff(source: Source, before: str, after: str, output: str) -> None:
    """Prints what differs between two moments. Raises CommandError."""
    archive = open_archive(source)
    offsets = [offset_of(archive, moment) for moment in (before, after)]
    earlier = image_at(archive, min(offsets))
    later = image_at(archive, max(offsets), earlier)
    images = (earlier, later) if offsets[0] <= offsets[1] else (later, earlier)
    rows = [each._asdict() for each in history.diff(*images)]
    if not rows and output == "table":
        click.echo("nothing differs")
        return
    show(rows, ["kind", "name", "before", "after"], output)


def offset_of(archive: Archive, moment: str) -> int:
    """The offset that MOMENT says. Raises CommandError with the range there is."""
    first = archive.first_offset - 1 if archive.start is not None else 0
    last = archive.end_offset - 1
    gone = f" (a snapshot ends at {first}; what was before is gone)" if archive.start is not None else ""
    if moment == LATEST:
        return last
    if moment.isdecimal():
        if not first <= int(moment) <= last:
            raise CommandError(f"offset {moment} is out of range: the log has {first} to {last}{gone}")
        return int(moment)
    return _offset_at_time(archive, _time_ms(moment), moment, gone)


def _time_ms(moment: str) -> float:
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        raise click.UsageError(f"{moment}: write an offset, a time such as 2026-11-21T20:15:00, or {LATEST}") from None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000


def _offset_at_time(archive: Archive, time_ms: float, moment: str, gone: str) -> int:
    found, oldest = -1, None
    for batch in read(archive):
        oldest = batch.header.max_timestamp if oldest is None else oldest
        if batch.header.max_timestamp > time_ms:
            break
        found = batch.header.last_offset
    if found < 0:
        since = f"begins at {time_text(oldest)}" if oldest is not None else "is empty"
        raise CommandError(f"{moment} is out of range: the log {since}{gone}")
    return found


def image_at(archive: Archive, offset: int, known: MetadataImage | None = None) -> MetadataImage:
    """``known``: an earlier one to go on from. Raises CommandError."""
    with followed():
        return history.at(_committed(archive, offset), offset, archive.start if known is None else known)


@contextmanager
def followed() -> Iterator[None]:
    """Raises CommandError for a record that this version cannot read."""
    try:
        yield
    except UnreadableRecordError as error:
        raise CommandError(f"the log cannot be followed: {error}") from error


def _committed(archive: Archive, last: int = sys.maxsize) -> Iterator[CommittedBatch]:
    for batch in read(archive):
        if batch.header.last_offset > last:
            return
        yield batch.decoded()


# --- blame ------------------------------------------------------------------------------------------------------------


def blame(source: Source, partition: str, output: str) -> None:
    """Prints a partition's life. Raises CommandError."""
    topic, index = _parse_partition(partition)
    archive = open_archive(source)
    with followed():
        rows = [*_from_snapshot(archive, topic, index), *_life(archive, topic, index)]
    if not rows:
        raise CommandError(_unknown_partition(archive, topic, index))
    columns = ["offset", "time", "what", "leader", "leader epoch", "in sync", "cause"]
    show(rows, columns, output)


def _parse_partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("/" if "/" in text else "-")
    if not topic or not index.isdecimal():
        raise click.UsageError(f"{text}: write TOPIC/PARTITION, as in flights/0")
    return topic, int(index)


def _from_snapshot(archive: Archive, topic: str, index: int) -> Iterator[Row]:
    known = archive.start.topic(topic) if archive.start is not None else None
    view = known.partitions.get(index) if known is not None else None
    if archive.start is not None and known is not None and view is not None:
        what = "so it was in the snapshot; what came before is gone"
        yield {"offset": archive.start.offset, "time": None, "what": what, **_standing(view), "cause": None}


def _life(archive: Archive, topic: str, index: int) -> Iterator[Row]:
    for row in history.blame(_committed(archive), topic, index, archive.start):
        yield {
            "offset": row.offset,
            "epoch": row.epoch,
            "time": time_text(row.time_ms),
            "what": row.what,
            **_standing(row.partition),
            "cause": row.cause,
        }


def _standing(view: PartitionView | None) -> Row:
    if view is None:
        return {}
    return {
        "leader": view.leader if view.leader >= 0 else None,
        "leader epoch": view.leader_epoch,
        "partition epoch": view.partition_epoch,
        "in sync": list(view.isr),
        "replicas": list(view.replicas),
    }


def _unknown_partition(archive: Archive, topic: str, index: int) -> str:
    found = image_at(archive, archive.end_offset - 1).topic(topic)
    if found is None:
        return f"there is no topic {topic}, nor was there since offset {archive.first_offset}"
    return f"there is no partition {topic}/{index}: {topic} has 0 to {len(found.partitions) - 1}"


# --- shell ------------------------------------------------------------------------------------------------------------


def shell(source: Source, moment: str, words: tuple[str, ...]) -> None:
    """Carries out the words, or what is typed. Raises CommandError."""
    from ottla.cli.metadata_shell import Shell

    archive = open_archive(source)
    walk = Shell(lambda text: image_at(archive, offset_of(archive, text)), click.echo)
    walk.run_line(["at", moment], quiet=True)
    if words:
        walk.run_line(list(words))
    else:
        walk.run_input()
