"""Kafka's messages on a machine that has only Python: the broker's compiled codec, with classes made from the schema.

A request is written as nested dicts with the schema's names; what is left out has its default. What is read has those
names as attributes; ``records`` are slices of the frame.
"""

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import Any

from ottla.broker.wire.apis import BY_NAME
from ottla.broker.wire.compiling import compile_codec
from ottla.broker.wire.headers import encode_request_header, read_response_header
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.schema import Field, Message, message
from ottla.runtime.identifiers import ZERO_ID

Body = Mapping[str, Any]

_SIZE = Struct(">i")


def encode(api: str, version: int, body: Body, correlation_id: int, client_id: str) -> list[Buffer]:
    """A request's frame, its length included. Raises WireError, KeyError for a field that there is not."""
    header = encode_request_header(BY_NAME[api].key, version, correlation_id, client_id)
    buffers: list[Buffer] = _codec(f"{api}Request", version, "encode")(_built(message(f"{api}Request"), body))
    size = len(header) + sum(map(len, buffers))
    return [_SIZE.pack(size) + header, *buffers]


def decode(api: str, version: int, frame: memoryview) -> tuple[int, Any]:
    """The correlation id and the message of a response's frame, without its length. Raises WireError."""
    correlation_id, position = read_response_header(frame, 0, BY_NAME[api].key, version)
    return correlation_id, _codec(f"{api}Response", version, "decode")(frame, position)[0]


@cache
def _codec(name: str, version: int, direction: str) -> Callable[..., Any]:
    schema = message(name)
    assert version in schema.versions, f"{name} {version}"
    return compile_codec(schema, version, direction, struct_classes(schema))


def struct_classes(schema: Message) -> dict[str, type]:
    """A class for the message and for each struct inside it."""
    return _classes(schema.name)


@cache
def _classes(name: str) -> dict[str, type]:
    schema = message(name)
    classes: dict[str, type] = {}
    for struct, fields in schema.structs.items():
        classes[struct] = _struct_class(struct, fields, classes)
    return classes


def _struct_class(struct: str, fields: tuple[Field, ...], classes: dict[str, type]) -> type:
    """Takes the fields in their order; what is missing is its default, made when it is needed."""
    names = tuple(field.name for field in fields)
    expressions = [compile(field.default_expression, struct, "eval") for field in fields]

    def __init__(self: Any, *values: Any) -> None:
        for name, value in zip(names, values, strict=False):
            setattr(self, name, value)
        for name, expression in zip(names[len(values) :], expressions[len(values) :], strict=True):
            setattr(self, name, eval(expression, {"ZERO_ID": ZERO_ID, **classes}))  # noqa: S307 -- our own schema

    def __eq__(self: Any, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self: Any) -> str:
        return f"{struct}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    body = {"__slots__": names, "__init__": __init__, "__eq__": __eq__, "__repr__": __repr__, "__hash__": None}
    return type(struct, (), body)


def _built(schema: Message, body: Body) -> Any:
    return _build(schema, schema.name, body)


def _build(schema: Message, struct: str, body: Body) -> Any:
    """The object that nested dicts say."""
    fields = {field.name: field for field in schema.structs[struct]}
    made = _classes(schema.name)[struct]()
    for name, value in body.items():
        setattr(made, name, _value(schema, fields[name], value))
    return made


def _value(schema: Message, field: Field, value: Any) -> Any:
    if not field.is_struct or value is None:
        return value
    if field.is_array:
        return [_build(schema, field.type, item) for item in value]
    return _build(schema, field.type, value)
