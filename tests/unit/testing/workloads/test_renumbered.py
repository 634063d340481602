"""Which records a workload expects once, when librdkafka takes a new producer epoch."""

import logging
from pathlib import Path

import pytest

from ottla.testing.chaos.workloads import renumbered
from ottla.testing.chaos.workloads.clients import Counted, Stream
from ottla.testing.checker import Outcome, Recorder, check_file
from ottla.testing.checker.findings import Kind
from ottla.testing.checker.operations import Read

MOCK = {"test.mock.num.brokers": 1}  # librdkafka's own

ERRSEQ = (
    "ERRSEQ [p] 127.0.0.1:41835/1: ProduceRequest for alpha [0] with 1 message(s) failed due to skipped sequence numbers "
    "(PID{Id:0,Epoch:0}, base seq 2 > next seq 1) caused by previous failed request (%s, base seq 1..1, base msgid 2, 2330ms ago): "
    "recovering and retrying"
)
REFUSED = ERRSEQ % "NOT_ENOUGH_REPLICAS, actions Retry,MsgNotPersisted"
WRITTEN = ERRSEQ % "REQUEST_TIMED_OUT, actions Retry,MsgPossiblyPersisted"
NOTHING = ERRSEQ % "NO_ERROR, actions "


@pytest.mark.parametrize(("line", "is_excused"), [(REFUSED, True), (WRITTEN, False), (NOTHING, False)])
def test_a_gap_is_the_clients_only_behind_a_request_that_was_refused(line: str, is_excused: bool) -> None:
    heard: list[bool] = []
    renumbered.logger(lambda: heard.append(True)).log(logging.DEBUG, "%s", line)
    assert heard == [True] * is_excused


def test_what_is_under_way_at_a_new_epoch_may_stand_twice_and_nothing_else_may(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    recorder = Recorder(path)
    history = Counted(recorder)
    stream = Stream("p", "", history, **MOCK)
    before = stream.send("t", 0)
    assert stream.wait(before, 20)
    under_way = stream.send("t", 0)
    stream._log.log(logging.DEBUG, "%s", REFUSED)
    assert stream.wait(under_way, 20)
    after = stream.send("t", 0)
    assert stream.wait(after, 20)
    stream.close()
    assert [each.idempotent for each in (before, under_way, after)] == [True, False, True]
    written = [each.value for each in (before, under_way, after)]
    history.write(the_whole_log(*written, under_way.value))
    recorder.close()
    assert check_file(path).valid
    Path(path).write_text(path.read_text().replace('"idempotent":false', '"idempotent":true'))
    [found] = check_file(path).anomalies
    assert found.kind is Kind.DUPLICATED


def the_whole_log(*values: str) -> Read:
    records = list(enumerate(values))
    return Read(topic="t", partition=0, records=records, start=0, next=len(records), final=True, outcome=Outcome.OK)
