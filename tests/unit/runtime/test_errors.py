"""Error numbers that this version has no name for."""

import pytest

from ottla.runtime.errors import ErrorCode, KafkaError

NEWER = 9999


def test_a_number_of_a_newer_node_is_an_error_that_keeps_its_number() -> None:
    code = ErrorCode(NEWER)
    assert (code, code.value, code.name) == (NEWER, NEWER, "UNKNOWN_ERROR_9999")
    assert code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert str(KafkaError(code)) == "UNKNOWN_ERROR_9999"


def test_it_is_equal_to_itself_and_no_member_of_the_table() -> None:
    assert {ErrorCode(NEWER): "found"}[ErrorCode(NEWER)] == "found"
    assert not ErrorCode(NEWER).is_known
    assert all(code.is_known for code in ErrorCode)


def test_a_number_that_fits_no_wire_is_an_unknown_error() -> None:
    assert ErrorCode(1 << 15) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_is_no_number_is_no_error_code() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        ErrorCode("nonsense")  # type: ignore[arg-type]
