"""The states that the command line takes are those that brokers tell: it names them itself, for to import the coordinators takes longer than it may."""

from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroupState
from ottla.broker.coordinator.decisions.transactions.transaction import State
from ottla.cli import groups, transactions


def test_the_states_of_groups_are_those_of_both_protocols_and_of_one_that_there_is_not() -> None:
    told = {state.value for kind in (GroupState, ConsumerGroupState) for state in kind}
    assert {*groups.STATES} == told | {"Dead"}


def test_the_states_of_transactions_are_the_coordinators() -> None:
    assert tuple(state.told for state in State) == transactions.STATES
