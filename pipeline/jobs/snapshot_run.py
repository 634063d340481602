"""Taking a snapshot: where it ends is fixed first, then the rows between are read, and the latest of each key is written in one commit."""

import time
from typing import TYPE_CHECKING, Any

from ottla.cli.failures import CommandError
from ottla.cli.output import show
from ottla.pipeline.jobs import reading
from ottla.pipeline.jobs.found_tables import format_of
from ottla.pipeline.jobs.places import Place
from ottla.pipeline.jobs.snapshot import SnapshotOptions
from ottla.pipeline.jobs.snapshot_plan import (
    Manifest,
    Now,
    SnapshotError,
    manifest_of,
    require_goes_on,
    starting,
    taken,
)
from ottla.pipeline.jobs.snapshot_rows import later_rows, latest
from ottla.pipeline.jobs.topic_state import topic_now
from ottla.pipeline.jobs.words import InputWords
from ottla.pipeline.sinks import delta, parquet
from ottla.pipeline.sinks.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SINKS: dict[str, Any] = {"delta": delta, "parquet": parquet, "ottla-parquet": parquet}
_COMMITTED = {"kafka.isolation.level": "read_committed"}


def run(spark: "SparkSession", options: SnapshotOptions) -> int:
    """Raises CommandError."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from ottla.pipeline import register

    register(spark)
    began = time.monotonic()
    _require_snapshots(options)
    now = topic_now(options.bootstrap, options.topic, options.until, int(time.time() * 1000), options.more)
    since = _since(options, now)
    starts = starting(since, now)
    observed = Observation()
    read = _read(spark, options, starts, dict(now.ends)).observe(
        observed, F.count(F.lit(1)).alias("rows"), F.count(F.when(F.col("key").isNull(), 1)).alias("keyless")
    )
    rows = read.where("key IS NOT NULL")
    if since is not None:
        assert options.since is not None
        earlier = _SINKS[format_of(options.since, "auto")].read(spark, options.since)
        rows = later_rows(earlier, dict(now.starts)).unionByName(rows)
    writer = latest(rows).write.format(f"ottla-{options.format}").mode("overwrite")
    writer.option("commitInfo", taken(now).text()).save(options.table)
    _report(options, now, observed.get, time.monotonic() - began)
    return 0


def _require_snapshots(options: SnapshotOptions) -> None:
    """What is at --table is a snapshot, or nothing: another table is not written over."""
    try:
        manifest = _last(options.table)
    except SnapshotError:
        raise CommandError(
            f"--table {options.table}: a table is there that no snapshot wrote; it is not written over: name another path"
        ) from None
    if manifest is not None and manifest.topic != options.topic:
        raise CommandError(f"--table {options.table} is a snapshot of {manifest.topic}: name another path")


def _last(path: str) -> Manifest | None:
    """What the newest commit says; None where there is no table. Raises SnapshotError."""
    try:
        commits = _SINKS[format_of(path, "auto")].commits(path)
    except (CommandError, SinkError):
        return None
    return manifest_of(commits[-1].info if commits else "")


def _since(options: SnapshotOptions, now: Now) -> Manifest | None:
    if options.since is None:
        return None
    try:
        manifest = _last(options.since)
        if manifest is None:
            raise SnapshotError("there is no table: leave --since out the first time")
        require_goes_on(manifest, now)
    except SnapshotError as error:
        raise CommandError(f"--since {options.since}: {error}") from None
    return manifest


def _read(spark: "SparkSession", options: SnapshotOptions, starts: dict[int, int], ends: dict[int, int]) -> "DataFrame":
    def place(offsets: dict[int, int]) -> Place:
        return Place(offsets={options.topic: {str(each): offset for each, offset in sorted(offsets.items())}})

    words = InputWords(
        options.bootstrap,
        (options.topic,),
        start=place(starts),
        until=place(ends),
        source=options.source,
        options=_COMMITTED | options.more,
    )
    return reading.batch(spark, words).select("key", "value", "topic", "partition", "offset", "timestamp")


def _report(options: SnapshotOptions, now: Now, observed: dict[str, int], seconds: float) -> None:
    commit = _SINKS[options.format].commits(options.table)[-1]
    row = {
        "topic": options.topic,
        "keys": commit.rows,
        "read": observed["rows"],
        "without key": observed["keyless"],
        "ends": sum(now.ends.values()),
        "seconds": round(seconds, 2),
        "version": commit.version,
    }
    show([row], list(row), options.session.output)
