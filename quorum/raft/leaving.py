"""How a leader leaves: it takes nothing new, sees all it appended committed, then says good-bye.

Kafka's leader says good-bye at once (KIP-595). A record that only one follower has by then makes the other, if it comes first in
the ranking, lose every vote until the ranking's next one has waited its turn. Raft's leadership transfer brings the successor
up to date first (dissertation 3.10), and what was appended before is committed and answered on the way.
"""

from ottla.quorum.raft import becoming, rules
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.transitions import Cause


def shut_down(state: RaftState) -> None:
    """A leader hands over; a campaign is given up; a follower just goes on until the process ends."""
    state.shutting_down = True
    if isinstance(state.role, Leader):
        state.arm(Timer.HAND_OVER, state.settings.hand_over_wait_ms)
        hand_over_when_ready(state)


def hand_over_when_ready(state: RaftState) -> None:
    """Called whenever something may have been committed."""
    role = state.role
    if not isinstance(role, Leader) or not state.shutting_down:
        return
    if rules.may_hand_over(state.high_watermark, state.log.end):
        becoming.become_resigned(state, Cause.SHUTDOWN)


def waited_long_enough(state: RaftState) -> None:
    """No majority fetched everything: whoever has most comes first in the ranking."""
    if isinstance(state.role, Leader):
        becoming.become_resigned(state, Cause.SHUTDOWN)
