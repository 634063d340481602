"""No record of a newer metadata.version than the cluster's, and no node that cannot read what there is."""

from typing import Any

import pytest

from ottla.proto import controller_pb2 as rpc
from ottla.proto import metadata_pb2 as pb
from ottla.quorum.controller.decisions import features, record_levels
from ottla.quorum.controller.decisions.features import SUPPORTED, update_features
from ottla.quorum.controller.decisions.record_levels import (
    METADATA_VERSION,
    check_records,
    written_above,
)
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.families.family import RecordLevel
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.runtime.errors import ErrorCode, KafkaError
from tests.unit.quorum.controller.conftest import World
from tests.unit.quorum.controller.controller_bench import Bench, create
from tests.unit.quorum.metadata.metadata_records import DictStore

KINDS = [field.name for field in pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["body"].fields]
# Messages inside of records: a field more in them is one that an old node would lose. Give the record a field instead.
INNER = {"Endpoint": 4, "FeatureRange": 3, "Replicas": 1, "Directories": 1}


def with_level(monkeypatch: pytest.MonkeyPatch, kind: str, level: RecordLevel) -> None:
    changed = {**record_levels.record_levels(), kind: level}
    monkeypatch.setattr(record_levels, "_BESIDE_FAMILIES", changed)


def test_every_kind_of_record_has_a_level_that_exists() -> None:
    assert sorted(record_levels.record_levels()) == sorted(KINDS)
    lowest, highest = SUPPORTED[METADATA_VERSION].lowest, SUPPORTED[METADATA_VERSION].highest
    for known in record_levels.record_levels().values():
        assert all(lowest <= each <= highest for each in (known.first, *known.later.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_record_has_a_level(kind: str) -> None:
    known = record_levels.record_levels()[kind]
    message = pb.MetadataRecord.DESCRIPTOR.fields_by_name[kind].message_type
    assert message is not None
    newer = [field.number for field in message.fields if field.number > known.fields]
    assert newer == sorted(known.later), f"{kind}: say which metadata.version brought them"


def test_the_messages_inside_of_records_do_not_grow() -> None:
    assert {name: len(pb.DESCRIPTOR.message_types_by_name[name].fields) for name in INNER} == INNER


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_not_written_below_its_level(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    record = pb.MetadataRecord()
    getattr(record, kind).SetInParent()
    check_records([record], record_levels.record_levels()[kind].first)
    with_level(monkeypatch, kind, RecordLevel(31, 99))
    with pytest.raises(KafkaError, match=f"{kind} records came with metadata.version 31 and the cluster is at 30"):
        check_records([record], 30)


def test_a_field_is_not_written_below_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with_level(monkeypatch, "topic", RecordLevel(25, 1, {2: 31}))
    check_records([pb.MetadataRecord(topic=pb.Topic(name="t"))], 30)
    with pytest.raises(KafkaError, match=r"the field topic_id of topic records came with metadata.version 31"):
        check_records([pb.MetadataRecord(topic=pb.Topic(name="t", topic_id=bytes(16)))], 30)


def test_the_controller_refuses_what_the_cluster_cannot_read_and_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench().lead().commit()
    bench.broker(1)
    with_level(monkeypatch, "partition", RecordLevel(31, 11))
    before = len(bench.quorum.log)
    refused = bench.ask(**create("a"))
    assert refused[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "ottla features upgrade --feature metadata.version=31" in refused[0].error_message
    assert len(bench.quorum.log) == before
    monkeypatch.undo()
    accepted = bench.ask(**create("a"))
    bench.commit()
    assert accepted[0].create_topics.topics[0].error_code == ErrorCode.NONE, "the name is not taken"


def test_what_the_controller_does_of_itself_is_held_to_it_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(session_timeout_ms=9000).lead().commit()
    bench.broker(1)
    with_level(monkeypatch, "broker_registration_change", RecordLevel(31, 5))
    before = len(bench.quorum.log)
    bench.loop.advance(12_000)
    assert len(bench.quorum.log) == before
    assert bench.controller.is_active
    assert "broker_registration_change records came with metadata.version 31" in caplog.text


def test_an_upgrade_lets_the_new_records_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "SUPPORTED", {METADATA_VERSION: features.Levels(25, 31, 30)})
    with_level(monkeypatch, "partition", RecordLevel(31, 11))
    bench = Bench().lead().commit()
    bench.broker(1)
    assert bench.ask(**create("a"))[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    update = rpc.UpdateFeaturesRequest.Update(name=METADATA_VERSION, max_version_level=31, upgrade_type=1)
    bench.ask(update_features=rpc.UpdateFeaturesRequest(updates=[update]))
    accepted = bench.ask(**create("a"))
    bench.commit()
    assert accepted[0].create_topics.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(("level", "what"), [(30, "topic records of a level above 30"), (31, None)])
def test_a_level_whose_records_may_be_in_the_log_is_not_taken_back(
    monkeypatch: pytest.MonkeyPatch, level: int, what: str | None
) -> None:
    with_level(monkeypatch, "topic", RecordLevel(25, 1, {2: 31}))
    monkeypatch.setattr(features, "SUPPORTED", {METADATA_VERSION: features.Levels(25, 32, 32)})
    assert written_above(level, 32) == what
    world = World()
    update = rpc.UpdateFeaturesRequest.Update(name=METADATA_VERSION, max_version_level=level, upgrade_type=2)
    request = rpc.UpdateFeaturesRequest(updates=[update])
    if what is None:
        assert world.do(update_features(world.state, request)) == rpc.UpdateFeaturesResponse()
    else:
        with pytest.raises(KafkaError, match="the log may hold topic records of a level above 30"):
            update_features(world.state, request)


# --- an old node in a newer cluster -----------------------------------------------------------------------------------

READS: dict[str, tuple[int, int]] = {METADATA_VERSION: (25, 30)}


def finalize(name: str, level: int) -> CommittedBatch:
    record = pb.MetadataRecord(feature_level=pb.FeatureLevel(name=name, level=level))
    return CommittedBatch(0, 0, 1, 0, [record.SerializeToString()])


def refusal(work: Any) -> str:
    with pytest.raises(KafkaError) as caught:
        work()
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    return str(caught.value)


def test_a_node_stops_at_a_level_that_it_does_not_read() -> None:
    loader = MetadataLoader(DictStore(), None, READS)
    loader.on_commit(finalize(METADATA_VERSION, 30))
    assert "level 31 and this node reads 25 to 30: upgrade it" in refusal(
        lambda: loader.on_commit(finalize(METADATA_VERSION, 31))
    )
    assert "group.version at level 1" in refusal(
        lambda: MetadataLoader(DictStore(), None, READS).on_commit(finalize("group.version", 1))
    )


def test_a_node_does_not_start_on_an_image_of_a_level_that_it_does_not_read() -> None:
    store = DictStore()
    MetadataLoader(store).on_commit(finalize(METADATA_VERSION, 31))
    assert "upgrade it" in refusal(lambda: MetadataLoader(store, None, READS))
