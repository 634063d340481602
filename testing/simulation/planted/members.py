"""Groups whose members change their protocol, and members that copy in transactions."""

from collections.abc import Mapping
from typing import Any

from ottla.broker.coordinator.decisions.groups.migration import upgrading
from ottla.broker.coordinator.decisions.groups.transactional_commits import TransactionalCommits
from ottla.runtime.errors import ErrorCode
from ottla.testing.simulation.copies import ONCE
from ottla.testing.simulation.dimensions.group_copiers import GroupCopiers
from ottla.testing.simulation.groups import HANDED_OVER
from ottla.testing.simulation.planted.bug import PlantedBug

COPIERS = (GroupCopiers.name,)


def _nobody_has_any(*_: Any) -> Mapping[str, Any]:
    return {}


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
        5,
        (),
        (ONCE,),
        COPIERS,
    ),
)
