"""`ottla groups explain`: a group's last rebalances, as sentences and as a table."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ottla.cli.client import Client
from ottla.cli.coordinators import ask_coordinator
from ottla.cli.durations import words
from ottla.cli.failures import CommandError
from ottla.cli.group_history import REBALANCES, asked
from ottla.cli.group_lag import named, short
from ottla.cli.group_requests import Group, NoSuchGroup, described
from ottla.cli.output import Row
from ottla.runtime.printable import counted

Record = Mapping[str, Any]
"""As its coordinator writes it (`rebalance_record.py`); what is at its default is left out."""
SENTENCES = 3
MOVES_SHOWN = PARTITIONS_SHOWN = 6
_WHY = {
    "join": "{who} joined",
    "leave": "{who} left",
    "session timeout": "{who} fell silent",
    "subscription change": "{who} subscribes to other topics now",
    "metadata change": "the leader {who} joined again: what it assigns has changed",
    "partitions given up": "{who} gave up partitions for others, and joined again",
    "static member back": "{who} came back as another process",
    "topics changed": "the topics that it reads have changed",
    "assignor change": "{who} asks for another way of assigning",
    "step not taken": "{who} was too late",
    "partitions not given up": "{who} did not give up its partitions in time",
    "assignment not asked for": "{who} did not ask for its assignment in time",
    "assignment not written": "the assignment could not be written",
    "group too large": "the group has more members than it may",
}


_DID = {
    "join": "joined",
    "leave": "left",
    "session timeout": "fell silent",
    "subscription change": "subscribed to other topics",
    "static member back": "came back as another process",
}


class Explained:
    """A group, and what is known of its rebalances, the oldest first."""

    def __init__(self, group: Group, now: Record, records: Sequence[Record]) -> None:
        self.group, self._now, self.records = group, now, records

    @property
    def rows(self) -> list[Row]:
        """The newest first."""
        return [
            {
                "rebalance": record["number"],
                "begun": _time(record["begun_ms"]),
                "why": _cause(record["cause"])["kind"],
                "who": _who(_cause(record["cause"])),
                "joining": _took(record.get("joining_ms")),
                "assigning": _took(record.get("assigning_ms")),
                "members": record.get("members", 0),
                "moved": record.get("moved_count"),
                "stayed": record.get("kept_count", 0) if record.get("moved_count") is not None else None,
                "generation": record.get("generation"),
                "outcome": record.get("outcome") or "under way",
            }
            for record in reversed(self.records)
        ]

    @property
    def details(self) -> list[Row]:
        """For programs: everything, the oldest first."""
        return [
            {"group": self.group.name, "state": self.group.state, **record, "cause": _cause(record["cause"])}
            | {"also": [_cause(each) for each in record.get("also", ())]}
            | {"moved": [dict(zip(_MOVE, each, strict=True)) for each in record.get("moved", ())]}
            for record in self.records
        ]

    @property
    def sentences(self) -> list[str]:
        group = self.group
        told = [f"{group.name} is {group.state}, with {counted(len(group.members), 'member')}."]
        waits = [short(each) for each in self._now.get("waits_for", ())]
        if waits:
            told.append(f"It waits for {_listed(waits, self._now['waits_for_count'])}.")
        if not self.records:
            return [*told, "Its coordinator knows of no rebalance: there was none since it took the group over."]
        return told + [_sentence(each, self._now["now_ms"]) for each in self.records[-SENTENCES:]]


_MOVE = ("topic", "partition", "from", "to")
_CAUSE = ("kind", "member_id", "client_id", "client_host", "words")


def explain(bootstrap: str, name: str) -> Explained:
    """Raises CommandError."""

    def ask(client: Client) -> Explained:
        group, told = described(client, name), asked(client, name, REBALANCES)
        if group is None:
            raise NoSuchGroup(name)
        if not told:
            raise CommandError(f"the coordinator of {name} keeps no rebalances: it is no Ottla, or an older one")
        now, *records = told
        return Explained(group, now, records)

    return ask_coordinator(bootstrap, name, ask)


# --- words ------------------------------------------------------------------------------------------------------------


def _sentence(record: Record, now_ms: int) -> str:
    ago = f"{words(max(now_ms - record['begun_ms'], 0) / 1000)} ago"
    begun = f"{ago} {_why(_cause(record['cause']))}{_also(record)}."
    parts = [begun, _joining(record), _absent(record), _assigning(record), _moved(record), _outcome(record)]
    return " ".join(filter(None, parts))


def _joining(record: Record) -> str:
    if record.get("is_newer"):
        return ""
    if not record.get("members") or "joining_ms" not in record:
        return ""
    last, who = record.get("last_joined"), _cause(record["cause"])["member_id"]
    slow = f"; the last was {short(last)}, after {_ms(record['last_joined_ms'])}" if last and last != who else ""
    return f"Joining took {_ms(record['joining_ms'])}{slow}."


def _absent(record: Record) -> str:
    absent = [short(each) for each in record.get("absent", ())]
    return f"{_listed(absent, record['absent_count'])} did not join in time, and had to go." if absent else ""


def _assigning(record: Record) -> str:
    if "assigning_ms" not in record:
        return ""
    took = f"Assigning took {_ms(record['assigning_ms'])}."
    return took if not record.get("is_newer") else _coming(record)


def _coming(record: Record) -> str:
    """In a consumer group each member comes to its target by itself."""
    last = record.get("last_joined")
    slow = f", the last was {short(last)}" if last and record.get("members", 0) > 1 else ""
    return f"All had what they are to have {_ms(record.get('joining_ms', 0) + record['assigning_ms'])} later{slow}."


def _why(cause: Mapping[str, str]) -> str:
    who = _who(cause) or "somebody"
    where = f" (at {cause['client_host'].removeprefix('/')})" if cause["client_host"] else ""
    said = f": {cause['words']}" if cause["words"] else ""
    return _WHY.get(cause["kind"], "{who}: " + cause["kind"]).format(who=who + where) + said


def _who(cause: Mapping[str, str]) -> str:
    return named(cause["member_id"], cause["client_id"]) if cause["member_id"] else ""


def _also(record: Record) -> str:
    count = record.get("also_count", 0)
    kinds: dict[str, int] = {}
    for each in record.get("also", ()):
        kinds[each[0]] = kinds.get(each[0], 0) + 1
    told = ", ".join(
        f"{number} {'others' if number > 1 else 'other'} {_DID.get(kind, kind)}" for kind, number in kinds.items()
    )
    return f", then {told}{' and more' if count > sum(kinds.values()) else ''}" if count else ""


def _moved(record: Record) -> str:
    count, moves = record.get("moved_count"), record.get("moved", ())
    if count is None or not record.get("members"):
        return ""
    stayed = record.get("kept_count", 0)
    if not count:
        return f"Nothing moved, {counted(stayed, 'partition')} stayed."
    together: dict[tuple[str, str, str], list[int]] = {}
    for topic, partition, before, after in moves:
        together.setdefault((topic, before, after), []).append(partition)
    shown = ", ".join(_move(*how, partitions) for how, partitions in list(together.items())[:MOVES_SHOWN])
    more = ", …" if count > len(moves) or len(together) > MOVES_SHOWN else ""
    return f"{counted(count, 'partition')} moved, {stayed} stayed: {shown}{more}."


def _move(topic: str, before: str, after: str, partitions: Sequence[int]) -> str:
    origin = f" from {short(before)}" if before else ""
    shown = _listed([*map(str, partitions[:PARTITIONS_SHOWN])], len(partitions))
    return f"{topic}-{shown}{origin} to {short(after) or 'nobody'}"


def _outcome(record: Record) -> str:
    outcome = record.get("outcome", "")
    if outcome == "stable":
        return ""
    if not outcome:
        return "It is under way."
    return f"It ended {outcome}." if record.get("members") or outcome[:5] != "empty" else "Nobody is left."


def _cause(cause: Sequence[str]) -> dict[str, str]:
    return dict(zip(_CAUSE, cause, strict=True))


def _listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def _took(took_ms: int | None) -> str | None:
    return _ms(took_ms) if took_ms is not None else None


def _ms(took_ms: int) -> str:
    return f"{took_ms} ms" if took_ms < 1_000 else words(took_ms / 1000)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
