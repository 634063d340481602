"""Compaction held against a model: after any history the last value of each key is there, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.records import Record
from ottla.log.tools.verify import verify
from ottla.testing.log.compacted import DISK, NOW, RETENTION, compacted_log

KEYS = ["a", "b", "c", "a much longer key, of more than thirty-two bytes", ""]
PAIRS = st.lists(st.tuples(st.sampled_from([*KEYS, None]), st.sampled_from(["1", "2", None])), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PAIRS, st.integers(0, 4)),
        st.tuples(st.just("transaction"), PAIRS, st.booleans()),
        st.tuples(st.just("roll"), st.just([]), st.just(0)),
        st.tuples(st.just("clean"), st.just([]), st.integers(1, 12)),
    ),
    min_size=2,
    max_size=25,
)
Step = tuple[str, list[tuple[str | None, str | None]], int]


class Model:
    """The log as a list. A record is right where it must be kept, wrong where it must be gone, and may do either in between."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def check(self, found: list[Record], cleaned_to: int, horizon_passed: bool) -> None:
        last = {record.key: record.offset for record in self.records if record.offset < cleaned_to}
        must, may = [], set()
        for record in self.records:
            if record.offset < cleaned_to and (record.key is None or last[record.key] != record.offset):
                continue
            may.add(record.offset)
            if record.value is not None or record.offset >= cleaned_to or not horizon_passed:
                must.append(record)
        assert [record for record in found if record.offset in {record.offset for record in must}] == must
        assert {record.offset for record in found} <= may


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans())
def test_after_any_history_the_last_value_of_each_key_is_there_and_nothing_else(steps: list[Step], slow: bool) -> None:
    with compacted_log() as log:
        model = Model()
        sequence, now_ms = 0, NOW
        for step, pairs, extra in steps:
            if step == "append":
                base = log.append(*pairs, codec=extra)
                model.records += [record for record in log.records() if record.offset >= base]
            elif step == "transaction":
                base = log.append(*pairs, pid=5, sequence=sequence, transactional=True)
                sequence += len(pairs)
                if extra:
                    model.records += [record for record in log.records() if record.offset >= base]
                log.mark(5, committed=bool(extra))
            elif step == "roll":
                log.roll()
            else:
                now_ms += 1 if slow else RETENTION
                result = log.clean(now_ms=now_ms, buffer_bytes=extra * 160, segment_bytes=extra * 100)
                found = [record for record in log.records() if record.offset < result.end_offset]
                kept = [record for record in model.records if record.offset < result.end_offset]
                assert {record.offset for record in found} <= {record.offset for record in kept}
                model.check(
                    [r for r in log.records() if r in set(model.records)], result.end_offset, horizon_passed=not slow
                )
                assert [finding for finding in verify(DISK, log.directory) if finding.fault] == []
