"""`ottla groups`: what people read of a group, and what its words do. With brokers: tests/integration/test_groups.py."""

import json
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ottla.broker.coordinator.decisions.groups.classic_group import GroupState
from ottla.broker.coordinator.decisions.groups.consumer.group import ConsumerGroupState
from ottla.broker.wire.codec import encoder
from ottla.broker.wire.messages import consumer_group_describe_response as newer
from ottla.broker.wire.messages import consumer_protocol_assignment as assignment
from ottla.broker.wire.messages.describe_groups_response import DescribedGroupMember
from ottla.broker.wire.messages.list_groups_response import ListedGroup
from ottla.cli import coordinators, group_lag, group_requests, group_resets, leader_requests
from ottla.cli.durations import milliseconds, words
from ottla.cli.failures import CommandError
from ottla.cli.group_history import rate_of
from ottla.cli.group_lag import catching_up, named, short
from ottla.cli.group_resets import Target
from ottla.cli.groups import groups
from ottla.cli.leader_requests import Place
from ottla.runtime.errors import ErrorCode
from tests.unit.cli.fake_groups import NOW_MS, FakeCluster, PassingTime


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Topic t with records 10 to 89 in partition 0, and 50 records in partition 1."""
    made = FakeCluster()
    made.ends = {Place("t", 0): (10, 90), Place("t", 1): (0, 50)}
    for module in (coordinators, leader_requests, group_requests):
        monkeypatch.setattr(module, "Client", made.client)
    for module in (coordinators, leader_requests, group_requests, group_lag, group_resets):
        monkeypatch.setattr(module, "time", PassingTime())
    return made


def invoke(*given: str) -> Result:
    return CliRunner().invoke(groups, given)


def rows(*given: str) -> list[dict[str, Any]]:
    done = invoke(*given, "-o", "json")
    assert done.exception is None, done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def refusal(*given: str) -> str:
    failure = invoke(*given).exception
    assert isinstance(failure, CommandError), failure
    return str(failure)


def assigned(*partitions: int) -> bytes:
    told = assignment.ConsumerProtocolAssignment([assignment.TopicPartition("t", list(partitions))])
    return b"\0\0" + b"".join(encoder(assignment.ConsumerProtocolAssignment, 0)(told))


# --- lag --------------------------------------------------------------------------------------------------------------


def test_lag_is_told_in_records_and_in_seconds(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 78, Place("t", 1): 50}
    first, second = rows("describe", "g")
    assert (first["committed"], first["end"], first["lag"], first["lag seconds"]) == (78, 90, 12, 11.0)
    assert (second["lag"], second["lag seconds"], second["caught up"]) == (0, 0.0, "now")
    assert invoke("describe", "g").stdout.startswith("g: Empty. 12 records unread, the oldest 11 s old.\n")


def test_ages_of_partitions_whose_batches_do_not_fit_are_asked_for_again(cluster: FakeCluster) -> None:
    cluster.ends |= {Place("t", index): (0, 20) for index in range(2, 6)}
    cluster.committed = {Place("t", index): 15 for index in range(2, 6)}
    assert [row["lag seconds"] for row in rows("describe", "g")] == [4.0] * 4
    assert cluster.names("FetchRequest") == 4


def test_a_rate_says_when_the_group_will_have_caught_up(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 70}
    cluster.history["ottla.group.commits"] = [{"now_ms": NOW_MS}, [["t", 0, 70, NOW_MS, 10, NOW_MS - 30_000]]]
    (row,) = rows("describe", "g")
    assert (row["read per second"], row["written per second"]) == (2.0, 61 / 60)
    assert row["caught up in seconds"] == pytest.approx(20 / (2 - 61 / 60))
    assert "20 records unread, the oldest 19 s old; caught up in 20 s." in invoke("describe", "g").stdout


def test_offsets_that_are_out_of_range_say_so(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 3, Place("t", 1): 60}
    deleted, beyond = rows("describe", "g")
    assert (deleted["lag"], deleted["note"]) == (80, "7 records were deleted unread")
    assert (beyond["lag"], beyond["note"]) == (0, "committed 10 records beyond the end")


def test_a_deleted_topic_and_a_partition_without_a_leader_are_shown(cluster: FakeCluster) -> None:
    cluster.committed = {Place("gone", 0): 5, Place("t", 0): 90, Place("t", 1): 7}
    cluster.leaderless = {Place("t", 1)}
    notes = [(row["topic"], row["committed"], row["lag"], row["note"]) for row in rows("describe", "g")]
    assert notes == [("gone", 5, None, "the topic is gone"), ("t", 90, 0, None), ("t", 7, None, "no leader")]


def summary(told: Result) -> str:
    return told.stdout.splitlines()[0].removeprefix("g: Empty. ")


def test_who_cannot_be_asked_is_not_taken_for_read(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 90, Place("t", 1): 7}
    cluster.leaderless = {Place("t", 1)}
    unknown = "What it has not read of 1 partition is not known."
    assert summary(invoke("describe", "g")) == f"{unknown} It has read everything else."
    cluster.committed[Place("t", 0)] = 89
    assert summary(invoke("describe", "g")) == f"{unknown} 1 record unread."
    cluster.leaderless = {Place("t", 0), Place("t", 1)}
    assert summary(invoke("describe", "g")) == "What it has not read of 2 partitions is not known."
    cluster.committed = {Place("gone", 0): 5}
    assert summary(invoke("describe", "g")) == "It has read everything."


@pytest.mark.parametrize(("held", "told"), [((0, 50), "1 partition is not known"), ((50, 50), "read everything.")])
def test_what_was_never_committed_is_not_taken_for_read(cluster: FakeCluster, held: tuple[int, int], told: str) -> None:
    cluster.state, cluster.ends[Place("t", 1)] = "Stable", held
    cluster.members = [DescribedGroupMember("m", None, "app", "/h", b"", assigned(0, 1))]
    cluster.committed = {Place("t", 0): 90}
    assert told in invoke("describe", "g").stdout.splitlines()[0]


def test_who_reads_what_is_told_and_who_reads_nothing(cluster: FakeCluster) -> None:
    cluster.state = "Stable"
    cluster.members = [
        DescribedGroupMember("busy", None, "app", "/10.0.0.1", b"", assigned(0)),
        DescribedGroupMember("idle", "one", "app", "/10.0.0.2"),
    ]
    busy, idle = rows("describe", "g")
    assert (busy["partition"], busy["committed"], busy["lag"], busy["member"], busy["host"]) == (
        0,
        None,
        None,
        "busy",
        "10.0.0.1",
    )
    assert (idle["member"], idle["instance"], idle.get("topic")) == ("idle", "one", None)
    assert invoke("describe", "g").stdout.startswith("g: Stable, 2 members (range). It has committed nothing.\n")


def test_a_group_of_the_newer_protocol_is_described_as_well(cluster: FakeCluster) -> None:
    cluster.state = "Stable"
    topic = newer.TopicPartitions(topic_name="t", partitions=[1])
    member = newer.Member("m", client_id="app", client_host="/h", assignment=newer.Assignment([topic]))
    cluster.newer = [member]
    (row,) = rows("describe", "g")
    assert (row["topic"], row["partition"], row["member"], row["client"], row["host"]) == ("t", 1, "m", "app", "h")


@pytest.mark.parametrize("name", ["nosuch", "ü b", ""])
def test_a_group_that_nobody_knows_is_an_error(cluster: FakeCluster, name: str) -> None:
    cluster.state = "Dead"
    for command in ("describe", "explain", "delete"):
        assert f"there is no group {name!r}" in refusal(command, name)


@pytest.mark.parametrize(
    ("lag", "read", "written", "told"),
    [
        (0, None, 5.0, (0.0, "now")),
        (10, 2.0, 1.0, (10.0, "in 10 s")),
        (10, 1.0, 1.0, (None, "never")),
        (10, 0.0, 0.0, (None, "stopped")),
        (10, None, 1.0, (None, None)),
        (None, 1.0, 1.0, (None, None)),
    ],
)
def test_when_it_will_have_caught_up_needs_both_rates(lag: Any, read: Any, written: Any, told: Any) -> None:
    assert catching_up(lag, read, written) == told


def test_a_group_that_stopped_committing_gets_slower() -> None:
    assert rate_of(600, 0, 30_000, 35_000) == 20
    assert rate_of(600, 0, 30_000, 70_000) == 10
    assert rate_of(600, 0, 500, 600) is None, "too short to tell"
    assert rate_of(-5, 0, 30_000, 30_000) is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1\xff", b"\0\0\0\0\0\7only"])
def test_an_assignment_of_another_kind_is_shown_as_none(cluster: FakeCluster, data: bytes) -> None:
    cluster.state = "Stable"
    cluster.members = [DescribedGroupMember("m", member_assignment=data)]
    (row,) = rows("describe", "g")
    assert (row["member"], row.get("partition")) == ("m", None)


def test_member_ids_are_cut_where_they_are_random() -> None:
    assert short("my-app-0a1b2c3d-0000-4000-8000-0123456789ab") == "my-app-0a1b2c3d"
    assert short("m") == "m"
    assert named("app-1", "app") == "app-1"
    assert named("GTLaKXZ7R0mry1Yz0b6Ang", "app") == "app GTLaKXZ7R0mry1Yz0b6Ang"


# --- a coordinator that goes ------------------------------------------------------------------------------------------


def test_a_coordinator_that_moves_is_asked_again(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 90}
    cluster.errors = {
        "describe_groups": [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
        "list_offsets": [ErrorCode.NOT_LEADER_OR_FOLLOWER],
    }
    assert [row["lag"] for row in rows("describe", "g")] == [0]


def test_a_coordinator_that_just_died_is_looked_for_again(cluster: FakeCluster) -> None:
    cluster.committed, cluster.is_down = {Place("t", 0): 90}, {"coordinator:1": 3, "b:1": 2}
    assert [row["lag"] for row in rows("describe", "g")] == [0]
    cluster.is_down = {"b:1": 2}
    assert rows("list") == []


def test_where_nobody_answers_that_the_person_named_nobody_is_looked_for(cluster: FakeCluster) -> None:
    cluster.is_down = {"named:9092": 1}
    assert "no broker answers" in refusal("describe", "g", "-b", "named")
    assert cluster.is_down == {"named:9092": 0}


def test_one_that_never_comes_back_is_given_up(cluster: FakeCluster) -> None:
    cluster.errors = {"describe_groups": [ErrorCode.NOT_COORDINATOR] * 1_000_000}
    assert "NOT_COORDINATOR" in refusal("describe", "g")


def test_what_a_lost_answer_did_is_not_done_twice(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 20}
    cluster.errors = {"delete_groups": [0], "offset_commit": [0]}
    assert rows("reset-offsets", "g", "--to-latest")[0]["new"] == 90
    assert invoke("delete", "g").exit_code == 0
    assert cluster.names("DeleteGroupsRequest") == 1


def test_other_errors_are_told_at_once(cluster: FakeCluster) -> None:
    cluster.errors = {"describe_groups": [ErrorCode.GROUP_AUTHORIZATION_FAILED]}
    assert refusal("describe", "g") == "g: GROUP_AUTHORIZATION_FAILED"
    assert cluster.names("DescribeGroupsRequest") == 1


def test_a_broker_that_loads_groups_is_asked_again_for_its_list(cluster: FakeCluster) -> None:
    cluster.errors = {"list_groups": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]}
    cluster.groups = [ListedGroup("b", "consumer", "Stable", "classic"), ListedGroup("a", "", "Empty", "classic")]
    assert [row["group"] for row in rows("list")] == ["a", "b"]
    assert [row["group"] for row in rows("list", "--state", "empty")] == ["a"]


def test_a_state_that_no_group_has_is_refused_with_those_that_there_are(cluster: FakeCluster) -> None:
    refused = invoke("list", "--state", "Typo")
    assert refused.exit_code == 2
    assert all(f"'{state.value}'" in refused.stderr for state in (*GroupState, *ConsumerGroupState)), refused.stderr


def test_ten_thousand_groups_are_listed_without_a_search_for_each(cluster: FakeCluster) -> None:
    cluster.groups = [ListedGroup(f"group {each}", "consumer", "Stable", "classic") for each in range(10_000)]
    begun = time.process_time()
    done = invoke("list")
    assert time.process_time() - begun < 10  # some 0.3; minutes with a search for each
    assert len(done.stdout.splitlines()) == 10_001


# --- explain ----------------------------------------------------------------------------------------------------------


def test_rebalances_are_told_as_sentences_and_as_a_table(cluster: FakeCluster) -> None:
    cluster.state = "PreparingRebalance"
    cluster.members = [DescribedGroupMember("a-0a1b2c3d-0000-4000-8000-0123456789ab", None, "a", "/h")]
    cause = ["session timeout", "b-1a1b2c3d-0000-4000-8000-0123456789ab", "b", "/10.0.0.2", "not heard from for 9 ms"]
    cluster.history["ottla.group.rebalances"] = [
        {"now_ms": NOW_MS, "waits_for": ["a"], "waits_for_count": 3},
        {
            "number": 7,
            "begun_ms": NOW_MS - 90_000,
            "cause": cause,
            "also": [["join", "c", "c", "/h", ""]] * 2,
            "also_count": 2,
            "joining_ms": 3_200,
            "last_joined": "a",
            "last_joined_ms": 3_100,
            "assigning_ms": 15,
            "outcome": "stable",
            "generation": 4,
            "members": 1,
            "moved": [["t", each, cause[1], "a"] for each in range(8)] + [["t", 9, "", ""]],
            "moved_count": 12,
            "kept_count": 1,
        },
        {"number": 8, "begun_ms": NOW_MS - 500, "cause": ["join", "d", "d", "", ""]},
    ]
    told = invoke("explain", "g").stdout.splitlines()
    assert told[:4] == [
        "g is PreparingRebalance, with 1 member.",
        "It waits for a and 2 more.",
        "90 s ago b-1a1b2c3d (at 10.0.0.2) fell silent: not heard from for 9 ms, then 2 others joined. Joining took 3.2 s; the last was"
        " a, after 3.1 s. Assigning took 15 ms. 12 partitions moved, 1 stayed: t-0, 1, 2, 3, 4, 5 and 2 more"
        " from b-1a1b2c3d to a, t-9 to nobody, ….",
        "0.5 s ago d joined. It is under way.",
    ]
    assert told[5].split()[:4] == ["rebalance", "begun", "why", "who"]
    assert told[6].split()[0] == "8"
    first, second = rows("explain", "g")
    assert (first["cause"]["member_id"], first["moved"][0]["to"]) == (cause[1], "a")
    assert (second["number"], second["also"]) == (8, [])


def test_a_client_cannot_write_on_the_terminal_of_who_looks_at_its_group(cluster: FakeCluster) -> None:
    name = "g\x1b[2J\nother"
    cluster.state, cluster.history["ottla.group.rebalances"] = "Empty", [{"now_ms": NOW_MS}]
    for command in ("describe", "explain"):
        (line,) = invoke(command, name).stdout.splitlines()[:1]
        assert line.startswith("g\\x1b[2J\\nother")


def test_a_broker_that_keeps_no_rebalances_is_told_apart(cluster: FakeCluster) -> None:
    assert "keeps no rebalances" in refusal("explain", "g")
    cluster.history["ottla.group.rebalances"] = [{"now_ms": NOW_MS, "waits_for": [], "waits_for_count": 0}]
    assert "knows of no rebalance" in invoke("explain", "g").stdout


# --- resets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (Target(to_earliest=True), 10),
        (Target(to_latest=True), 90),
        (Target(to_current=True), 40),
        (Target(to_offset=50), 50),
        (Target(to_offset=5), 10),
        (Target(to_offset=91), 90),
        (Target(shift_by=-7), 33),
        (Target(shift_by=-70), 10),
        (Target(shift_by=70), 90),
        (Target(time_ms=1), 60),
        (Target(by_place={Place("t", 0): 95}), 90),
    ],
)
def test_a_reset_goes_where_it_is_told_within_what_there_is(target: Target, offset: int) -> None:
    assert target.offset(Place("t", 0), 40, 10, 90, 60) == offset


def test_a_shift_of_what_was_never_committed_begins_at_the_first_record() -> None:
    assert Target(shift_by=3).offset(Place("t", 0), None, 10, 90) == 13
    assert Target(to_current=True).offset(Place("t", 0), None, 10, 90) == 90


@pytest.mark.parametrize("given", [[], ["--to-earliest", "--to-latest"], ["--shift-by", "1", "--to-offset", "2"]])
def test_a_reset_is_told_one_way_to_go(given: list[str]) -> None:
    told = invoke("reset-offsets", "g", *given)
    assert told.exit_code == 2
    assert "write one of" in told.output


@pytest.mark.parametrize(
    ("given", "offset"),
    [
        (["--to-datetime", "2027-01-15T07:59:50"], 79),
        (["--to-datetime", "2027-01-15T08:59:50.000+01:00"], 79),
        (["--to-datetime", "2030-01-01"], 90),
        (["--by-duration", "PT20S"], 69),
        (["--by-duration", "1m"], 29),
        (["--by-duration", "P1D"], 10),
        (["--by-duration", "100000d"], 10),
        (["--to-datetime", "1969-12-31T23:59:59.999"], 10),  # -1 would be the end
        (["--to-datetime", "1960-01-01"], 10),
    ],
)
def test_a_reset_to_a_time_goes_to_the_first_record_from_then_on(
    cluster: FakeCluster, given: list[str], offset: int
) -> None:
    assert [row["new"] for row in rows("reset-offsets", "g", "--topic", "t:0", *given)] == [offset]
    assert cluster.committed == {Place("t", 0): offset}


@pytest.mark.parametrize(
    "given", [["--to-datetime", "soon"], ["--by-duration", "P"], ["--topic", "t:x", "--to-latest"]]
)
def test_words_that_are_off_are_usage_errors(cluster: FakeCluster, given: list[str]) -> None:
    assert invoke("reset-offsets", "g", *given).exit_code == 2


def test_a_dry_run_changes_nothing_and_an_export_is_taken_in_again(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.committed = {Place("t", 0): 40, Place("t", 1): 7}
    exported = invoke("reset-offsets", "g", "--to-current", "--export", "--dry-run").stdout
    assert exported == "t,0,40\nt,1,7\n"
    file = tmp_path / "offsets.csv"
    file.write_text('"t",0, 41\nt,1,8\n', encoding="utf-8")
    rows("reset-offsets", "g", "--from-file", str(file), "--dry-run")
    assert cluster.committed == {Place("t", 0): 40, Place("t", 1): 7}
    rows("reset-offsets", "g", "--from-file", str(file), "--topic", "t:1")
    assert cluster.committed == {Place("t", 0): 40, Place("t", 1): 8}
    rows("reset-offsets", "g", "--from-file", str(file))
    assert cluster.committed == {Place("t", 0): 41, Place("t", 1): 8}


@pytest.mark.parametrize("committed", [{Place("t", 0): 40}, {Place("t", 0): 40, Place("t", 1): 7}])
def test_a_file_without_the_partitions_that_are_named_resets_no_others(
    cluster: FakeCluster, tmp_path: Path, committed: dict[Place, int]
) -> None:
    cluster.committed = dict(committed)
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,41\n", encoding="utf-8")
    assert "no offset of t:1" in refusal("reset-offsets", "g", "--from-file", str(file), "--topic", "t:1")
    assert cluster.committed == committed


@pytest.mark.parametrize("data", [b"", b"t,0\n", b"t,zero,1\n", b"t,0,\xff\n", b"t" * 200_000 + b",0,1\n"])
def test_a_file_that_is_none_is_a_usage_error(cluster: FakeCluster, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(data)
    assert invoke("reset-offsets", "g", "--from-file", str(file)).exit_code == 2


def test_partitions_are_chosen_by_topic_and_number(cluster: FakeCluster) -> None:
    rows("reset-offsets", "g", "--topic", "t", "--to-latest")
    assert cluster.committed == {Place("t", 0): 90, Place("t", 1): 50}
    assert "there is no topic 'gone'" in refusal("reset-offsets", "g", "--topic", "gone", "--to-latest")
    assert "gone-3: the topic is gone" in refusal("reset-offsets", "g", "--topic", "gone:3", "--to-latest")


def test_offsets_of_a_topic_that_is_gone_do_not_keep_others_from_being_reset(cluster: FakeCluster) -> None:
    cluster.committed = {Place("gone", 0): 4, Place("t", 0): 40}
    assert [row["topic"] for row in rows("reset-offsets", "g", "--to-latest")] == ["t"]


def test_a_group_with_members_keeps_its_offsets(cluster: FakeCluster) -> None:
    cluster.state, cluster.committed = "Stable", {Place("t", 0): 40}
    for command in (["reset-offsets", "g", "--to-latest"], ["delete", "g"], ["delete", "g", "--dry-run"]):
        assert "stop them first" in refusal(*command)
    assert cluster.committed == {Place("t", 0): 40}


def test_a_group_that_is_not_there_yet_can_be_told_where_to_begin(cluster: FakeCluster) -> None:
    cluster.state = "Dead"
    assert "there is no group" in refusal("reset-offsets", "g", "--to-latest")
    assert [row["new"] for row in rows("reset-offsets", "g", "--topic", "t:1", "--to-latest")] == [50]


# --- what ends --------------------------------------------------------------------------------------------------------


def test_what_would_be_deleted_is_told_by_a_dry_run(cluster: FakeCluster) -> None:
    cluster.committed = {Place("t", 0): 40}
    assert invoke("delete", "g", "--dry-run").stdout == "would delete g and its 1 offset\n"
    told = rows("delete-offsets", "g", "--topic", "t", "--dry-run")
    assert [(row["partition"], row["committed"]) for row in told] == [(0, 40), (1, None)]
    assert cluster.names("DeleteGroupsRequest") + cluster.names("OffsetDeleteRequest") == 0
    rows("delete-offsets", "g", "--topic", "t")
    assert cluster.names("OffsetDeleteRequest") == 1


def test_offsets_of_what_is_read_stay(cluster: FakeCluster) -> None:
    cluster.errors = {"offset_delete": [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]}
    assert refusal("delete-offsets", "g", "--topic", "t") == "g reads t: stop its members first"


# --- spans of time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("PT1H30M", 5_400_000), ("P1DT0.5S", 86_400_500), ("P2W", 1_209_600_000), ("90m", 5_400_000), ("2 h", 7_200_000)],
)
def test_a_span_is_read_as_kafkas_tools_or_as_people_write_it(text: str, value: int) -> None:
    assert milliseconds(text, "--x") == value


@pytest.mark.parametrize("text", ["99999999999999999999d", f"{'9' * 400}s", f"PT{'9' * 400}S", "PT9999999999999999H"])
def test_a_span_that_no_request_can_hold_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError, match="is too long"):
        milliseconds(text, "--x")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.04, "0.0 s"),
        (9.9, "9.9 s"),
        (42, "42 s"),
        (119, "119 s"),
        (720, "12 min"),
        (9_000, "2.5 h"),
        (400_000, "4.6 d"),
    ],
)
def test_a_span_is_told_in_the_unit_that_says_most(seconds: float, text: str) -> None:
    assert words(seconds) == text
