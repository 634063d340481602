"""The schema's language, and what is generated from it."""

from pathlib import Path

import pytest

import ottla.broker.wire
from ottla.broker.wire.generate import generate, module_source
from ottla.broker.wire.schema import NEVER, Versions, message, message_names, module_name, parse_message

EXAMPLE = """message ExampleRequest type request key 7 versions 1-4 flexible 3+ listeners broker,controller
  name string 1-2 nullable 2 default null ignorable
  hosts []Host 3+ tag 0 3+
  local Host 4+ nullable 4+ default null
  struct Host
    port uint16 3+ default 9092
    id uuid 3+
    alive bool 3+ default true""".splitlines()


def test_the_committed_files_are_what_the_schema_generates() -> None:
    folder = Path(ottla.broker.wire.__path__[0])
    committed = {f"messages/{file.name}" for file in (folder / "messages").glob("*.py")} | {"api_table.py"}
    generated = generate()

    assert committed == set(generated)
    for path, text in generated.items():
        assert (folder / path).read_text(encoding="utf-8") == text, "run python -m ottla.broker.wire.generate"


def test_the_schema_has_every_message_of_kafka_4_3() -> None:
    kinds = [message(name).type for name in message_names()]

    assert kinds.count("request") == kinds.count("response") == 89
    assert len(kinds) == 272


def test_a_block_says_what_a_message_is() -> None:
    schema = parse_message(EXAMPLE[0], EXAMPLE[1:])

    assert (schema.name, schema.type, schema.key) == ("ExampleRequest", "request", 7)
    assert (schema.versions, schema.flexible) == (Versions(1, 4), Versions(3, 32767))
    assert schema.listeners == ("broker", "controller")
    assert list(schema.structs) == ["ExampleRequest", "Host"]
    assert schema.unstable == NEVER


def test_a_field_line_says_where_a_field_is_and_how() -> None:
    name, hosts, local = parse_message(EXAMPLE[0], EXAMPLE[1:]).fields

    assert (name.type, name.is_array, name.ignorable, name.default_expression) == ("string", False, True, "None")
    assert [version for version in range(6) if version in name.nullable] == [2]
    assert (hosts.type, hosts.is_array, hosts.tag, hosts.default_expression) == ("Host", True, 0, "[]")
    assert 2 not in hosts.tagged
    assert 3 in hosts.tagged
    assert local.is_struct


def test_fields_have_the_defaults_of_their_types() -> None:
    schema = parse_message(EXAMPLE[0], EXAMPLE[1:])

    assert [field.default_expression for field in schema.structs["Host"]] == ["9092", "ZERO_ID", "True"]


def test_a_class_is_written_after_the_classes_it_names() -> None:
    source = module_source(parse_message(EXAMPLE[0], EXAMPLE[1:]))

    assert source.index("class Host(") < source.index("class ExampleRequest(")
    assert "local: Host | None = None  # v4+, nullable in v4+" in source
    assert "name: str | None = None  # string, v1-2, nullable in v2, ignorable" in source


def test_a_misspelt_attribute_is_refused() -> None:
    with pytest.raises(ValueError, match="'ignoreable' is not a field's attribute"):
        parse_message(EXAMPLE[0], ["  name string 1+ ignoreable"])


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("OffsetForLeaderEpochRequest", "offset_for_leader_epoch_request"),
        ("KRaftVersionRecord", "kraft_version_record"),
        ("DescribeUserScramCredentialsResponse", "describe_user_scram_credentials_response"),
    ],
)
def test_a_message_has_a_module_named_after_it(name: str, module: str) -> None:
    assert module_name(name) == module
    assert name in message_names()


def test_versions_read_as_they_are_written() -> None:
    assert [str(Versions(3, 32767)), str(Versions(3, 3)), str(Versions(3, 7))] == ["3+", "3", "3-7"]
    assert list(Versions(3, 5)) == [3, 4, 5]
