"""A failed query is told in one line: texts as pyspark 4.3 makes them."""

from ottla.pipeline.jobs.causes import cause_in

STREAM = """[STREAM_FAILED] Query [id = 04742f96, runId = 1cef22fa] terminated with exception: """
TAIL = """ SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: q [id = 04742f96, runId = 1cef22fa]
Current Committed Offsets: {org.apache.spark.X@75341ad7: {"t": {"0": 20}}}
"""
WORKER = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/source.py", line 19, in read
    raise ValueError(f"t-{k}")
              ^^^^^^^^^^^^^^^^
"""
PROXY = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. \
Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
"""


def test_the_exception_of_a_worker_is_the_cause() -> None:
    assert (
        cause_in(f"{STREAM}{WORKER}ValueError: t-0, offset 20: corrupt\n{TAIL}")
        == "ValueError: t-0, offset 20: corrupt"
    )


def test_our_own_exceptions_say_all_without_their_class() -> None:
    raised = "ottla.pipeline.wire.errors.PartitionError: flights-3, offset 7: OFFSET_OUT_OF_RANGE\n"
    assert cause_in(f"{STREAM}{WORKER}{raised}{TAIL}") == "flights-3, offset 7: OFFSET_OUT_OF_RANGE"


def test_the_innermost_of_several_tracebacks_is_the_cause() -> None:
    inner = (
        f"pyspark.errors.exceptions.captured.PythonException: \n{WORKER}OSError: [Errno 28] No space left on device\n"
    )
    assert cause_in(f"{STREAM}{PROXY}{inner}{TAIL}") == "OSError: [Errno 28] No space left on device"


def test_an_exception_of_several_lines_becomes_one() -> None:
    assert cause_in(f"{STREAM}{WORKER}RuntimeError: first\nsecond\n{TAIL}") == "RuntimeError: first second"


def test_what_spark_itself_says_is_told_without_where_in_spark() -> None:
    text = (
        "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03;\n'Project\n\nJVM stacktrace:\n\tat org.apache"
    )
    assert cause_in(text).startswith("[PATH_NOT_FOUND] Path does not exist: file:/x.;")
    assert "org.apache" not in cause_in(text)


def test_an_exception_without_words_is_its_name() -> None:
    assert cause_in(f"{STREAM}{WORKER}AssertionError\n{TAIL}").startswith("AssertionError")
