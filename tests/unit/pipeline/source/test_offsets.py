"""A query's offsets as JSON, and what two of them say about what changed."""

import json

import pytest

from ottla.pipeline.source.errors import OffsetError
from ottla.pipeline.source.offsets import Offsets, from_json, to_json
from ottla.pipeline.source.progress import begins_late, changes, check_same_query
from ottla.runtime.identifiers import id_to_text

ONE, TWO = bytes(range(16)), bytes(range(16, 32))
NEXT = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}


def test_the_json_is_that_of_sparks_connector_with_keys_in_order() -> None:
    assert json.dumps(to_json(Offsets(NEXT))) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_ids_are_keys_without_partitions_that_no_topic_can_have() -> None:
    found = to_json(Offsets(NEXT, {"a": ONE, "b": bytes(16), "gone": TWO}))

    assert found == {"a": {"0": 3}, f"a:{id_to_text(ONE)}": {}, "b": {"9": 2, "10": 1}}
    assert [(t, p) for t, offsets in found.items() for p in offsets] == [("a", "0"), ("b", "9"), ("b", "10")]


def test_offsets_come_back_from_their_json() -> None:
    assert Offsets(NEXT, {"a": ONE}) == from_json(json.loads(json.dumps(to_json(Offsets(NEXT, {"a": ONE})))))
    assert Offsets({("t", 0): 5}) == from_json({"t": {"0": 5}})


@pytest.mark.parametrize("strange", [{"logOffset": 3}, {"t": {"x": 1}}, {"t:short": {}}, {"t": {"0": None}}])
def test_the_checkpoint_of_another_kind_of_source_is_said(strange: dict[str, object]) -> None:
    with pytest.raises(OffsetError, match="give the query a checkpoint of its own"):
        from_json(strange)


def test_nothing_changed_where_records_came() -> None:
    assert changes(Offsets({("t", 0): 5}, {"t": ONE}), Offsets({("t", 0): 9}, {"t": ONE})) == ([], [])


def test_a_new_partition_is_read_from_its_beginning() -> None:
    assert changes(Offsets({("t", 0): 5}), Offsets({("t", 0): 5, ("t", 1): 3})) == ([("t", 1)], [])
    assert begins_late({("t", 1): 0}) == []
    assert begins_late({("t", 1): 4}) == ["t-1 is new and begins at 4: records before were deleted unread"]


def test_a_topic_made_anew_is_another_whatever_its_offsets() -> None:
    before = Offsets({("t", 0): 5, ("t", 1): 5}, {"t": ONE})
    assert changes(before, Offsets({("t", 0): 9}, {"t": TWO})) == ([("t", 0)], ["topic t was deleted and made anew"])
    assert changes(Offsets(before.next), Offsets({("t", 0): 9, ("t", 1): 5}, {"t": TWO})) == ([], [])  # nobody knows


def test_what_is_gone_and_what_went_back_is_lost() -> None:
    _, lost = changes(Offsets({("t", 0): 5, ("u", 1): 2}), Offsets({("t", 0): 3}))

    assert lost == ["u-1 does not exist any more", "t-0 ends at 3 now, and was read up to 5"]


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    with pytest.raises(OffsetError, match="of topic a, and this query reads b"):
        check_same_query(Offsets({("a", 0): 1}), {"b"}, "b")
    check_same_query(Offsets({("a", 0): 1, ("b", 0): 1}), {"b"}, "b")
    check_same_query(Offsets(), {"b"}, "b")
