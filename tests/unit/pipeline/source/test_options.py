"""What the options of a query become, and which cannot be."""

from pathlib import Path

import pytest

from ottla.pipeline.source.bounds import Kind
from ottla.pipeline.source.errors import OptionError
from ottla.pipeline.source.options import NAMES, REFUSED, SourceOptions, parse_options
from ottla.pipeline.wire.errors import SettingError

LEAST = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def parsed(**texts: str) -> SourceOptions:
    """Of a batch read."""
    return parse_options(LEAST | {name.replace("__", "."): text for name, text in texts.items()}, streaming=False)


def of_stream(**texts: str) -> SourceOptions:
    return parse_options(LEAST | texts, streaming=True)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = parsed(), of_stream()

    assert batch.ending is not None
    assert (batch.starting.kind, batch.ending.kind) == (Kind.EARLIEST, Kind.LATEST)
    assert (stream.starting.kind, stream.ending) == (Kind.LATEST, None)
    assert batch.fails_on_loss
    assert not batch.includes_headers


def test_names_are_read_in_any_case_as_spark_gives_them_in_small_letters() -> None:
    assert of_stream(maxoffsetspertrigger="5").trigger_offsets_max == 5
    assert of_stream(MAXOFFSETSPERTRIGGER="5").trigger_offsets_max == 5


def test_sizes_and_times_have_units() -> None:
    found = of_stream(maxBytesPerTrigger="64m", maxTriggerDelay="30s", bytesPerTask="1000")

    assert (found.trigger_bytes_max, found.trigger_delay_ms, found.task_bytes) == (64 << 20, 30_000, 1000)


def test_topics_are_named_matched_or_assigned() -> None:
    assert parse_options(LEAST | {"subscribe": " b, a,b"}, streaming=False).topics.names == ("b", "a")
    pattern = parse_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "fleet_.*"}, streaming=False).topics
    assert (pattern.pattern, pattern.asked) == ("fleet_.*", None)
    assign = parse_options({"kafka.bootstrap.servers": "a:1", "assign": '{"t":[2,0,2]}'}, streaming=False).topics
    assert (assign.assigned, assign.asked) == ({"t": (0, 2)}, ("t",))


def test_a_time_goes_before_times_by_partition_and_these_before_offsets() -> None:
    every = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingTimestamp": "9"}

    assert (parsed(**every).starting.kind, parsed(**every).starting.ms) == (Kind.TIME, 9)
    del every["startingTimestamp"]
    assert parsed(**every).starting.values == {("t", 0): 7}


def test_what_spark_has_and_means_nothing_here_is_taken() -> None:
    parsed(groupIdPrefix="x", kafkaConsumer__pollTimeoutMs="5", fetchOffset__numRetries="3", kafka__group__id="g")


def test_what_a_batch_passes_over_and_what_nobody_knows_is_told() -> None:
    assert parsed(maxOffsetsPerTrigger="5", kafka__lingr__ms="3").told == (
        "kafka.lingr.ms is not known to this client and has no effect",
        "maxOffsetsPerTrigger means nothing in a batch read",
    )


def test_a_schema_is_read_from_a_file_on_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_bytes(b"a int")
    found = parsed(value__format="json", value__schema__file=str(file)).format

    assert found is not None
    assert found.schema == b"a int"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"subscribePattern": "a.*"}, "exactly one of the options assign, subscribe and subscribePattern is needed; not subscribe and"),
        ({"subscribe": " , "}, "subscribe must name a topic"),
        ({"startingOffset": "earliest"}, "there is no option startingoffset; is startingOffsets meant?"),
        ({"kafka__auto__offset__reset": "latest"}, "kafka.auto.offset.reset is not supported: use startingOffsets"),
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves a batch read nothing"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "leaves a batch read nothing"),
        ({"startingOffsets": "first"}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "must be JSON"),
        ({"startingOffsets": '{"t":[0]}'}, "must be JSON"),
        ({"startingOffsets": '{"t":{"²":0}}'}, "must be JSON"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest leaves nothing to read"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "leaves nothing to read"),
        ({"startingTimestamp": "yesterday"}, "must be a time in milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "must be error or latest"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss=perhaps must be true or false"),
        ({"minPartitions": "0"}, "minPartitions=0 must be a whole number of at least 1"),
        ({"maxTasks": "2", "minPartitions": "3"}, "minPartitions=3 is more than maxTasks=2"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=3"),
        ({"maxBytesPerTrigger": "64 apples"}, "must be a number of bytes"),
        ({"maxTriggerDelay": "soon"}, "must be a time"),
        ({"value__format": "xml"}, "value.format=xml must be one of json, avro, protobuf"),
        ({"value__format": "json"}, "needs value.schema, or value.schema.file"),
        ({"value__schema": "a int"}, "value.schema needs value.format"),
        ({"value__raw": "corrupt"}, "value.raw needs value.format"),
        ({"value__format": "json", "value__schema": "a int", "value__raw": "all"}, "value.raw=all must be corrupt"),
        ({"value__format": "protobuf", "value__schema": "x"}, "needs value.message"),
        ({"value__format": "json", "value__schema__file": "/nowhere"}, "cannot be read on the driver: No such file"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(texts: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parsed(**texts)

    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_assigned_partitions_are_json_and_patterns_are_patterns() -> None:
    for name, text in (("assign", '{"t":["0"]}'), ("assign", "t"), ("subscribePattern", "("), ("subscribePattern", "")):
        with pytest.raises(OptionError, match=name):
            parse_options({"kafka.bootstrap.servers": "a:1", name: text}, streaming=False)


def test_no_servers_and_no_topics_are_said() -> None:
    with pytest.raises(SettingError, match=r"kafka\.bootstrap\.servers is missing"):
        parse_options({"subscribe": "t"}, streaming=False)
    with pytest.raises(OptionError, match="none is given"):
        parse_options({"kafka.bootstrap.servers": "a:1"}, streaming=False)


def test_every_option_is_in_the_docs() -> None:
    text = Path("docs/pipeline.md").read_text()
    missing = [name for name in (*NAMES, *(f"kafka.{name}" for name in REFUSED)) if f"`{name}`" not in text]

    assert missing == []
