"""Encoders and decoders of every message in every version, compiled from the schema when first asked for.

    decode = decoder(MetadataRequest, 12)      # or decoder("MetadataRequest", 12)
    request, end = decode(view, position)
    buffers = encoder(MetadataResponse, 12)(response)

A decoder takes a ``memoryview`` that ends where the frame ends. It copies what it keeps, except ``records``, which
are slices of the frame. An encoder returns buffers to be written in order; large payloads are among them uncopied.
Both raise WireError. About a millisecond to compile, cached for good.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, overload

import msgspec

from ottla.broker.wire.compiling import compile_codec
from ottla.broker.wire.errors import WireError
from ottla.broker.wire.primitives import Buffer
from ottla.broker.wire.schema import Message, message, module_name
from ottla.runtime.errors import ErrorCode

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
    return compile_codec(schema, version, direction, struct_classes(schema))


def struct_classes(schema: Message) -> dict[str, type]:
    """The classes of a message and of the structs inside it."""
    module = message_module(schema)
    return {struct: getattr(module, struct) for struct in schema.structs}
