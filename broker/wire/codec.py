"""Encoders and decoders of every message in every version, compiled from the schema when first asked for.

    decode = decoder(MetadataRequest, 12)      # or decoder("MetadataRequest", 12)
    request, end = decode(view, position)
    buffers = encoder(MetadataResponse, 12)(response)

A decoder takes a ``memoryview`` that ends where the frame ends. It copies what it keeps, except ``records``, which
are slices of the frame. An encoder returns buffers to be written in order; large payloads are among them uncopied.
Both raise WireError. About a millisecond to compile, cached for good.
"""

import linecache
from collections.abc import Callable
from functools import cache
from importlib import import_module
from struct import error as StructError
from typing import Any, TypeVar, overload

import msgspec

from ottla.broker.wire import primitives
from ottla.broker.wire.decode_source import DecodeWriter, decode_source
from ottla.broker.wire.encode_source import EncodeWriter, default_name, encode_source
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.layout import Layouts
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.schema import Message, message, module_name
from ottla.runtime.errors import ErrorCode
from ottla.runtime.identifiers import ZERO_ID

Decoded = TypeVar("Decoded", bound=msgspec.Struct)
Decoder = Callable[[memoryview, int], tuple[Decoded, int]]
Encoder = Callable[[Decoded], list[Buffer]]


@overload
def decoder(name: type[Decoded], version: int) -> Decoder[Decoded]: ...
@overload
def decoder(name: str, version: int) -> Decoder[Any]: ...
def decoder(name: type[msgspec.Struct] | str, version: int) -> Decoder[Any]:
    """``decode(view, position) -> (message, position behind it)`` of a message's version.

    Raises KeyError for a message that is not in the schema, WireError for a version that it does not have.
    """
    return compiled(name if isinstance(name, str) else name.__name__, version, "decode")


@overload
def encoder(name: type[Decoded], version: int) -> Encoder[Decoded]: ...
@overload
def encoder(name: str, version: int) -> Encoder[Any]: ...
def encoder(name: type[msgspec.Struct] | str, version: int) -> Encoder[Any]:
    """``encode(message) -> buffers`` of a message's version. Raises like ``decoder``."""
    return compiled(name if isinstance(name, str) else name.__name__, version, "encode")


def message_class(name: str) -> type[msgspec.Struct]:
    """The class of a message. Raises KeyError when the schema has none of that name."""
    found: type[msgspec.Struct] = getattr(message_module(message(name)), name)
    return found


def message_module(schema: Message) -> Any:
    return import_module(f"ottla.broker.wire.messages.{module_name(schema.name)}")


@cache
def compiled(name: str, version: int, direction: str) -> Callable[..., Any]:
    schema = message(name)
    if version not in schema.versions:
        raise WireError(f"{name} has no version {version} ({schema.versions})", ErrorCode.UNSUPPORTED_VERSION)
    layouts = Layouts()
    if direction == "decode":
        source = decode_source(DecodeWriter(schema, version, layouts))
    else:
        source = encode_source(EncodeWriter(schema, version, layouts))
    return compile_source(schema, source, layouts, direction, f"{name} {version}")


def compile_source(schema: Message, source: str, layouts: Layouts, direction: str, title: str) -> Callable[..., Any]:
    """The function named ``direction`` of a source that one of the two writers wrote."""
    file = f"<{direction} {title}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # tracebacks show the line
    namespace = {**HELPERS, **struct_globals(schema), **layouts.globals()}
    exec(compile(source, file, "exec"), namespace)  # noqa: S102 -- our own source, from our own schema
    function: Callable[..., Any] = namespace[direction]
    return function


def struct_globals(schema: Message) -> dict[str, Any]:
    """The classes of a message's structs, and the defaults of their fields."""
    module = message_module(schema)
    found: dict[str, Any] = {}
    for struct, fields in schema.structs.items():
        found[struct] = getattr(module, struct)
        blank = found[struct]()
        found |= {default_name(struct, field): getattr(blank, field.name) for field in fields}
    return found


def malformed(name: str, version: int, cause: Exception) -> WireError:
    return WireError(f"bytes are not a {name} of version {version}: {cause}")


def unencodable(name: str, version: int, cause: Exception) -> WireError:
    return WireError(f"cannot encode {name} version {version}: {cause}")


def not_in_version(name: str, version: int, field: str) -> WireError:
    return WireError(f"{name} version {version} cannot carry {field}", ErrorCode.UNSUPPORTED_VERSION)


HELPERS = {
    "StructError": StructError,
    "UNCOPIED_MIN": primitives.UNCOPIED_MIN,
    "VARINTS": primitives.VARINTS,
    "ZERO_ID": ZERO_ID,
    "check_count": primitives.check_count,
    "encode_varint": primitives.encode_varint,
    "join": b"".join,
    "long_string": primitives.long_string,
    "malformed": malformed,
    "more_string": primitives.more_string,
    "more_varint": primitives.more_varint,
    "not_in_version": not_in_version,
    "numbers": primitives.numbers,
    "read_varint": primitives.read_varint,
    "skip_tags": primitives.skip_tags,
    "tag_of_size": primitives.tag_of_size,
    "too_many": primitives.too_many,
    "truncated": primitives.truncated,
    "unencodable": unencodable,
    "unexpected_null": primitives.unexpected_null,
}
"""What compiled source may call, by the names it uses."""
