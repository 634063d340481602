"""Topics and their settings, each topic a register that is made, changed, deleted and described."""

from collections.abc import Callable, Sequence

from ottla.testing.checker.findings import Judgement, Kind
from ottla.testing.checker.history import Line
from ottla.testing.checker.linearizability import Step, Verdict, check
from ottla.testing.checker.operations import FOREVER, Admin, Outcome

State = str | None
"""What a topic is set to; None: there is no such topic."""
UNSEEN = ""


def judge(topic: str, lines: list[Line[Admin]], out: Judgement, limit: int) -> None:
    asked = [(each.operation, each.number) for each in lines if each.operation.outcome is not Outcome.FAIL]
    _check_local(topic, asked, out)
    seen = {each.value for each, _ in asked if each.action == "describe" and not each.local}
    steps, numbers = list[Step[State]](), list[int]()
    for each, number in asked:
        if not each.local and (step := _step(each, seen)) is not None:
            steps.append(step)
            numbers.append(number)
    result = check(steps, None, limit)
    if result.verdict is Verdict.UNKNOWN:
        told = f"gave up after {result.tried} configurations: too much was under way at once"
        out.unknown.add(Kind.METADATA_NOT_LINEARIZABLE, topic, [numbers[result.at]], told)
    elif result.verdict is Verdict.NOT_LINEARIZABLE:
        [blamed] = [each for each, number in asked if number == numbers[result.at]]
        told = f"no order of what came before explains that {_words(blamed)}"
        out.add(Kind.METADATA_NOT_LINEARIZABLE, topic, [numbers[result.at]], told)


def _words(each: Admin) -> str:
    if each.action == "describe":
        return "it was not there" if each.value is None else f"it was seen as {each.value!r}"
    return f"{each.action} of {each.value!r} was answered {each.result or 'ok'!r}"


def _step(each: Admin, seen: set[State]) -> Step[State] | None:
    """None: what nobody was answered and nobody saw, and what only asked. Values that nobody saw are all the same."""
    value = each.value if each.value in seen else UNSEEN
    if each.outcome is Outcome.OK:
        return Step(each.begin, each.end, _with_result(each, value))
    if each.action == "describe" or (each.action == "alter" and value == UNSEEN):
        return None
    return Step(each.begin, FOREVER, _without_result(each.action, value), f"{each.action} {value}")


def _with_result(each: Admin, value: State) -> Callable[[State], Sequence[State]]:
    """Who is told `exists` or `absent` may have done it himself: a request whose answer was lost is sent again underneath him."""
    match each.action, each.result:
        case "create", "exists":
            return lambda state: (value,) if state is None else (state,)
        case "create", _:
            return lambda state: (value,) if state is None else ()
        case "delete", "absent":
            return lambda state: (None,)
        case "delete", _:
            return lambda state: () if state is None else (None,)
        case "alter", "absent":
            return lambda state: (None,) if state is None else ()
        case "alter", _:
            return lambda state: () if state is None else (value,)
        case _:
            return lambda state: (state,) if state == value else ()


def _without_result(action: str, value: State) -> Callable[[State], Sequence[State]]:
    match action:
        case "create":
            return lambda state: (value,) if state is None else ()
        case "delete":
            return lambda state: () if state is None else (None,)
        case _:
            return lambda state: () if state is None else (value,)


def _check_local(topic: str, asked: list[tuple[Admin, int]], out: Judgement) -> None:
    """A broker may be late; it does not say what nobody asked for, or not yet."""
    begun: dict[State, int] = {None: -1}
    for each, _ in asked:
        if each.action in ("create", "alter"):
            begun[each.value] = min(each.begin, begun.get(each.value, each.begin))
    for each, number in asked:
        if each.local and each.action == "describe" and each.outcome is Outcome.OK:
            since = begun.get(each.value)
            if since is None or since > each.end:
                when = "nobody had asked for that" if since is None else "that was asked for later"
                out.add(Kind.METADATA_NOT_LINEARIZABLE, topic, [number], f"it was seen as {each.value!r}: {when}")
