"""A row in the table of record families, and its messages, are all that a new kind of metadata takes."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.cli.metadata import metadata
from ottla.quorum.controller.decisions.record_levels import check_records, written_above
from ottla.quorum.controller.decisions.state import ControllerSettings, ControllerState
from ottla.quorum.listener import CommittedBatch
from ottla.quorum.metadata.delta import MetadataDelta
from ottla.quorum.metadata.families.table import FAMILIES, KINDS
from ottla.quorum.metadata.history import at, blame, diff, effective_records
from ottla.quorum.metadata.image import MetadataImage
from ottla.quorum.metadata.publisher import MetadataLoader
from ottla.quorum.metadata.store import ImageStore
from ottla.quorum.snapshots.image_copies import ImageSnapshots
from ottla.runtime.errors import KafkaError
from ottla.runtime.lmdb_store import LmdbStore
from tests.unit.quorum.metadata.conftest import MetadataDirectory
from tests.unit.quorum.metadata.extra_family import LEVEL, QUOTAS, add_quotas, quota_record
from tests.unit.quorum.metadata.metadata_records import (
    SOME,
    DictStore,
    abort,
    batch,
    begin,
    broker,
    build,
    end,
    image_records,
    partition,
    topic,
)
from tests.unit.quorum.metadata.metadata_story import log


@pytest.fixture(autouse=True)
def _quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    add_quotas(monkeypatch)


def quotas(image: MetadataImage) -> dict[str, dict[str, float]]:
    return image.entries(QUOTAS)


def some_quotas() -> MetadataImage:
    return build([*SOME, quota_record("ann", "produce", 10), quota_record("ann", "fetch", 5)])


# --- the table --------------------------------------------------------------------------------------------------------


def test_no_family_takes_anothers_place() -> None:
    prefixes = [each.prefix for each in FAMILIES.values()]
    assert all(len(each) == 1 for each in prefixes)
    assert len({*prefixes, b"o", b"t", b"p"}) == len(prefixes) + 3, "o, t and p are the store's own"
    assert len({each.path for each in FAMILIES.values()}) == len(FAMILIES)
    assert sum(len(each.kinds) for each in FAMILIES.values()) == len(KINDS)
    assert all(KINDS[kind][0] is FAMILIES[name] for name, each in FAMILIES.items() for kind in each.kinds)


# --- image and delta --------------------------------------------------------------------------------------------------


def test_its_records_change_the_image_and_the_delta_has_what_was_before() -> None:
    image = some_quotas()
    assert quotas(image) == {"ann": {"produce": 10, "fetch": 5}}
    delta = MetadataDelta()
    for record in (quota_record("ann", "fetch", None), quota_record("bob", "fetch", 1)):
        image.apply(record, delta)
    assert quotas(image) == {"ann": {"produce": 10}, "bob": {"fetch": 1}}
    assert delta.changed(QUOTAS) == {"ann": {"produce": 10, "fetch": 5}, "bob": None}
    assert not delta.is_empty
    for name in ("produce", "fetch"):
        image.apply(quota_record("ann", name, None), delta)
    assert quotas(image) == {"bob": {"fetch": 1}}


def test_a_difference_in_it_alone_makes_images_unequal() -> None:
    assert some_quotas() == some_quotas()
    assert some_quotas() != build(SOME)
    assert MetadataDelta.between(build(SOME), build(SOME)).is_empty
    assert MetadataDelta.between(some_quotas(), build(SOME)).changed(QUOTAS) == {"ann": {"produce": 10, "fetch": 5}}


def test_a_fork_goes_its_own_way() -> None:
    image = some_quotas()
    fork = image.fork()
    assert fork == image
    fork.apply(quota_record("ann", "fetch", 6), MetadataDelta())
    assert quotas(image)["ann"]["fetch"] == 5
    image.become(fork)
    assert quotas(image)["ann"]["fetch"] == 6
    for _ in image.dissolve():
        pass


def test_an_image_is_told_in_records_and_made_of_them_again() -> None:
    assert build(image_records(some_quotas())) == some_quotas()


# --- store, snapshots, loader -----------------------------------------------------------------------------------------


def test_a_restart_finds_it_and_a_part_that_goes_is_deleted() -> None:
    store, image = DictStore(), some_quotas()
    ImageStore(store).replace(image)
    assert ImageStore(store).load() == image
    delta = MetadataDelta()
    image.apply(quota_record("ann", "fetch", None), delta)
    written = dict(store.pairs)
    ImageStore(store).write(delta, image)
    assert sorted(written.keys() - store.pairs.keys()) == [b"qann\0fetch"]
    assert ImageStore(store).load() == image


def test_a_snapshot_carries_it_to_another_node(tmp_path: Path) -> None:
    store = LmdbStore(str(tmp_path / "store"))
    loader = MetadataLoader(store)
    loader.on_commit(batch(0, [*SOME, quota_record("ann", "fetch", 5)]))
    taken = ImageSnapshots(store, LmdbStore).copy_to(str(tmp_path / "snapshot"))
    loader.close()
    assert taken is not None
    told: list[dict[str, Any]] = []

    class Publisher:
        def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            told.append(dict(delta.changed(QUOTAS)))

    other = MetadataLoader(LmdbStore(str(tmp_path / "other")), LmdbStore)
    other.add_publisher(Publisher())
    asyncio.run(other.on_snapshot(str(tmp_path / "snapshot"), taken.offset, taken.epoch))
    other.close()
    assert quotas(other.image) == {"ann": {"fetch": 5}}
    assert {"ann": None} in told
    again = MetadataLoader(LmdbStore(str(tmp_path / "other")))
    again.close()
    assert quotas(again.image) == {"ann": {"fetch": 5}}


def test_a_transaction_holds_it_back_and_an_abort_drops_it() -> None:
    loader = MetadataLoader(DictStore())
    loader.on_commit(batch(0, [begin(), quota_record("ann", "fetch", 5)]))
    assert quotas(loader.image) == {}
    loader.on_commit(batch(2, [end()]))
    assert quotas(loader.image) == {"ann": {"fetch": 5}}
    loader.on_commit(batch(3, [begin(), quota_record("ann", "fetch", 6)]))
    assert quotas(loader.image) == {"ann": {"fetch": 5}}
    loader.on_commit(batch(5, [abort()]))
    assert quotas(loader.image) == {"ann": {"fetch": 5}}


def test_the_controller_replays_it_on_its_own_image() -> None:
    image = some_quotas()
    state = ControllerState(image, ControllerSettings(cluster_id="c"), Random(1))
    state.replay(quota_record("ann", "fetch", 9))
    assert quotas(state.image)["ann"]["fetch"] == 9
    assert quotas(image)["ann"]["fetch"] == 5


# --- levels -----------------------------------------------------------------------------------------------------------


def test_it_is_not_written_below_its_level() -> None:
    record = quota_record("ann", "fetch", 5)
    with pytest.raises(
        KafkaError, match=r"client_quota records came with metadata.version 31 and the cluster is at 30"
    ):
        check_records([record], LEVEL - 1)
    check_records([record], LEVEL)
    assert written_above(LEVEL - 1, LEVEL) == "client_quota records of a level above 30"


# --- history ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def story() -> list[CommittedBatch]:
    return log(
        ("create_topics by ann", [broker(1), topic(1), partition(1, 0)]),
        ("alter_client_quotas by bob", [quota_record("ann", "fetch", 5), quota_record("ann", "produce", 1)]),
        ("alter_client_quotas by carl", [quota_record("ann", "fetch", 6)]),
    )


@pytest.fixture
def directory(tmp_path: Path, story: list[CommittedBatch]) -> MetadataDirectory:
    made = MetadataDirectory(tmp_path / "__cluster_metadata-0")
    made.add(story)
    return made


def run(directory: MetadataDirectory, command: str, *words: str) -> str:
    result = CliRunner().invoke(metadata, [command, "-d", str(directory.path), *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_history_has_it_and_why(story: list[CommittedBatch]) -> None:
    assert quotas(at(story, 4)) == {"ann": {"fetch": 5, "produce": 1}}
    assert [tuple(each) for each in diff(at(story, 4), at(story, 5))] == [("quota", "ann: fetch", "5", "6")]
    assert [tuple(each) for each in diff(at(story, 5), at(story, 2))] == [
        ("quota", "ann: produce", "1", ""),
        ("quota", "ann: fetch", "6", ""),
    ]
    assert [each.cause for each in effective_records(story)][3:] == [
        "alter_client_quotas by bob",
        "alter_client_quotas by bob",
        "alter_client_quotas by carl",
    ]
    assert len(blame(story, "topic-1", 0)) == 1, "a partition's life goes past it"


def test_the_command_line_tells_it(directory: MetadataDirectory) -> None:
    assert run(directory, "dump").splitlines()[-2:] == [
        "         5  epoch 3  1970-01-01 00:00:02.000Z  alter_client_quotas by carl",
        f"{5:>10}  {'client_quota':<26} user=ann name=fetch value=6.0",
    ]
    assert "quotas\n" in run(directory, "at", "latest")
    image = json.loads(run(directory, "at", "latest", "-o", "json"))
    assert image["clientQuotas"] == {"users": {"ann": {"fetch": 6, "produce": 1}}}
    assert json.loads(run(directory, "diff", "4", "5", "-o", "json")) == [
        {"kind": "quota", "name": "ann: fetch", "before": "5", "after": "6"}
    ]
    assert json.loads(run(directory, "shell", "cat", "/image/clientQuotas/users/ann")) == {"fetch": 6, "produce": 1}
    assert "created on 1,2,3" in run(directory, "blame", "topic-1/0")
