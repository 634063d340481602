"""A rebalance that is over, in a line of the log: its coordinator may be gone when somebody asks why, and what it remembers with it."""

from ottla.broker.coordinator.decisions.groups.rebalance_record import Cause, RebalanceRecord
from ottla.runtime.printable import counted, plain


def line_of(group_id: str, record: RebalanceRecord) -> str:
    """Who asked for it, how long it took, what moved."""
    what = "epoch" if record.is_newer else "generation"
    asked = _who(record.cause) + (f" and {record.also_count} more" if record.also_count else "")
    told = [f"{what} {record.generation} {record.outcome}, {counted(record.members, 'member')}", asked, *_times(record)]
    if record.absent_count:
        told.append(f"{record.absent_count} did not join in time: {', '.join(record.absent)}")
    if record.moved_count is not None and record.members:
        told.append(f"{counted(record.moved_count, 'partition')} moved, {record.kept_count} stayed")
    return plain(f"group {group_id}: {'; '.join(told)}")


def _who(cause: Cause) -> str:
    who = f" of {cause.member_id}" if cause.member_id else ""
    where = f" at {cause.client_host.removeprefix('/')}" if cause.client_host else ""
    return f"{cause.kind}{who}{where}" + (f" ({cause.words})" if cause.words else "")


def _times(record: RebalanceRecord) -> list[str]:
    if record.joining_ms is None:
        return []
    assigning = f", {record.assigning_ms} ms until assigned" if record.assigning_ms is not None else ""
    return [f"{record.joining_ms} ms until {'aimed' if record.is_newer else 'joined'}{assigning}"]
