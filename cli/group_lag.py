"""`ottla groups describe`: how far a group has read, how old what it has not read is, and when it will have caught up."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.cli.client import Client
from ottla.cli.coordinators import ask_coordinator
from ottla.cli.durations import words
from ottla.cli.group_history import rates
from ottla.cli.group_requests import Group, Member, NoSuchGroup, committed, described
from ottla.cli.leader_requests import DELETED, EARLIEST, LATEST, Place, Told, ask_leaders, offsets_at, together
from ottla.cli.output import Row

PRODUCED_OVER_S = 60
_UUID_TAIL = re.compile(r"(?<=[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")


class At(NamedTuple):
    """What a leader says of a partition."""

    end: int
    start: int
    produced: int
    """In the last minute."""
    unread_ms: int | None
    """When the first record was written that the group has not read."""


class Described(NamedTuple):
    """A group, a row for each of its partitions and idle members, and a line about it all."""

    group: Group
    rows: list[Row]

    @property
    def summary(self) -> str:
        return " ".join(filter(None, (_who(self.group), lag_sentence(self.rows))))


def describe(bootstrap: str, name: str) -> Described:
    """Raises CommandError."""
    now_ms = int(time.time() * 1000)

    def ask(client: Client) -> tuple[Group, dict[Place, int], dict[Place, float]]:
        group = described(client, name)
        if group is None:
            raise NoSuchGroup(name)
        return group, committed(client, bootstrap, name), rates(client, name)

    group, offsets, read = ask_coordinator(bootstrap, name, ask)
    owners = {place: member for member in group.members for place in member.places}
    known = lag_rows(bootstrap, offsets, read, now_ms, owners)
    of_group = {"group": name, "state": group.state}
    rows = [{**of_group, **row, **_member(owners.get(place))} for place, row in known.items()]
    busy = {member.id for member in owners.values()}
    idle = [each for each in group.members if each.id not in busy]
    rows += [{"group": name, "state": group.state, **_member(each)} for each in idle]
    return Described(group, rows)


def lag_rows(
    bootstrap: str, offsets: Mapping[Place, int], read: Mapping[Place, float], now_ms: int, more: Iterable[Place] = ()
) -> dict[Place, Row]:
    """How far ``offsets`` are behind, and of ``more`` partitions that nothing was read of. Raises CommandError when nobody answers."""
    places = sorted({*offsets, *more})
    told = ask_leaders(bootstrap, places, _Asking(offsets, now_ms).ask)
    rows = {}
    for place in places:
        row = _row(offsets.get(place), told.found.get(place), read.get(place), now_ms)
        note = told.trouble.get(place) or row.pop("note", None)
        rows[place] = {"topic": place.topic, "partition": place.partition, **row, "note": note}
    return rows


class _Asking:
    """One leader is asked for the ends, the starts, what was produced lately, and for one unread record of each partition."""

    def __init__(self, offsets: Mapping[Place, int], now_ms: int) -> None:
        self._offsets, self._now_ms = offsets, now_ms

    def ask(self, client: Client, places: list[Place], ids: Mapping[str, bytes]) -> Told[At]:
        lately_ms = self._now_ms - 1000 * PRODUCED_OVER_S
        told = together([offsets_at(client, places, each) for each in (LATEST, EARLIEST, lately_ms)])
        unread = {
            place: max(self._offsets[place], start)
            for place, (end, start, _) in told.found.items()
            if place in self._offsets and max(self._offsets[place], start) < end
        }
        times: dict[Place, int] = {}
        if unread:
            from ottla.cli.first_unread import first_times

            times = first_times(client, unread, ids)
        found = {
            place: At(end, start, end - lately if lately >= 0 else 0, times.get(place))
            for place, (end, start, lately) in told.found.items()
        }
        return Told(found, told.trouble)


def _row(offset: int | None, at: At | None, read: float | None, now_ms: int) -> Row:
    row: Row = {"committed": offset, "end": at.end if at else None, "start": at.start if at else None}
    lag = max(at.end - max(offset, at.start), 0) if at is not None and offset is not None else None
    written = at.produced / PRODUCED_OVER_S if at is not None else None
    behind = max(now_ms - at.unread_ms, 0) / 1000 if at is not None and lag and at.unread_ms is not None else None
    row |= {"lag": lag, "lag seconds": 0.0 if lag == 0 else behind}
    row |= {"read per second": read, "written per second": written}
    row["caught up in seconds"], row["caught up"] = catching_up(lag, read, written)
    if at is not None and offset is not None and offset < at.start:
        row["note"] = f"{at.start - offset} records were deleted unread"
    elif at is not None and offset is not None and offset > at.end:
        row["note"] = f"committed {offset - at.end} records beyond the end"
    return row


def catching_up(lag: int | None, read: float | None, written: float | None) -> tuple[float | None, str | None]:
    """Seconds, and words: at the rates of the last minute."""
    if lag == 0:
        return 0.0, "now"
    if lag is None or read is None or written is None:
        return None, None
    if read <= written:
        return None, "never" if read else "stopped"
    return lag / (read - written), f"in {words(lag / (read - written))}"


def _member(member: Member | None) -> Row:
    if member is None:
        return {}
    return {
        "member": member.id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
    }


def short(member_id: str) -> str:
    """A member id without most of its UUID."""
    return _UUID_TAIL.sub("", member_id)


def named(member_id: str, client_id: str) -> str:
    """With its client's name: an id of the newer protocol has nothing of it."""
    return short(member_id) if member_id.startswith(client_id) else f"{client_id} {short(member_id)}"


# --- for people -------------------------------------------------------------------------------------------------------


def table_rows(rows: Sequence[Row]) -> list[Row]:
    return [
        {
            **row,
            "behind": words(row["lag seconds"]) if row.get("lag seconds") is not None else None,
            "read/s": _rate(row.get("read per second")),
            "written/s": _rate(row.get("written per second")),
            "member": named(row["member"], row["client"]) if row.get("member") else None,
        }
        for row in rows
    ]


def _rate(rate: float | None) -> str | None:
    if rate is None:
        return None
    return f"{rate:,.0f}" if rate >= 10 or rate == int(rate) else f"{rate:.1f}"


def columns(rows: Sequence[Row]) -> list[str]:
    names = [
        "topic",
        "partition",
        "committed",
        "end",
        "lag",
        "behind",
        "read/s",
        "written/s",
        "caught up",
        "member",
        "host",
    ]
    return names + ["note"] * any(row.get("note") for row in rows)


def _who(group: Group) -> str:
    members = f", {len(group.members)} member{'s' * (len(group.members) != 1)}" if group.has_members else ""
    how = f" ({group.protocol})" if group.protocol and group.has_members else ""
    return f"{group.name}: {group.state}{members}{how}."


def lag_sentence(rows: Sequence[Row]) -> str:
    if all(row.get("committed") is None for row in rows):
        return "It has committed nothing."
    lags = [row["lag"] for row in rows if row.get("lag") is not None]
    dark = sum(_is_dark(row) for row in rows)
    if not dark:
        return _read_so_far(lags, rows)
    unknown = f"What it has not read of {dark} partition{'s' * (dark != 1)} is not known."
    return " ".join(filter(None, (unknown, _read_so_far(lags, rows, " else") if lags else "")))


def _is_dark(row: Row) -> bool:
    """No lag can be told, and there may be one: its leader does not answer, or nothing was committed of what it has."""
    is_empty = row.get("end") is not None and row["end"] == row["start"]
    return "topic" in row and row["lag"] is None and row["note"] != DELETED and not is_empty


def _read_so_far(lags: Sequence[int], rows: Sequence[Row], other: str = "") -> str:
    total = sum(lags)
    if not total:
        return f"It has read everything{other}."
    ages = [row["lag seconds"] for row in rows if row.get("lag seconds")]
    age = f", the oldest {words(max(ages))} old" if ages else ""
    return f"{total:,} record{'s' * (total != 1)} unread{age}{_outlook(rows)}."


def _outlook(rows: Sequence[Row]) -> str:
    behind = [row for row in rows if row.get("lag")]
    if all(row["caught up"] == "stopped" for row in behind):
        return "; nothing was read lately"
    if any(row["caught up"] in ("never", "stopped") for row in behind):
        return "; some partitions are written as fast as they are read, or faster"
    if any(row["caught up in seconds"] is None for row in behind):
        return ""
    return f"; caught up in {words(max(row['caught up in seconds'] for row in behind))}"
