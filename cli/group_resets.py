"""`ottla groups reset-offsets`: where a group is to go on. All raise CommandError, or UsageError for words that are off."""

import csv
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click

from ottla.cli.client import Client
from ottla.cli.coordinators import ask_coordinator
from ottla.cli.durations import milliseconds
from ottla.cli.failures import CommandError
from ottla.cli.group_requests import NoSuchGroup, commit, committed, described, require_no_members
from ottla.cli.leader_requests import DELETED, EARLIEST, LATEST, Place, metadata, offsets
from ottla.cli.output import Row


class Target(NamedTuple):
    """Where a group is to go on; one of them is said."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    time_ms: int | None = None
    """At the first record that is no older; behind the last one where all are. Never negative: such a time is asked for by another meaning."""
    by_place: Mapping[Place, int] | None = None

    def offset(self, place: Place, committed: int | None, start: int, end: int, at_time: int = -1) -> int:
        """Within what the partition has."""
        if self.to_earliest:
            return start
        if self.to_latest:
            return end
        if self.time_ms is not None:
            return at_time if at_time >= 0 else end
        if self.by_place is not None:
            wanted = self.by_place[place]
        elif self.to_offset is not None:
            wanted = self.to_offset
        else:
            nothing_yet = end if self.to_current else start
            wanted = (nothing_yet if committed is None else committed) + (self.shift_by or 0)
        return min(max(wanted, start), end)


def target_of(words: Mapping[str, object]) -> Target:
    """Of the options, by their names. Raises UsageError unless one is given."""
    given = {name: value for name, value in words.items() if value is not None and value is not False}
    if len(given) != 1:
        ways = ", ".join(f"--{name.replace('_', '-')}" for name in words)
        raise click.UsageError(f"write one of {ways}")
    (name, value), now_ms = *given.items(), int(time.time() * 1000)
    if name == "to_datetime":
        return Target(time_ms=max(_time_ms(str(value)), 0))
    if name == "by_duration":
        return Target(time_ms=max(now_ms - milliseconds(str(value), "--by-duration"), 0))
    if name == "from_file":
        return Target(by_place=read_offsets(Path(str(value))))
    return Target(**{name: value})  # type: ignore[arg-type]


def _time_ms(text: str) -> int:
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime {text!r}: write 2026-11-21T20:15:00.000 (UTC), or with +01:00") from None
    return int((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() * 1000)


# --- files in Kafka's format ------------------------------------------------------------------------------------------


def read_offsets(path: Path) -> dict[Place, int]:
    """Lines of topic,partition,offset. Raises UsageError for others, OSError."""
    found: dict[Place, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = next(csv.reader([line.decode()]), None)
            if not row:
                continue
            topic, partition, offset = (each.strip() for each in row)
            found[Place(topic, int(partition))] = int(offset)
        except (ValueError, csv.Error):
            raise click.UsageError(f"{path}, line {number}: write topic,partition,offset") from None
    if not found:
        raise click.UsageError(f"{path} has no offsets: write lines of topic,partition,offset")
    return found


def written_offsets(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row["topic"], row["partition"], row["new"]] for row in rows)
    return text.getvalue()


# --- which partitions -------------------------------------------------------------------------------------------------


def chosen(bootstrap: str, texts: Sequence[str]) -> list[Place]:
    """Of `topic`, and of `topic:0,2`. Raises UsageError."""
    wanted: dict[str, set[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            partitions = {int(each) for each in numbers.split(",")} if colon else None
        except ValueError:
            raise click.UsageError(f"--topic {text!r}: write TOPIC, or TOPIC:0,2 for some of its partitions") from None
        known = wanted.setdefault(topic, set())
        wanted[topic] = None if partitions is None or known is None else known | partitions
    if all(wanted.values()):
        return sorted(Place(topic, each) for topic, partitions in wanted.items() for each in partitions or ())
    there = {
        topic.name: topic
        for topic in metadata(bootstrap, [each for each, some in wanted.items() if some is None]).topics
    }
    places = []
    for topic, partitions in wanted.items():
        if partitions is None and (topic not in there or there[topic].error_code):
            raise CommandError(f"there is no topic {topic!r}")
        found = [each.partition_index for each in there[topic].partitions] if partitions is None else partitions
        places += [Place(topic, each) for each in found]
    return sorted(places)


# --- the reset --------------------------------------------------------------------------------------------------------


def reset_rows(bootstrap: str, name: str, topics: Sequence[str], target: Target, *, dry_run: bool) -> list[Row]:
    """A row a partition, with what was committed and what is now."""
    asked_for = chosen(bootstrap, topics) if topics else sorted(target.by_place or ())
    if target.by_place is not None:
        asked_for = [each for each in asked_for if each in target.by_place]
        if not asked_for:  # or it would be about all that the group has committed
            raise CommandError(f"the file has no offset of {', '.join(topics)}")

    def ask(client: Client) -> list[Row]:
        group, known = described(client, name), committed(client, bootstrap, name)
        if group is None and not asked_for:
            raise NoSuchGroup(name)
        if group is not None and not (dry_run and target.to_current):
            require_no_members(group, name)
        places = asked_for or sorted(known)
        if not places:
            raise CommandError(f"{name} has committed nothing: say which with --topic")
        new = _new_offsets(bootstrap, places, known, target, is_named=bool(asked_for))
        if not dry_run:
            commit(client, bootstrap, name, new)
        return [
            {"group": name, "topic": each.topic, "partition": each.partition, "committed": known.get(each), "new": at}
            for each, at in new.items()
        ]

    return ask_coordinator(bootstrap, name, ask)


def _new_offsets(
    bootstrap: str, places: Sequence[Place], known: Mapping[Place, int], target: Target, *, is_named: bool
) -> dict[Place, int]:
    """Of topics that are gone, and that nobody named, there is nothing to set."""
    times = (EARLIEST, LATEST) if target.time_ms is None else (EARLIEST, LATEST, target.time_ms)
    told = offsets(bootstrap, places, *times)
    if not is_named:
        for place in [each for each, why in told.trouble.items() if why == DELETED]:
            del told.trouble[place]
    found = told.require()
    return {each: target.offset(each, known.get(each), *found[each]) for each in places if each in found}
