"""A batch in a topic once: whatever attempt comes when, and wherever it stops."""

import os
import pickle
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from ottla.pipeline.sinks.attempts import Attempt
from ottla.pipeline.sinks.errors import OptionRefused, ReplayDiffers, ReplayTooLate
from ottla.pipeline.sinks.fingerprint import Fingerprint
from ottla.pipeline.sinks.lateness import planned_ago_s
from ottla.pipeline.sinks.topic import TopicStreamWriter, TopicWriter
from ottla.pipeline.sinks.topic_options import topic_options
from ottla.pipeline.sinks.topic_write import Sent, TopicWrite
from ottla.pipeline.wire.cluster import Cluster
from ottla.pipeline.wire.errors import ClientError
from ottla.pipeline.wire.producer_errors import FencedError
from ottla.runtime.errors import ErrorCode
from tests.unit.pipeline.wire.fake_cluster import FakeCluster

BOOTSTRAP = {"kafka.bootstrap.servers": "fake:9092", "topic": "t", "kafka.retry.backoff.ms": "0"}


def batch(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values)})


def write(cluster: FakeCluster, number: int, *batches: pa.RecordBatch, task: int = 0, **options: str) -> Sent:
    sink = TopicWrite(topic_options({**BOOTSTRAP, **options}))
    return sink.write(batches, Attempt("q", number, task, 0), cast(Cluster, cluster))


def test_a_batch_that_comes_again_is_skipped() -> None:
    cluster = FakeCluster(t=1)
    assert write(cluster, 0, batch("a"), batch("b")) == Sent(2)
    assert write(cluster, 0, batch("b", "a")) == Sent(2, skipped=True)
    assert write(cluster, 1, batch("c")) == Sent(1)
    assert write(cluster, 0, batch("a", "b")).skipped
    assert cluster.values("t", 0) == [b"a", b"b", b"c"]
    ((offset, told),) = cluster.offsets["ottla.q.0"].values()
    assert offset == 2
    assert Fingerprint.read(told) == Fingerprint().joined(batch("c"))


def test_tasks_are_skipped_each_by_itself() -> None:
    cluster = FakeCluster(t=1)
    write(cluster, 0, batch("a"), task=1)
    assert not write(cluster, 0, batch("b"), task=0).skipped
    assert write(cluster, 0, batch("a"), task=1).skipped
    assert cluster.values("t", 0) == [b"a", b"b"]


def test_a_task_without_rows_asks_nobody() -> None:
    cluster = FakeCluster(t=1)
    assert write(cluster, 0, batch()) == Sent(0)
    assert write(cluster, 0) == Sent(0)
    assert cluster.asked == []


STEPS = (
    "InitProducerId",
    "OffsetFetch",
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_before_any_step_loses_and_doubles_nothing(step: str) -> None:
    cluster = FakeCluster(t=1)
    write(cluster, 0, batch("a"))

    def killed(api: str) -> None:
        if api == step:
            raise KeyboardInterrupt

    cluster.before = killed
    with pytest.raises(KeyboardInterrupt):
        write(cluster, 1, batch("b", "c"))
    cluster.before = lambda _: None
    assert not write(cluster, 1, batch("b", "c")).skipped
    assert cluster.values("t", 0) == [b"a", b"b", b"c"]


def test_a_kill_behind_the_end_is_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(t=1)
    real = cluster._endtxn

    def killed(*told: Any) -> Any:
        real(*told)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cluster, "_endtxn", killed)
        with pytest.raises(KeyboardInterrupt):
            write(cluster, 0, batch("a"))
    assert write(cluster, 0, batch("a")).skipped
    assert cluster.values("t", 0) == [b"a"]


@pytest.mark.parametrize("same", [True, False])
def test_a_coordinator_that_tells_the_past_doubles_nothing(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was replaced, and has not heard of it; whoever takes the new offset is the one who knows."""
    cluster = FakeCluster(t=1)
    write(cluster, 0, batch("a"))
    real, left = cluster._offsetfetch, [True]

    def stale(key: str, *told: Any) -> Any:
        return real("nobody" if left and left.pop() else key, *told)

    monkeypatch.setattr(cluster, "_offsetfetch", stale)
    if same:
        assert write(cluster, 0, batch("a")) == Sent(1, skipped=True)
    else:
        with pytest.raises(ReplayDiffers):
            write(cluster, 0, batch("b"))
    assert cluster.values("t", 0) == [b"a"]
    assert not write(cluster, 1, batch("c")).skipped


def test_a_coordinator_that_tells_the_past_hides_no_checkpoint_that_went_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(t=1)
    write(cluster, 7, batch("a"))
    real, left = cluster._offsetfetch, [True]
    monkeypatch.setattr(
        cluster, "_offsetfetch", lambda key, *told: real("nobody" if left and left.pop() else key, *told)
    )
    sink = TopicWrite(topic_options(BOOTSTRAP), is_stream=True)
    with pytest.raises(ReplayDiffers, match="its batch 7 is in the topic"):
        sink.write([batch("b")], Attempt("q", 6, 0, 0), cast(Cluster, cluster))
    assert cluster.values("t", 0) == [b"a"]


def test_a_second_attempt_beside_the_first_fences_it() -> None:
    """As speculation has it, and an executor that its driver has lost."""
    cluster = FakeCluster(t=1)

    def meanwhile() -> Any:
        yield batch("a")
        assert write(cluster, 0, batch("a", "b")) == Sent(2)
        yield batch("b")

    sink = TopicWrite(topic_options(BOOTSTRAP))
    with pytest.raises(FencedError, match=r"Another attempt has taken over transaction ottla\.q\.0"):
        sink.write(meanwhile(), Attempt("q", 0, 0, 0), cast(Cluster, cluster))
    assert cluster.values("t", 0) == [b"a", b"b"]


def test_a_task_of_the_past_writes_nothing() -> None:
    cluster = FakeCluster(t=1)
    write(cluster, 7, batch("x"))
    assert write(cluster, 3, batch("anything")) == Sent(0, skipped=True)
    assert cluster.values("t", 0) == [b"x"]


def test_a_query_whose_checkpoint_went_back_is_told_so_rather_than_skipped() -> None:
    cluster = FakeCluster(t=1)

    def stream(number: int, **options: str) -> Sent:
        sink = TopicWrite(topic_options({**BOOTSTRAP, **options}), is_stream=True)
        return sink.write([batch("a")], Attempt("q", number, 0, 0), cast(Cluster, cluster))

    assert not stream(7).skipped
    assert stream(7).skipped
    with pytest.raises(ReplayDiffers, match="Batch 6 of q comes again, and its batch 7 is in the topic"):
        stream(6)
    assert stream(6, lateReplay="skip").skipped
    assert not stream(8).skipped
    assert cluster.values("t", 0) == [b"a", b"a"]


def test_a_replay_with_other_rows_is_refused() -> None:
    cluster = FakeCluster(t=1)
    write(cluster, 0, batch("a", "b"))
    with pytest.raises(ReplayDiffers, match=r"Batch 0 of q comes again, and task 0 brings other rows: 2 \(2 bytes\)"):
        write(cluster, 0, batch("a"))
    with pytest.raises(ReplayDiffers):
        write(cluster, 0, batch("a", "c"))


def test_a_batch_that_brokers_may_have_forgotten_is_refused_until_a_person_has_looked() -> None:
    cluster = FakeCluster(t=1)

    def late(days: int, number: int = 3, **options: str) -> Sent:
        sink = TopicWrite(topic_options({**BOOTSTRAP, **options}), days * 24)
        return sink.write([batch("a")], Attempt("q", number, 0, 0), cast(Cluster, cluster))

    with pytest.raises(ReplayTooLate, match=r"Batch 3 of q was planned 8 days ago.* cannot be told\. Look there"):
        late(8)
    assert late(8, lateReplay="skip").skipped
    assert cluster.values("t", 0) == []
    assert not late(8, lateReplay="write").skipped
    assert late(8).skipped, "what is known is known"
    cluster.offsets.clear()
    assert not late(5).skipped
    assert cluster.values("t", 0) == [b"a", b"a"]


def test_how_long_ago_a_batch_was_planned_is_asked_of_the_checkpoint(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    assert planned_ago_s(str(tmp_path / "none")) == 0
    assert planned_ago_s("s3x://nowhere/c") == 0
    offsets.mkdir()
    for name, days in (("9", 30), ("10", 8), (".10.crc", 40)):
        (offsets / name).touch()
        at_s = time.time() - days * 86_400
        os.utime(offsets / name, (at_s, at_s))
    assert planned_ago_s(str(tmp_path)) == pytest.approx(8 * 86_400, abs=60)
    (offsets / "11").touch()
    assert planned_ago_s(str(tmp_path)) < 60


def test_a_failed_task_aborts_what_it_began() -> None:
    cluster = FakeCluster(t=1)
    cluster.codes["t", 0].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ClientError):
        write(cluster, 0, batch("a"))
    assert cluster.asked[-1] == "EndTxn"
    assert not cluster.open
    assert cluster.offsets["ottla.q.0"] == {}


def test_a_write_without_a_name_is_never_taken_for_another() -> None:
    cluster = FakeCluster(t=1)
    for _ in range(2):
        sink = pickle.loads(pickle.dumps(TopicWrite(topic_options(BOOTSTRAP))))
        for attempt in range(2):
            sink.write([batch("a")], Attempt("", 0, 0, attempt), cast(Cluster, cluster))
    assert cluster.values("t", 0) == [b"a", b"a"]


def test_at_least_once_asks_no_coordinator() -> None:
    cluster = FakeCluster(t=1)
    assert write(cluster, 0, batch("a"), mode="at-least-once") == Sent(1)
    assert write(cluster, 0, batch("a"), mode="at-least-once") == Sent(1)
    assert cluster.values("t", 0) == [b"a", b"a"]
    assert cluster.asked == []


def test_a_fingerprint_tells_rows_apart_and_not_their_order() -> None:
    def seen(*values: str | None, key: str | None = None) -> Fingerprint:
        return Fingerprint().joined(pa.record_batch({"key": pa.array([key] * len(values)), "value": list(values)}))

    assert seen("ab", "c") == seen("c", "ab")
    assert seen("ab", "c") != seen("a", "bc")
    assert seen("ab") != seen("ab", key="k")
    assert seen("a" * 30) != seen("a" * 29 + "b")
    assert seen(None, "") != seen("", "")
    assert seen("x", "y", "z").joined(batch("q")).rows == 4
    assert Fingerprint.read(seen("x").told(3)) == seen("x")
    assert Fingerprint.read("mine") is None


STRINGS = StructType().add("value", StringType()).add("topic", StringType())
VALUES = StructType().add("value", StringType())


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (StructType().add("v", StringType()), {}, "need a column value"),
        (StructType().add("value", IntegerType()), {}, "Column value is integer; it has to be string or binary"),
        (
            StructType().add("value", StringType()).add("offset", IntegerType()),
            {},
            "Column offset is none that a record has",
        ),
        (STRINGS, {"lateReplay": "perhaps"}, "it is one of refuse, write, skip"),
        (STRINGS, {"mode": "once"}, "it is one of exactly-once"),
        (STRINGS, {"txnAppID": "a", "txnVersoin": "1"}, "there is no option txnversoin; is txnVersion meant"),
        (STRINGS, {"kafka.transactional.id": "x"}, "is the sink's own"),
        (STRINGS, {"kafka.compression.type": "brotli"}, "must be one of none"),
    ],
)
def test_rows_and_options_that_cannot_be_are_refused_on_the_driver(
    schema: StructType, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        TopicStreamWriter(schema, BOOTSTRAP | options)


def test_a_topic_has_to_be_named() -> None:
    with pytest.raises(OptionRefused, match="Say which topic"):
        TopicStreamWriter(VALUES, {name: value for name, value in BOOTSTRAP.items() if name != "topic"})


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(OptionRefused, match="cannot be overwritten"):
        TopicWriter(STRINGS, BOOTSTRAP, overwrite=True)
