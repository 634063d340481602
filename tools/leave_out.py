"""Changes one rule of a file at a time, and tells which of the changes its tests do not notice.

python tools/leave_out.py log/producers/state.py tests/unit/log/producers     # some seconds a change

A comparison is made another, one of several conditions or a statement is left out, a least is made the one or the other. What no test
notices is either a rule without a test, or one that another implies: a person looks. The file is put back after each; one with changes that
are not committed is refused.
"""

import argparse
import ast
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OTHERS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NO_RULES = ("logger.", "assert ")
LIMIT_S = 120.0


class Change(NamedTuple):
    """``source`` is the whole file with it; ``told`` what was changed into what."""

    line: int
    told: str
    source: str


def changes(source: str) -> Iterator[Change]:
    """Each of them alone, in the order of the syntax tree."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, text in _replacements(ast.parse(source)):
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        changed = source.encode()[:begin] + text.encode() + source.encode()[end:]
        yield Change(node.lineno, f"{ast.unparse(node)} -> {text}", changed.decode())


def _replacements(tree: ast.AST, *, in_init: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """What stands in the place of which node. What `__init__` sets is no rule."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            if not in_init and _can_be_left_out(node):
                yield node, "pass"
        else:
            yield from ((node, f"({ast.unparse(each)})") for each in _others(node))
        yield from _replacements(node, in_init=isinstance(node, ast.FunctionDef) and node.name == "__init__")


def _can_be_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and not ast.unparse(node).startswith(NO_RULES)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return bool(targets) and all(isinstance(target, ast.Attribute) for target in targets)


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions that a mistake could have put in its place."""
    match node:
        case ast.Compare(ops=[one]) if type(one) in OTHERS:
            other = copy.deepcopy(node)
            other.ops = [OTHERS[type(one)]()]
            yield other
        case ast.BoolOp(values=values):
            for number in range(len(values)):
                rest = values[:number] + values[number + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
            yield node.left
        case ast.Call(func=ast.Name(id="min" | "max"), args=[_, _], keywords=[]):
            yield from node.args


def is_noticed(tests: list[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "60", *tests]
    try:
        return subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("tests", nargs="+", help="as pytest takes them; they have to pass")
    options = parser.parse_args()
    is_changed = ["git", "diff", "--quiet", "HEAD", "--", options.file]
    if subprocess.run(is_changed, check=False).returncode:
        parser.error(f"{options.file} has changes that are not committed: commit them first")
    if is_noticed(options.tests):
        parser.error("the tests do not pass as it is")
    source = options.file.read_text(encoding="utf-8")
    tried = unnoticed = 0
    try:
        for change in changes(source):
            options.file.write_text(change.source, encoding="utf-8")
            tried += 1
            if not is_noticed(options.tests):
                unnoticed += 1
                print(f"{options.file}:{change.line}: {change.told}", flush=True)
    finally:
        options.file.write_text(source, encoding="utf-8")
    print(f"{tried} changes, {unnoticed} of them unnoticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
