"""A broker goes: for a while (`drain`), or for good (`decommission`). How far that is can be seen in the cluster and nowhere else, so
that whoever was interrupted, or another person elsewhere, goes on by calling it again. All raise CommandError."""

import time
from pathlib import Path

import click

from ottla.broker.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.broker.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.broker.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.broker.wire.messages.unregister_broker_response import UnregisterBrokerResponse
from ottla.cli import reassign_apply
from ottla.cli.broker_requests import the_broker
from ottla.cli.client import Client
from ottla.cli.cluster_state import PATIENCE_S, ClusterNow, read_cluster
from ottla.cli.failures import refuse
from ottla.cli.placing import Assignment
from ottla.cli.plan_file import read_plan, write_plan
from ottla.cli.planning import leaderships_off, settled, way_back, without
from ottla.cli.reassign_requests import begin, speed_up
from ottla.cli.reassign_words import SHOWN_MAX, summary
from ottla.runtime.errors import ErrorCode

POLL_S = 0.5
HEARD_S = 5.0
PREFERRED = 0
HARMLESS = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)


# --- for a while ------------------------------------------------------------------------------------------------------


def drain(bootstrap: str, broker_id: int, back: Path, *, dry_run: bool, yes: bool) -> None:
    """The broker becomes the last that is preferred as a leader, and others are elected."""
    now = read_cluster(bootstrap, with_sizes=False)
    the_broker(now, broker_id)
    plan, alone = leaderships_off(broker_id, now)
    leads = _leads(broker_id, now)
    click.echo(
        f"broker {broker_id} leads {leads} partitions; {len(plan)} change the order of their replicas, no data moves"
    )
    for topic, index in alone[:SHOWN_MAX]:
        click.echo(f"  {topic}-{index} stays: nobody else is in sync")
    if len(alone) > SHOWN_MAX:
        click.echo(f"  and {len(alone) - SHOWN_MAX} more")
    if dry_run or not plan:
        return
    if not yes:
        click.confirm("Begin?", abort=True)
    write_plan(back, way_back(plan, now) | _drained(broker_id, back, now))
    begin(bootstrap, plan)
    _elect_preferred(bootstrap, plan)
    now = _once_heard(bootstrap, broker_id, plan)
    click.echo(
        f"broker {broker_id} leads {_leads(broker_id, now)} partitions; the way back: ottla reassign apply {back}"
    )


def _drained(broker_id: int, back: Path, now: ClusterNow) -> Assignment:
    """What calls before have noted of partitions that are still as they left them. The rest has been taken back, or moved."""
    noted = read_plan(back) if back.exists() else {}
    return {
        place: before
        for place, before in noted.items()
        if place in now.partitions
        and now.partitions[place].replicas[-1] == broker_id
        and sorted(now.partitions[place].replicas) == sorted(before)
    }


def _leads(broker_id: int, now: ClusterNow) -> int:
    return sum(each.leader == broker_id for each in now.partitions.values())


def _once_heard(bootstrap: str, broker_id: int, plan: Assignment) -> ClusterNow:
    """What a broker says that has heard of the elections: it does so a moment after the controller's answer. Some may not have been held
    (nobody else was in sync any more), so it is not waited for long."""
    until_s = time.monotonic() + HEARD_S
    while True:
        now = read_cluster(bootstrap, with_sizes=False)
        led = [place for place in plan if place in now.partitions and now.partitions[place].leader == broker_id]
        if not led or time.monotonic() > until_s:
            return now
        time.sleep(HEARD_S / 50)


def _elect_preferred(bootstrap: str, plan: Assignment) -> None:
    topics: dict[str, list[int]] = {}
    for topic, index in plan:
        topics.setdefault(topic, []).append(index)
    wanted = [TopicPartitions(topic, indexes) for topic, indexes in topics.items()]
    with Client(bootstrap) as client:
        answer = client.call(ElectLeadersRequest(PREFERRED, wanted, 30_000), ElectLeadersResponse)
    refuse(answer.error_code, "elect leaders")
    for topic_told in answer.replica_election_results:
        for each in topic_told.partition_result:
            if each.error_code not in HARMLESS:
                refuse(each.error_code, f"{topic_told.topic}-{each.partition_id}", each.error_message)


# --- for good ---------------------------------------------------------------------------------------------------------


def decommission(bootstrap: str, broker_id: int, throttle: int | None, *, dry_run: bool, yes: bool) -> None:
    """Moves everything off, also what is placed there meanwhile; then waits for the process to be stopped, and unregisters it."""
    now = read_cluster(bootstrap)
    the_broker(now, broker_id)
    plan = without(broker_id, now)
    click.echo(f"broker {broker_id} has {len(now.on(broker_id))} replicas")
    click.echo("\n".join(summary(plan, now, throttle)))
    if dry_run:
        return
    if not yes:
        click.confirm("Begin?", abort=True)
    back = Path(f"decommission-{broker_id}.back.json")
    if plan:
        noted = read_plan(back) if back.exists() else {}
        gone = {place: before for place, before in noted.items() if place in now.partitions and place not in plan}
        write_plan(back, gone | way_back(plan, now))
        click.echo(f"the way back, as long as the broker is registered: ottla reassign apply {back}")
    _empty(bootstrap, broker_id, now, throttle)
    _unregister(bootstrap, broker_id)
    back.unlink(missing_ok=True)  # it leads to nobody any more, or to who takes that id later


def _empty(bootstrap: str, broker_id: int, now: ClusterNow, throttle: int | None) -> None:
    """What moves off it already goes on as it is; the rest is planned anew each time."""
    topics: dict[str, None] = {}
    while now.on(broker_id):
        plan = {
            place: replicas for place, replicas in without(broker_id, now).items() if broker_id in settled(place, now)
        }
        going = {place: settled(place, now) for place in now.on(broker_id) if place not in plan}
        topics.update(dict.fromkeys(topic for topic, _ in (*plan, *going)))
        reassign_apply.apply(bootstrap, plan, now, throttle)
        reassign_apply.wait(bootstrap, {**going, **plan}, click.echo)
        now = read_cluster(bootstrap, patience_s=PATIENCE_S)
    if topics:
        speed_up(bootstrap, topics, sorted(now.brokers))
    click.echo(f"broker {broker_id} has no replicas")


def _unregister(bootstrap: str, broker_id: int) -> None:
    told = False
    while True:
        now = read_cluster(bootstrap, with_sizes=False, patience_s=PATIENCE_S)
        if now.on(broker_id):  # a topic that was made this moment
            _empty(bootstrap, broker_id, read_cluster(bootstrap), None)
        elif broker_id not in now.brokers:
            break
        elif now.brokers[broker_id].is_fenced:
            with Client(bootstrap) as client:
                answer = client.call(UnregisterBrokerRequest(broker_id), UnregisterBrokerResponse)
            if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                refuse(answer.error_code, f"unregister broker {broker_id}", answer.error_message)
            break
        elif not told:
            click.echo(f"stop the process of broker {broker_id} now (SIGTERM); waiting for that")
            told = True
        time.sleep(POLL_S)
    click.echo(f"broker {broker_id} is unregistered")
