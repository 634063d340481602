"""What a controller still has to do for partitions when nobody waits for it any more.

A broker is in service again, or shuts down, with the first batch of its partitions; the others follow piece by piece. All of it
can be read from the image, so a new controller goes on where the one before it was interrupted: it begins with every broker.
"""

from typing import NamedTuple

from ottla.quorum.controller.decisions.decision import Record
from ottla.quorum.controller.decisions.partitions import lead_the_leaderless, lead_uncleanly, take_out
from ottla.quorum.controller.decisions.state import ControllerState
from ottla.quorum.controller.decisions.sweep import Step


class Chore(NamedTuple):
    """A piece of work; one without records only took time."""

    cause: str
    records: list[Record]


def has_chores(state: ControllerState) -> bool:
    is_due = state.leaving or state.returning or state.reconsiders_leaderless
    return bool(is_due) or not state.replicas.is_counted


def next_chore(state: ControllerState) -> Chore:
    """The next piece, when there are chores."""
    if not state.replicas.count():
        return Chore("partitions are counted", [])
    leaving = next(iter(state.leaving), None)
    if leaving is not None:
        return Chore(f"broker {leaving} shuts down", _take_out(state, leaving).records)
    if state.returning:
        return Chore("brokers are in service again", _bring_back(state).records)
    return Chore("nobody led where any replica may", _lead_uncleanly(state).records)


def _take_out(state: ControllerState, broker_id: int) -> Step:
    broker = state.image.brokers.get(broker_id)
    is_leaving = broker is not None and broker.is_leaving
    step = take_out(state, broker_id) if is_leaving else Step([], is_last=True)
    if step.is_last:
        del state.leaving[broker_id]
    return step


def _bring_back(state: ControllerState) -> Step:
    """Leaders for all brokers that are back, in one sweep; whoever comes in the middle of it is in the next one."""
    broker_ids = state.returning[0]
    step = lead_the_leaderless(state, broker_ids)
    if step.is_last:
        del state.returning[0]
    return step


def _lead_uncleanly(state: ControllerState) -> Step:
    step = lead_uncleanly(state)
    if step.is_last:
        state.reconsiders_leaderless = False
    return step
