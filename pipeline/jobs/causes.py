"""Why Spark gave up, in one line: the last exception of a Python worker, or what Spark itself says; without where in Spark that was."""

import re

_TRACEBACK = "Traceback (most recent call last):"
_END = re.compile(r"\n=== Streaming Query ===|\nJVM stacktrace:|\n\s*SQLSTATE: \w+|\n\n?Driver stacktrace:|\n\tat ")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
_CLASS = re.compile(r"^((?:\w+\.)*)(\w+)(?:: |$)")
_HINTS = {
    "Failed to find data source: kafka": "--source jvm wants the connector's jars: --conf spark.jars=A.jar,B.jar (docs/pipeline.md)",
    "ClassNotFoundException: org.apache.spark.sql.kafka010": "--source jvm wants the connector's jars: --conf spark.jars=A.jar,B.jar (docs/pipeline.md)",
    "java.lang.OutOfMemoryError": "give it more with --conf spark.driver.memory=4g (executors: spark.executor.memory), or less at once with --max-bytes-per-trigger",
    "No space left on device": "make room, and start the job again: it goes on where it was",
    "Python worker failed to connect back": "the machine is too busy; start the job again",
    "JAVA_GATEWAY_EXITED": "Java ended at once: the log says why",
}
WIDTH_MAX = 2000
DEPTH_MAX = 20


def is_sparks(error: BaseException) -> bool:
    """Whether it came out of Spark. A fault in our own driver code is not told in one line."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def cause(error: BaseException) -> str:
    """One line, with what to do where that is known."""
    text = _innermost(error) if is_sparks(error) else f"{type(error).__name__}: {error}"
    told = cause_in(text)
    hint = next((hint for sign, hint in _HINTS.items() if sign in text), None)
    return f"{told.rstrip('.;')}: {hint}" if hint else told


def _innermost(error: BaseException) -> str:
    """Spark wraps what happened in a task, a subquery or a sink; the deepest that says something is what happened."""
    told, thrown = str(error), getattr(error, "_origin", None)
    for _ in range(DEPTH_MAX):
        thrown = thrown.getCause() if thrown is not None else None
        if thrown is None:
            break
        text = str(thrown.getMessage() or thrown.toString())
        if _TRACEBACK in text or _TRACEBACK not in told:
            told = text
    return told


def cause_in(text: str) -> str:
    """Of what pyspark puts into an exception."""
    text = _STREAM_FAILED.sub("", text)
    _, found, last = text.rpartition(_TRACEBACK)
    told = _raised(last) if found else text
    ended = _END.search(told)
    line = " ".join(_STATE.sub("", told[: ended.start()] if ended else told).split())
    return line if len(line) <= WIDTH_MAX else f"{line[:WIDTH_MAX]} ..."


def _raised(text: str) -> str:
    """What stands behind the frames: these are indented. Our own errors say all without their class."""
    lines = text.splitlines()
    at = next((at for at, line in enumerate(lines) if line.strip() and not line.startswith(" ")), None)
    if at is None:
        return text
    told = "\n".join(lines[at:])
    named = _CLASS.match(told)
    if named is None:
        return told
    rest = told[named.end() :]
    return rest if named.group(1).startswith("ottla.") and rest.strip() else f"{named.group(2)}: {rest}"
