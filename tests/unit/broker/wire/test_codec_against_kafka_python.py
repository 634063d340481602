"""Our bytes are those of kafka-python, for the messages that it knows."""

import random
import uuid
import warnings
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from ottla.broker.wire.codec import encoder
from ottla.broker.wire.schema import Field, Message, message, message_names

with warnings.catch_warnings():
    # It reads its schemas through a function of importlib.resources that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.data_container import DataContainer
    from kafka.protocol.schemas.fields.codecs import BitField

PACKAGES = ("admin", "consumer", "metadata", "producer")


def oracle_classes() -> dict[str, Any]:
    modules = [import_module("kafka.protocol.sasl")]
    for package in PACKAGES:
        path = f"kafka.protocol.{package}"
        modules += [import_module(f"{path}.{info.name}") for info in iter_modules(import_module(path).__path__)]
    found: dict[str, Any] = {}
    for module in modules:
        classes = {name: cls for name, cls in vars(module).items() if isinstance(cls, type)}
        found |= {name: cls for name, cls in classes.items() if issubclass(cls, DataContainer)}
    return found


CLASSES = {name: cls for name, cls in oracle_classes().items() if name in message_names()}


def plain(name: str) -> str:
    # Their one renaming: the two "...authorized_operations" of cluster and topic lose their prefix.
    short = name.removeprefix("topic_").removeprefix("cluster_")
    return (short if short == "authorized_operations" else name).replace("_", "").lower()


def oracle_message(cls: Any, schema: Message, struct: str, version: int, value: Any) -> Any:
    """The same message as an object of kafka-python."""
    theirs = {plain(name): field for name, field in cls._struct.fields.items()}
    values = {}
    for field in schema.structs[struct]:
        given = getattr(value, field.name)
        if version not in field.versions:
            continue
        if version in field.tagged and given == getattr(type(value)(), field.name):
            continue  # they write every tagged field that was set, default or not
        match = theirs[plain(field.name)]
        values[match.name] = oracle_value(match, schema, field, version, given)
    return cls(version=version, **values)


def oracle_value(theirs: Any, schema: Message, field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [oracle_element(theirs, schema, field, version, element) for element in value]
    return oracle_element(theirs, schema, field, version, value)


def oracle_element(theirs: Any, schema: Message, field: Field, version: int, value: Any) -> Any:
    if field.is_struct:
        return oracle_message(theirs.data_class, schema, field.type, version, value)
    if field.type == "uuid":
        return uuid.UUID(bytes=value)
    if getattr(theirs, "_type", None) is BitField:  # they keep the numbers of the bits that are set
        return {bit for bit in range(32) if value & 1 << bit}
    return value


def test_the_oracle_knows_the_messages_of_52_apis() -> None:
    assert len({message(name).key for name, cls in CLASSES.items() if issubclass(cls, ApiMessage)}) == 52


@pytest.mark.parametrize("name", CLASSES)
def test_random_messages_have_the_same_bytes(name: str, make_tame_message: Any) -> None:
    for version in message(name).versions:
        rng = random.Random(f"kafka-python {name} {version}")
        for _ in range(5):
            value = make_tame_message(name, version, rng)
            theirs = oracle_message(CLASSES[name], message(name), name, version, value)
            expected = theirs.encode(version=version)
            if not isinstance(theirs, ApiMessage):
                expected = expected[2:]  # the version, which they put before a consumer protocol's body

            assert expected == b"".join(encoder(name, version)(value)), (version, value)
