"""A replica without room: when it asks to be relieved. Rules and reasons: docs/architecture.md, "A full disk"."""

from typing import NamedTuple

PAUSE_MS = 5_000
PAUSE_MAX_MS = 600_000


class Pause(NamedTuple):
    """Until when it is not asked again, and how long that takes from the last time on."""

    until_ms: int = 0
    length_ms: int = 0


def is_over(pause: Pause, now_ms: int) -> bool:
    """Whether it was so long ago that the next one begins anew."""
    return now_ms - pause.until_ms > PAUSE_MAX_MS


def pause_after(before: Pause, now_ms: int) -> Pause:
    """Longer each time: where all disks are full the leadership would go round and round. After a while without it begins anew."""
    length_ms = PAUSE_MS if is_over(before, now_ms) else min(max(2 * before.length_ms, PAUSE_MS), PAUSE_MAX_MS)
    return Pause(now_ms + length_ms, length_ms)


def has_to_leave(*, is_full: bool, leads: bool, is_in_isr: bool) -> bool:
    """Whether others are kept from their work by a replica that cannot take a record: who leads, for nobody else can, and who is in
    sync, for what is acknowledged waits for it. Out of the ISR it waits for room, and comes back as any that was behind."""
    return is_full and (leads or is_in_isr)
