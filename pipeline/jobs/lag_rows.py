"""How far a query is behind: what its checkpoint says, beside what the leaders say."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

from ottla.cli.durations import words
from ottla.cli.failures import CommandError
from ottla.cli.group_lag import lag_rows, lag_sentence
from ottla.cli.leader_requests import Place, metadata
from ottla.cli.output import Row
from ottla.pipeline.jobs.checkpoint import Checkpoint, Offsets, Planned
from ottla.runtime.identifiers import ZERO_ID, id_to_text

ANEW = "the topic was deleted and made anew"
RATE_OVER_S = 60.0
QUIET_S = 60.0
"""A job that finished nothing for so long, or for three of its batches, has stopped reading."""


class Standing(NamedTuple):
    """A row a partition, what it has read of topics that are still the same, and a sentence about the query."""

    rows: list[Row]
    offsets: Offsets
    summary: str


def standing(directory: str, bootstrap: str, now_s: float | None = None) -> Standing:
    """Raises CommandError."""
    now_s = time.time() if now_s is None else now_s
    checkpoint = Checkpoint(directory)
    if not checkpoint:
        raise CommandError(f"{directory}: no query has been here: is it the job's --checkpoint?")
    done = checkpoint.last_done()
    if done is None:
        raise CommandError(f"{directory}: the first batch is not done yet")
    times = checkpoint.done_batches()
    anew = made_anew(bootstrap, done.ids)
    offsets = {Place(*place): 0 if place[0] in anew else offset for place, offset in done.offsets.items()}
    read = {place: rate for place, rate in rates(checkpoint, done, times, now_s).items() if place.topic not in anew}
    known = lag_rows(bootstrap, offsets, read, round(now_s * 1000))
    rows = [
        {"query": checkpoint.query_id(), "batch": done.batch, **row, **({"note": ANEW} if place.topic in anew else {})}
        for place, row in known.items()
    ]
    of_these = {place: offset for place, offset in done.offsets.items() if place[0] not in anew}
    return Standing(rows, of_these, f"{_batches(checkpoint, done, times, now_s)} {lag_sentence(rows)}")


def made_anew(bootstrap: str, ids: Mapping[str, str]) -> set[str]:
    """Topics that are others now than when they were read: nothing of them is."""
    if not ids:
        return set()
    now = {each.name: id_to_text(each.topic_id) for each in metadata(bootstrap, ids).topics if each.topic_id != ZERO_ID}
    return {topic for topic, topic_id in ids.items() if now.get(topic, topic_id) != topic_id}


def rates(checkpoint: Checkpoint, done: Planned, times: Mapping[int, float], now_s: float) -> dict[Place, float]:
    """Offsets a second that the query read lately; nothing of it where there is one batch only."""
    planned = checkpoint.planned_batches()
    last_s = times[done.batch]
    recent = [batch for batch in sorted(times) if batch <= done.batch and batch in planned]
    window = [batch for batch in recent if times[batch] >= last_s - RATE_OVER_S]
    first = window[0] if len(window) > 1 else recent[-2] if len(recent) > 1 else None
    if first is None or times[first] >= last_s:
        return {}
    if now_s - max(last_s, *planned.values()) > max(QUIET_S, 3 * (last_s - times[recent[-2]])):
        return dict.fromkeys((Place(*place) for place in done.offsets), 0.0)
    before = checkpoint.planned(first).offsets
    return {
        Place(*place): (offset - before[place]) / (last_s - times[first])
        for place, offset in done.offsets.items()
        if place in before
    }


def _batches(checkpoint: Checkpoint, done: Planned, times: Mapping[int, float], now_s: float) -> str:
    told = f"batch {done.batch} was done {words(max(now_s - times[done.batch], 0))} ago"
    unfinished = checkpoint.unfinished()
    if unfinished is not None:
        told += f", batch {unfinished.batch} was begun {words(max(now_s - unfinished.planned_ms / 1000, 0))} ago"
    return f"{checkpoint.directory}: {told}."


def commit(bootstrap: str, group: str, offsets: Offsets) -> None:
    """Raises CommandError."""
    from ottla.pipeline.jobs.group_commits import WireCommit
    from ottla.pipeline.wire.errors import ClientError

    try:
        with closing(WireCommit(group, {"kafka.bootstrap.servers": bootstrap})) as committing:
            committing(offsets)
    except ClientError as error:
        raise CommandError(str(error)) from error
