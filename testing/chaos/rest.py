"""When a cluster has come to rest: everybody is up, leads or follows, is in sync, and says the same."""

import time
from typing import NamedTuple

from ottla.broker.wire.messages.metadata_request import MetadataRequest
from ottla.broker.wire.messages.metadata_response import MetadataResponse
from ottla.cli.failures import CommandError
from ottla.testing.chaos.cluster import ChaosCluster
from ottla.testing.chaos.roles import Roles

REST_S = 180.0
LONG_S = 10.0
"""Whoever takes longer says why."""
_TOLD = 5
_PAUSE_S = 0.2


class NoRest(Exception):
    """It did not come to rest in time; the message says what was missing."""


class Rest(NamedTuple):
    """``missing``: what was missing, each with the second in which it was first seen, as often as it changed."""

    took_s: float
    missing: list[tuple[float, str]]

    def __str__(self) -> str:
        said = f"at rest after {self.took_s:.1f} s"
        if self.took_s < LONG_S or not self.missing:
            return said
        since, what = self.missing[-1]
        return f"{said}; what was missing changed {len(self.missing)} times, the last since {since:.1f} s: {what}"


def wait_for_rest(cluster: ChaosCluster, timeout_s: float = REST_S) -> Rest:
    """Raises NoRest."""
    began = time.monotonic()
    seen: list[tuple[float, str]] = []
    while (missing := unrest(cluster)) is not None:
        took_s = time.monotonic() - began
        if not seen or seen[-1][1] != missing:
            seen.append((took_s, missing))
        if took_s > timeout_s:
            raise NoRest(f"after {timeout_s:.0f} s {missing}; before that: {_last(seen[:-1])}")
        time.sleep(_PAUSE_S)
    return Rest(time.monotonic() - began, seen)


def _last(seen: list[tuple[float, str]]) -> str:
    """Whether it was one thing all the time, or another again and again, is what one wants to know."""
    return "; ".join(f"since {since:.1f} s {what}" for since, what in seen[-_TOLD:]) or "the same"


def unrest(cluster: ChaosCluster) -> str | None:
    """What is missing; None at rest."""
    dead = [node for node in cluster.nodes if not cluster.is_alive(node)]
    if dead:
        return f"nodes {dead} do not run: {cluster.nodes[dead[0]].last_log_line()}"
    views: dict[int, dict[str, str]] = {}
    for broker in cluster.broker_ids:
        try:
            answer = cluster.ask(broker, MetadataRequest(topics=None), MetadataResponse)
        except (CommandError, OSError) as error:
            return f"broker {broker} does not answer: {error}"
        missing = _missing(answer, cluster.broker_ids)
        if missing is not None:
            return f"broker {broker} says: {missing}"
        views[broker] = _view(answer)
    return _difference(views) or _quorum(cluster)


def _missing(answer: MetadataResponse, brokers: tuple[int, ...]) -> str | None:
    there = sorted(each.node_id for each in answer.brokers)
    if there != sorted(brokers):
        return f"brokers {there} are there"
    for topic in answer.topics:
        for each in topic.partitions:
            place = f"{topic.name}-{each.partition_index}"
            if each.leader_id < 0 or each.error_code:
                return f"{place} has no leader (error {each.error_code})"
            if sorted(each.isr_nodes) != sorted(each.replica_nodes) or each.offline_replicas:
                return f"{place} has {each.isr_nodes} of {each.replica_nodes} in sync, offline {each.offline_replicas}"
    return None


def _view(answer: MetadataResponse) -> dict[str, str]:
    return {
        f"{topic.name}-{each.partition_index}": f"leader {each.leader_id} epoch {each.leader_epoch} ISR {each.isr_nodes}"
        for topic in answer.topics
        for each in topic.partitions
    }


def _difference(views: dict[int, dict[str, str]]) -> str | None:
    first, *others = views
    for other in others:
        for place in views[first].keys() | views[other].keys():
            one, two = views[first].get(place), views[other].get(place)
            if one != two:
                return f"of {place} broker {first} says {one}, broker {other} {two}"
    return None


def _quorum(cluster: ChaosCluster) -> str | None:
    try:
        Roles(cluster).quorum()
    except TimeoutError:
        return "nobody leads the quorum"
    return None
