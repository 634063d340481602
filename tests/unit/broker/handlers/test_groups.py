"""Groups' requests in all their versions, from the wire to the coordinator and back."""

from typing import Any, cast

import msgspec
import pytest

from ottla.broker.coordinator.placement import java_hash, partition_of
from ottla.broker.handlers.common import OPERATIONS_NOT_ASKED
from ottla.broker.handlers.group_history import COMMITS, REBALANCES
from ottla.broker.handlers.groups import GROUP_OPERATIONS
from ottla.broker.wire.messages import offset_commit_request as commit
from ottla.broker.wire.messages import offset_fetch_request as fetch
from ottla.broker.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.broker.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.broker.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.broker.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from ottla.broker.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.broker.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.broker.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.broker.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.broker.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.broker.wire.messages.list_groups_request import ListGroupsRequest
from ottla.broker.wire.messages.offset_delete_request import OffsetDeleteRequest
from ottla.broker.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.errors import ErrorCode
from tests.unit.broker.coordinator.groups.group_bench import Bench
from tests.unit.broker.handlers.conftest import Site, partition_view
from tests.unit.broker.handlers.coordinators import coordinated


@pytest.fixture
def bench(site: Site) -> Bench:
    return coordinated(site)


# --- finding it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("hello", 99162322), ("ü", 252), ("\U0001f600", 1772899)]
)
def test_keys_are_hashed_as_java_does(text: str, value: int) -> None:
    assert java_hash(text) == value & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "partition"),
    [("g", 3), ("payments", 13), ("service-0", 22), ("service-1", 21), ("copier", 24), ("polygenelubricants", 0)],
)
def test_a_key_belongs_where_kafka_keeps_it(key: str, partition: int) -> None:
    """As Kafka's `Utils.abs(key.hashCode()) % 50` says it, of negative hashes too; the last is the least number there is."""
    assert partition_of(key, 50) == partition


def test_a_long_key_belongs_where_kafka_keeps_it() -> None:
    key = "service-0" * 20
    value = java_hash(key)
    assert partition_of(key, 50) == abs(value - (1 << 32) if value >> 31 else value) % 50


@pytest.mark.parametrize("version", range(7))
def test_the_leader_of_its_partition_coordinates_a_group(site: Site, bench: Bench, version: int) -> None:
    leaders = [2 if index == partition_of("g", 3) else 1 for index in range(3)]
    partitions = [partition_view((1, 2), (1, 2), leader) for leader in leaders]
    site.add_topic("__consumer_offsets", *partitions)
    request = FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest("g")
    response = site.ask(request, version)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host) == (ErrorCode.NONE, 2, "host2.plaintext")


def test_without_a_leader_there_is_no_coordinator(site: Site, bench: Bench) -> None:
    site.add_topic("__consumer_offsets", partition_view((1, 2), (1,), -1))
    assert site.ask(FindCoordinatorRequest("g"), 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_an_unknown_kind_of_key_is_a_mistake(site: Site) -> None:
    assert site.ask(FindCoordinatorRequest("x", 9), 3).error_code == ErrorCode.INVALID_REQUEST


# --- members ----------------------------------------------------------------------------------------------------------


def join(site: Site, bench: Bench, version: int) -> Any:
    request = JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"m")])
    if version >= 4:
        refused = site.ask(request, version)
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = refused.member_id
    site.send(request, version)
    bench.wait(3_000)
    return site.received("JoinGroupResponse", version)


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins(site: Site, bench: Bench, version: int) -> None:
    joined = join(site, bench, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, joined.member_id)
    assert [each.metadata for each in joined.members] == [b"m"]
    assert bench.group.members[joined.member_id].client_host == "/10.0.0.1"


@pytest.mark.parametrize("version", range(6))
def test_a_member_is_told_its_assignment(site: Site, bench: Bench, version: int) -> None:
    member_id = join(site, bench, 9).member_id
    told = [SyncGroupRequestAssignment(member_id, b"all")]
    request = SyncGroupRequest("g", 1, member_id, assignments=told)
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    assert site.ask(request, version).assignment == b"all"


@pytest.mark.parametrize("version", range(5))
def test_a_member_is_alive(site: Site, bench: Bench, version: int) -> None:
    member_id = join(site, bench, 9).member_id
    assert site.ask(HeartbeatRequest("g", 1, member_id), version).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves(site: Site, bench: Bench, version: int) -> None:
    member_id = join(site, bench, 9).member_id
    request = LeaveGroupRequest("g", members=[MemberIdentity(member_id)])
    if version < 3:
        request = LeaveGroupRequest("g", member_id)
    assert site.ask(request, version).error_code == ErrorCode.NONE
    assert not bench.group.members


@pytest.mark.parametrize("version", range(2))
def test_where_the_consumer_protocol_is_not_in_use_its_members_are_told_what_to_do(
    site: Site, bench: Bench, version: int
) -> None:
    for level in (0, None):
        site.image.features = {"group.version": level} if level is not None else {}
        response = site.ask(ConsumerGroupHeartbeatRequest("g"), version)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in response.error_message
    assert not bench.log


@pytest.mark.parametrize("settings", [{"group_coordinator_rebalance_protocols": "classic"}])
def test_an_operator_may_leave_the_consumer_protocol_out(settings: dict[str, str]) -> None:
    site = Site(**settings)
    site.image.features = {"group.version": 1}
    assert site.ask(ConsumerGroupHeartbeatRequest("g"), 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", range(2))
def test_a_member_of_the_consumer_protocol_joins_and_leaves(site: Site, bench: Bench, version: int) -> None:
    site.image.features = {"group.version": 1}
    request = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, ["t"], topic_partitions=[])
    joined = site.ask(request, version)
    assert (joined.error_code, joined.member_epoch, joined.member_id) == (ErrorCode.NONE, 1, "m")
    assert [each.partitions for each in joined.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert site.ask(ConsumerGroupHeartbeatRequest("g", "m", 1), version).assignment is None
    assert site.ask(ConsumerGroupHeartbeatRequest("g", "m", -1), version).member_epoch == -1
    elsewhere = site.ask(ConsumerGroupHeartbeatRequest("elsewhere", "m", 1), version)
    assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR


REQUESTS = [
    (JoinGroupRequest, 9),
    (SyncGroupRequest, 5),
    (HeartbeatRequest, 4),
    (LeaveGroupRequest, 5),
    (OffsetDeleteRequest, 0),
]


@pytest.mark.parametrize(("request_of", "version"), REQUESTS)
@pytest.mark.parametrize(
    ("group_id", "error"),
    [
        ("", ErrorCode.INVALID_GROUP_ID),
        ("elsewhere", ErrorCode.NOT_COORDINATOR),
    ],
    ids=["no name", "another coordinator"],
)
def test_what_cannot_be_coordinated_here_is_refused(
    site: Site, bench: Bench, request_of: Any, version: int, group_id: str, error: ErrorCode
) -> None:
    assert site.ask(request_of(group_id), version).error_code == error


@pytest.mark.parametrize(
    ("request_of", "version", "error"),
    [
        (JoinGroupRequest, 9, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (SyncGroupRequest, 5, ErrorCode.REBALANCE_IN_PROGRESS),
        (HeartbeatRequest, 4, ErrorCode.NONE),
    ],
)
def test_while_a_group_is_loaded_its_members_are_told_what_they_go_on_with(
    site: Site, bench: Bench, request_of: Any, version: int, error: ErrorCode
) -> None:
    """Of a heartbeat that hears of it aiokafka's consumers end, and Java's of a SyncGroup."""
    cast(Any, site.broker.groups).is_loading = True
    assert site.ask(request_of("g"), version).error_code == error


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_an_offset_is_committed_and_found_again(site: Site, bench: Bench, version: int) -> None:
    topic = commit.OffsetCommitRequestTopic("t", partitions=[commit.OffsetCommitRequestPartition(3, 55)])
    if version >= 10:
        topic = commit.OffsetCommitRequestTopic(topic_id=bench.topic_ids["t"], partitions=topic.partitions)
    [told] = site.ask(commit.OffsetCommitRequest("g", topics=[topic]), version).topics
    assert [(each.partition_index, each.error_code) for each in told.partitions] == [(3, 0)]
    [found] = site.ask(fetch.OffsetFetchRequest("g", [fetch.OffsetFetchRequestTopic("t", [3])]), 7).topics
    assert found.partitions[0].committed_offset == 55


@pytest.mark.parametrize("version", range(1, 8))
def test_an_offset_that_was_never_committed_is_none(site: Site, bench: Bench, version: int) -> None:
    asked = fetch.OffsetFetchRequest("g", [fetch.OffsetFetchRequestTopic("t", [0, 1])])
    [told] = site.ask(asked, version).topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in told.partitions] == [
        (0, -1, 0),
        (1, -1, 0),
    ]


@pytest.mark.parametrize("version", range(8, 11))
def test_offsets_of_several_groups_are_told_together(site: Site, bench: Bench, version: int) -> None:
    topic = fetch.OffsetFetchRequestTopics("t", partition_indexes=[3])
    if version >= 10:
        topic = fetch.OffsetFetchRequestTopics(topic_id=bench.topic_ids["t"], partition_indexes=[3])
    groups = [
        fetch.OffsetFetchRequestGroup("a", topics=[topic]),
        fetch.OffsetFetchRequestGroup("elsewhere", topics=[topic]),
        fetch.OffsetFetchRequestGroup("b", topics=None),
    ]
    told = site.ask(fetch.OffsetFetchRequest(groups=groups), version).groups
    assert [(each.group_id, each.error_code, len(each.topics)) for each in told] == [
        ("a", 0, 1),
        ("elsewhere", ErrorCode.NOT_COORDINATOR, 0),
        ("b", 0, 0),
    ]


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_another_coordinator_are_refused(site: Site, bench: Bench, version: int) -> None:
    asked = fetch.OffsetFetchRequest("elsewhere", [fetch.OffsetFetchRequestTopic("t", [0])])
    response = site.ask(asked, version)
    error = response.error_code if version >= 2 else response.topics[0].partitions[0].error_code
    assert error == ErrorCode.NOT_COORDINATOR


# --- administrators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(site: Site, bench: Bench, version: int) -> None:
    bench.stable(1)
    request = ListGroupsRequest()
    if version >= 4:
        request.states_filter = ["stable"]
    if version >= 5:
        request.types_filter = ["Classic"]
    [listed] = site.ask(request, version).groups
    assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
    assert listed.group_state == ("Stable" if version >= 4 else "")


def test_groups_in_other_states_and_of_other_kinds_are_not_listed(site: Site, bench: Bench) -> None:
    bench.stable(1)
    assert site.ask(ListGroupsRequest(states_filter=["Empty"]), 5).groups == []
    assert site.ask(ListGroupsRequest(types_filter=["consumer"]), 5).groups == []


def test_a_list_that_is_not_whole_says_so(site: Site, bench: Bench) -> None:
    cast(Any, site.broker.groups).is_loading = True
    assert site.ask(ListGroupsRequest(), 5).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(site: Site, bench: Bench, version: int) -> None:
    [member_id] = bench.stable(1)
    known, other, missing = site.ask(DescribeGroupsRequest(["g", "elsewhere", "nix"]), version).groups
    assert (known.group_state, known.protocol_data) == ("Stable", "range")
    assert [(each.member_id, each.member_assignment) for each in known.members] == [
        (member_id, f"of {member_id}".encode())
    ]
    assert other.error_code == ErrorCode.NOT_COORDINATOR
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", range(3, 7))
def test_what_may_be_done_with_a_group_is_told_of_those_there_are(site: Site, bench: Bench, version: int) -> None:
    bench.stable(1)
    told = site.ask(DescribeGroupsRequest(["g", "elsewhere", "nix"], include_authorized_operations=True), version)
    of_none = GROUP_OPERATIONS if version < 6 else OPERATIONS_NOT_ASKED
    assert [each.authorized_operations for each in told.groups] == [3400, OPERATIONS_NOT_ASKED, of_none]
    newer = site.ask(ConsumerGroupDescribeRequest(["elsewhere", "nix"], include_authorized_operations=True), 1)
    assert [each.authorized_operations for each in newer.groups] == [OPERATIONS_NOT_ASKED] * 2


def test_a_group_that_rebalances_is_told_with_what_its_members_have(site: Site, bench: Bench) -> None:
    [member_id] = bench.stable(1)
    bench.new_member()
    [told] = site.ask(DescribeGroupsRequest(["g"]), 5).groups
    assert told.group_state == "PreparingRebalance"
    assert [(each.member_metadata, each.member_assignment) for each in told.members][:1] == [
        (b"", f"of {member_id}".encode())
    ]


def test_what_is_described_again_and_again_is_told_once(site: Site, bench: Bench) -> None:
    bench.stable(1)
    told = site.ask(DescribeGroupsRequest(["g", "nix", "g", "g"]), 6).groups
    assert [each.group_id for each in told] == ["g", "nix"]
    assert [each.group_id for each in site.ask(ConsumerGroupDescribeRequest(["g", "g"]), 1).groups] == ["g"]


def test_all_offsets_of_a_group_are_told_once_however_often_they_are_asked_for(site: Site, bench: Bench) -> None:
    topic = fetch.OffsetFetchRequestTopics("t", partition_indexes=[3])
    everything, one = (
        fetch.OffsetFetchRequestGroup("b", topics=None),
        fetch.OffsetFetchRequestGroup("b", topics=[topic]),
    )
    told = site.ask(fetch.OffsetFetchRequest(groups=[everything, one, everything, everything]), 8).groups
    assert [(each.group_id, len(each.topics)) for each in told] == [("b", 0), ("b", 1)]


@pytest.mark.parametrize("version", [1, 7, 8, 10])
def test_an_offset_is_told_once_however_often_it_is_asked_for(site: Site, bench: Bench, version: int) -> None:
    """Four bytes of a request asked for all the metadata that there is with it: gigabytes within its 2 MiB."""
    partition = commit.OffsetCommitRequestPartition(3, 55, committed_metadata="x" * 4000)
    site.ask(commit.OffsetCommitRequest("g", topics=[commit.OffsetCommitRequestTopic("t", partitions=[partition])]), 9)
    topic_id = bench.id_of("t") or b""
    if version < 8:
        old = fetch.OffsetFetchRequestTopic("t", [3, 3, 4])
        topics = site.ask(fetch.OffsetFetchRequest("g", [old, old]), version).topics
    else:
        named = fetch.OffsetFetchRequestTopics("t", topic_id, [3, 3, 4])
        group = fetch.OffsetFetchRequestGroup("g", topics=[named, named])
        (told,) = site.ask(fetch.OffsetFetchRequest(groups=[group, group]), version).groups
        topics = told.topics
    (topic,) = topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(3, 55), (4, -1)]


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(site: Site, bench: Bench, version: int) -> None:
    ids = bench.stable(1)
    results = site.ask(DeleteGroupsRequest(["g", "elsewhere", "nix", "g"]), version).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("elsewhere", ErrorCode.NOT_COORDINATOR),
        ("nix", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    bench.leave(ids[0])
    assert site.ask(DeleteGroupsRequest(["g"]), version).results[0].error_code == ErrorCode.NONE
    assert bench.group is None


def test_a_group_of_no_name_is_described_and_deleted_as_its_offsets_are_committed(site: Site, bench: Bench) -> None:
    """Members it cannot have, but clients that assign their partitions themselves need not name a group."""
    topic = commit.OffsetCommitRequestTopic("t", partitions=[commit.OffsetCommitRequestPartition(3, 55)])
    site.ask(commit.OffsetCommitRequest("", topics=[topic]), 9)
    assert [each.group_id for each in site.ask(ListGroupsRequest(), 5).groups] == [""]
    [described] = site.ask(DescribeGroupsRequest([""]), 6).groups
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Empty")
    [deleted] = site.ask(DeleteGroupsRequest([""]), 2).results
    assert (deleted.group_id, deleted.error_code) == ("", ErrorCode.NONE)
    assert site.ask(ListGroupsRequest(), 5).groups == []


# --- what only the coordinator knows ----------------------------------------------------------------------------------


def history(site: Site, group: str, *keys: str) -> Any:
    resource = DescribeConfigsResource(32, group, list(keys) or None)
    (result,) = site.ask(DescribeConfigsRequest([resource]), 4).results
    return result


def test_the_history_of_a_group_is_told_to_who_asks_for_it_by_name(site: Site, bench: Bench) -> None:
    bench.shard.begin()
    bench.stable()
    now, rebalance = history(site, "g", REBALANCES).configs
    assert (now.name, rebalance.name) == (REBALANCES, REBALANCES)
    assert msgspec.json.decode(rebalance.value)["outcome"] == "stable"
    assert not [each for each in history(site, "g").configs if each.name.startswith("ottla.")]
    assert history(site, "elsewhere", REBALANCES).error_code == ErrorCode.NOT_COORDINATOR
    assert history(site, "elsewhere").error_code == ErrorCode.NONE, "its settings are everywhere"


def test_commits_are_told_with_an_earlier_one(site: Site, bench: Bench) -> None:
    bench.shard.begin()
    partitions = [commit.OffsetCommitRequestPartition(each, 7) for each in range(120)]
    topic = commit.OffsetCommitRequestTopic("t", partitions=partitions)
    site.ask(commit.OffsetCommitRequest("g", -1, "", topics=[topic]), 9)
    now, *told = [msgspec.json.decode(each.value) for each in history(site, "g", COMMITS).configs]
    assert now["now_ms"] > 0
    assert [len(each) for each in told] == [50, 50, 20]
    assert told[0][0] == ["t", 0, 7, bench.time_ms, 7, bench.time_ms]
