"""Groups whose members change their protocol, and members that copy in transactions."""

from collections.abc import Mapping
from typing import Any

from ottla.broker.coordinator.decisions.groups.migration import upgrading
from ottla.broker.coordinator.decisions.groups.offset_store import Place
from ottla.broker.coordinator.decisions.groups.offsets import Offsets
from ottla.broker.coordinator.decisions.groups.transactional_commits import TransactionalCommits
from ottla.broker.wire.messages.offset_fetch_response import OffsetFetchResponsePartitions
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.copies import ONCE
from ottla.testing.simulation.dimensions.group_copiers import GroupCopiers
from ottla.testing.simulation.groups import HANDED_OVER
from ottla.testing.simulation.planted.bug import PlantedBug

COPIERS = (GroupCopiers.name,)
_TOLD = Offsets._told


def _nobody_has_any(*_: Any) -> Mapping[str, Any]:
    return {}


def _tells_of_before(
    offsets: Offsets, group_id: str, place: Place, *, is_stable: bool
) -> OffsetFetchResponsePartitions:
    return _TOLD(offsets, group_id, place, is_stable=False)


MEMBER_BUGS = (
    PlantedBug(
        "forget what classic members read when their group is upgraded",
        "upgrading.upgraded: members of a classic group keep what they hold",
        ((upgrading, "_held", _nobody_has_any),),
        3,
        (),
        (HANDED_OVER,),
        ("migrants",),
    ),
    PlantedBug(
        "take offsets in a transaction from who is no member any more",
        "TransactionalCommits._error_of: who committed in a transaction has to be a member of the generation",
        ((TransactionalCommits, "_error_of", lambda *_: ErrorCode.NONE),),
        8,
        (),
        (ONCE,),
        COPIERS,
    ),
    PlantedBug(
        "tell offsets that an open transaction may change",
        "Offsets._told: who asks for stable ones waits until it is decided",
        ((Offsets, "_told", _tells_of_before),),
        10,
        (),
        (ONCE,),
        COPIERS,
    ),
)
