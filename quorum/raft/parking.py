"""Answers to fetches, and the fetches that wait for one (a long poll; kraft.md 1.5)."""

from typing import Any

from ottla.quorum.raft import rules
from ottla.quorum.raft.instructions import ReadAndRespond
from ottla.quorum.raft.messages import FetchRequest, FetchResponse
from ottla.quorum.raft.roles.leader import Leader
from ottla.quorum.raft.state import ParkedFetch, RaftState
from ottla.quorum.raft.timers import Timer
from ottla.quorum.raft.voters import ReplicaKey

MAX_PARKED = 20_000  # a bound for what strangers can make a replica remember: many times the brokers of a cluster
IN_STEP = 32
"""So many fetches at most are answered in step: each answer costs the loop some 0.1 ms."""


def read_limit(state: RaftState, sender: ReplicaKey) -> int:
    """Voters are given all there is, for their copies are what commits it; observers what is committed."""
    if isinstance(state.role, Leader) and rules.is_voter(state.voters.latest, sender):
        return state.log.end
    return rules.observer_limit(state.high_watermark)


def may_judge(state: RaftState, request: FetchRequest) -> bool:
    return rules.may_judge(isinstance(state.role, Leader), request.offset, state.high_watermark)


def exposed_high_watermark(state: RaftState) -> int:
    """A new leader says nothing (-1) before its own epoch has committed: it may know less than the one before it told."""
    role = state.role
    return -1 if isinstance(role, Leader) and not role.high_watermark_known else state.high_watermark


def redirect(state: RaftState, request: FetchRequest, token: Any) -> bool:
    """Answers a fetcher whose place is not in this log: fetch a snapshot, or cut yours. False if it may read on."""
    fields = {"high_watermark": exposed_high_watermark(state), "log_start": state.log.start, **state.response_fields()}
    if rules.needs_snapshot(state.log, request.offset, request.last_epoch):
        state.respond(token, FetchResponse(snapshot=state.log.snapshot, **fields))
        return True
    diverging = rules.divergence(state.log, request.offset, request.last_epoch, request.last_mark)
    if diverging is not None:
        state.respond(token, FetchResponse(diverging=diverging, **fields))
        return True
    return False


def has_news(state: RaftState, request: FetchRequest) -> bool:
    """Records, or a higher high watermark than the fetcher knows."""
    return exposed_high_watermark(state) > request.high_watermark or read_limit(state, request.sender) > request.offset


def answer(state: RaftState, request: FetchRequest, token: Any) -> None:
    """Answers a fetch with what there is from the fetch offset on, be it nothing."""
    judged = may_judge(state, request)
    known = rules.told_high_watermark(exposed_high_watermark(state), judged)
    fields = {"high_watermark": known, "log_start": state.log.start, **state.response_fields()}
    limit = read_limit(state, request.sender)
    if limit > request.offset and judged:
        max_bytes = min(request.max_bytes, state.settings.fetch_max_bytes)
        state.emit(ReadAndRespond(token, FetchResponse(**fields), request.offset, limit, max_bytes))
    else:
        state.respond(token, FetchResponse(**fields))


def park(state: RaftState, request: FetchRequest, token: Any) -> None:
    """Parks a fetch, one a replica: when a second one comes, nobody waits for the first.

    It waits for the next whole number of waits on the clock, not for a whole wait. Whoever is answered then asks again right after, and waits a
    whole one: so those that have nothing to fetch do it in step, and a node that is idle wakes once for all of them.
    """
    older = state.parked.pop(request.sender, None)
    if older is not None:
        answer(state, older.request, older.token)
    elif len(state.parked) >= MAX_PARKED:
        answer(state, request, token)
        return
    wait_ms = min(request.max_wait_ms, state.settings.fetch_max_wait_ms)
    if wait_ms and len(state.parked) < IN_STEP:
        wait_ms -= state.now_ms % wait_ms
    state.parked[request.sender] = ParkedFetch(request, token, state.now_ms + wait_ms)
    state.arm_earlier(Timer.PARKED, wait_ms)


def complete_parked(state: RaftState) -> None:
    """Called after an append and after the high watermark rose: answers whoever has waited for that."""
    for sender, parked in list(state.parked.items()):
        if has_news(state, parked.request) and may_judge(state, parked.request):
            del state.parked[sender]
            if not redirect(state, parked.request, parked.token):
                answer(state, parked.request, parked.token)


def parked_timeout(state: RaftState) -> None:
    """Whoever has waited long enough gets an empty answer: it tells that the leader lives."""
    for sender, parked in list(state.parked.items()):
        if parked.deadline_ms <= state.now_ms:
            del state.parked[sender]
            answer(state, parked.request, parked.token)
    if state.parked:
        state.timers[Timer.PARKED] = min(parked.deadline_ms for parked in state.parked.values())
