"""What must hold of all that the members of one group read."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.chaos.groups.diary import Entry


def read_by(entries: Iterable[Entry]) -> dict[int, set[int]]:
    """The offsets that somebody read, by partition."""
    found: dict[int, set[int]] = defaultdict(set)
    for each in entries:
        if each.what == "record":
            found[each.partition].add(each.offset)
    return found


def check(entries: Sequence[Entry]) -> None:
    """Raises AssertionError with what is wrong: a record that is not what was written there, one that was passed over, one that
    changed its place, an acknowledged commit that was lost or went back. ``entries`` in the order of time."""
    furthest: dict[int, int] = defaultdict(lambda: -1)
    committed: dict[int, int] = defaultdict(int)
    begins_at: dict[
        tuple[str, int], int
    ] = {}  # what was committed when a member was given a partition, until its first record
    last: dict[tuple[str, int], int] = {}
    for each in entries:
        mine = (each.member, each.partition)
        if each.what == "assigned":
            begins_at[mine] = committed[each.partition]
            last.pop(mine, None)
        elif each.what == "committed":
            committed[each.partition] = max(committed[each.partition], each.offset)
        elif each.what == "record":
            _check_record(each, furthest[each.partition], begins_at.pop(mine, None), last.get(mine))
            last[mine] = each.offset
            furthest[each.partition] = max(furthest[each.partition], each.offset)


def _check_record(each: Entry, furthest: int, committed: int | None, last: int | None) -> None:
    where = f"{each.member}, partition {each.partition}, offset {each.offset}"
    assert each.value == each.offset, f"{where}: the record that was written there is not {each.value}"
    assert each.offset <= furthest + 1, f"{where}: nobody has read {furthest + 1}, which comes before"
    assert last is None or each.offset == last + 1, f"{where}: comes behind {last}"
    if committed is not None:
        assert each.offset >= committed, f"{where}: {committed} was committed before the partition was given to it"


def stopped_in_vain(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """Partitions that were taken from a member and given back to it, and nobody had had them: they stopped and did not have to move."""
    last_owner: dict[int, str] = {}
    found = []
    for each in entries:
        if each.what == "assigned":
            if last_owner.get(each.partition) == each.member:
                found.append((each.member, each.partition))
            last_owner[each.partition] = each.member
    return found


def owners(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """Who owns what at the end."""
    found: dict[str, set[int]] = defaultdict(set)
    for each in entries:
        if each.what == "assigned":
            found[each.member].add(each.partition)
        elif each.what in ("revoked", "lost"):
            found[each.member].discard(each.partition)
    return found
