"""Our bytes are those of kio, for every request and response, and the headers and small records that it knows."""

import dataclasses
import datetime
import io
import random
import uuid
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import classify_field

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.schema import Field, Message, message, message_names, module_name

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
APIS = [name for name in message_names() if message(name).type in ("request", "response", "header")]
DATA = [name for name in message_names() if message(name).type == "data" and name[:5] not in ("Produ", "Quoru")]


def oracle_class(name: str, version: int) -> Any:
    kind = message(name).type
    base = name.removesuffix("Request").removesuffix("Response") if kind in ("request", "response") else name
    folder = module_name(base).replace("kraft", "k_raft")
    return getattr(import_module(f"kio.schema.{folder}.v{version}.{kind}"), name)


def oracle_message(cls: Any, schema: Message, struct: str, version: int, value: Any) -> Any:
    """The same message as an object of kio, whose classes have the fields of one version in order."""
    ours = [field for field in schema.structs[struct] if version in field.versions]
    values = {}
    for field, theirs in zip(ours, dataclasses.fields(cls), strict=True):
        # Theirs drop a unit at the end: throttle_time for throttle_time_ms.
        assert field.name.replace("_", "").startswith(theirs.name.replace("_", "")), (field.name, theirs.name)
        given = getattr(value, field.name)
        if field.is_array and given is not None:
            values[theirs.name] = tuple(oracle_value(theirs, schema, field, version, element) for element in given)
        else:
            values[theirs.name] = oracle_value(theirs, schema, field, version, given)
    return cls(**values)


def oracle_value(theirs: Any, schema: Message, field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return oracle_message(classify_field(theirs).type_, schema, field.type, version, value)
    kind = theirs.metadata["kafka_type"]
    if kind == "error_code":
        return ErrorCode(value)
    if kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return EPOCH + datetime.timedelta(milliseconds=value)
    if kind == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    return value


def test_the_oracle_knows_every_request_and_response_but_no_logs() -> None:
    assert len(APIS) == 180  # of 89 APIs, and the two headers
    assert len([name for name in DATA if find_spec("kio.schema." + module_name(name).replace("kraft", "k_raft"))]) == 10


@pytest.mark.parametrize("name", APIS + DATA)
def test_random_messages_have_the_same_bytes(name: str, make_tame_message: Any) -> None:
    for version in message(name).versions:
        rng = random.Random(f"kio {name} {version}")
        cls = oracle_class(name, version)
        for _ in range(5):
            value = make_tame_message(name, version, rng)
            expected = io.BytesIO()
            entity_writer(cls)(expected, oracle_message(cls, message(name), name, version, value))

            assert expected.getvalue() == b"".join(encoder(name, version)(value)), (version, value)
