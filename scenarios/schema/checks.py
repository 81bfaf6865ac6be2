"""Checks on a run's figures: ``mrc.busbw_bps / mrc.ideal_busbw_bps >= 0.9``. The syntax is a subset
of Python's; no code is executed."""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.results.summary import Check, Run

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "len": len,
    "sum": sum,
    "ceil": math.ceil,
    "floor": math.floor,
}


MAX_LETTERS = 500
"""What a parser takes of longer checks may be too deep for those who walk through it [ours]."""


class CheckError(ValueError):
    """An expression is not a check, or names a figure that is missing. The text is one line."""


def _parse(text: str) -> ast.Compare:
    if len(text) > MAX_LETTERS:
        raise CheckError(f"is longer than {MAX_LETTERS} letters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CheckError("is not an expression") from None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or type(tree.ops[0]) not in _COMPARE:
        raise CheckError("must compare two things once, like mrc.wrong == 0")
    _check_syntax(tree.left)
    _check_syntax(tree.comparators[0])
    return tree


def _check_syntax(node: ast.expr) -> None:
    match node:
        case ast.Constant(value=int() | float() | str() | bool()):
            return
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return
        case ast.Attribute(value=inner):
            _check_syntax(inner)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int() | str())):
            _check_syntax(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check_syntax(left)
            _check_syntax(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check_syntax(operand)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            for arg in args:
                _check_syntax(arg)
        case _:
            raise CheckError(
                f"{ast.unparse(node)!r} is not allowed: figures, numbers, + - * /, "
                f"{', '.join(_FUNCTIONS)}"
            )


def names_in(text: str) -> set[str]:
    """Raises :class:`CheckError` if the text is no check, or of a figure that no run has."""
    figures = [
        node.attr
        for node in ast.walk(_parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    if unknown := [name for name in figures if name not in Run.__struct_encode_fields__]:
        near = difflib.get_close_matches(unknown[0], Run.__struct_encode_fields__, n=1, cutoff=0.0)
        raise CheckError(
            f"no run has the figure {unknown[0]}: did you mean {near[0]}? 'mrcbed explain "
            "summary.runs' lists all"
        )
    return {n.id for n in ast.walk(_parse(text)) if isinstance(n, ast.Name)} - set(_FUNCTIONS)


def _value(node: ast.expr, figures: Mapping[str, object]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _item(figures, name, name)
        case ast.Attribute(value=inner, attr=key):
            return _item(_value(inner, figures), key, ast.unparse(node))
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return _item(_value(inner, figures), key, ast.unparse(node))
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_number(left, figures), _number(right, figures))
        case ast.UnaryOp(operand=operand):
            return -_number(operand, figures)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, [_value(arg, figures) for arg in args], ast.unparse(node))
    raise CheckError("is not an expression")  # cannot happen: _check_syntax refuses everything else


def _call(name: str, args: list[Any], path: str) -> Any:
    try:
        return _FUNCTIONS[name](*args)
    except (TypeError, ValueError, OverflowError):
        raise CheckError(f"{path} of {', '.join(map(_formatted, args))} is unknown") from None


def _item(container: Any, key: Any, path: str) -> Any:
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        raise CheckError(f"there is no figure {path}") from None


def _number(node: ast.expr, figures: Mapping[str, object]) -> Any:
    value = _value(node, figures)
    if not isinstance(value, (int, float)):
        raise CheckError(f"{ast.unparse(node)} is {'unknown' if value is None else value}")
    return value


def _formatted(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _paths(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            yield node
        case ast.Call(args=args):
            for arg in args:
                yield from _paths(arg)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _paths(child)


def _is_time(node: ast.expr) -> bool:
    match node:
        case ast.Attribute() | ast.Subscript():
            return any(
                isinstance(part, ast.Attribute) and part.attr.endswith("_ns")
                for part in ast.walk(node)
            )
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _is_time(left) and _is_time(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_time(left) != _is_time(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _is_time(left) and not _is_time(right)
        case ast.UnaryOp(operand=operand):
            return _is_time(operand)
        case ast.Call(func=ast.Name(id=name), args=args):
            return name != "len" and all(map(_is_time, args))
    return False


def _obstacle(
    tree: ast.Compare, figures: Mapping[str, object], unmeasured: Mapping[str, str]
) -> str:
    """Return why a check does not apply, or "". Raises :class:`CheckError` if another figure is
    missing."""
    obstacle = ""
    for path in _paths(tree):
        transport, _, figure = ast.unparse(path).partition(".")
        reason = next(
            (reason for name, reason in unmeasured.items() if f"{figure}.".startswith(f"{name}.")),
            "",
        )
        if reason and transport in figures:
            obstacle = obstacle or reason
        else:
            _value(path, figures)
    return obstacle


def evaluate(
    text: str,
    figures: Mapping[str, object],
    name: str | None = None,
    unmeasured: Mapping[str, str] | None = None,
    exempt: str = "",
) -> Check:
    """Return one entry of summary.json's ``checks``. A missing figure fails the check.

    ``unmeasured``: dotted path below the transport -> why the world of the runs cannot have this
    figure. A check that names such a figure does not apply: ``ok`` is None, and ``seen`` says why.
    Neither does a check with ``exempt``, a reason.
    """
    tree = _parse(text)
    op, right = tree.ops[0], tree.comparators[0]
    expected = f"{_SIGNS[type(op)]} {ast.unparse(right)}"
    unit = "ns" if _is_time(tree.left) else None
    check = Check(name=name or text, expected=expected, unit=unit, seen=None, ok=False)
    try:
        if obstacle := _obstacle(tree, figures, unmeasured or {}) or exempt:
            check.seen, check.ok = f"not applicable: {obstacle}", None
            return check
        check.seen, bound = _value(tree.left, figures), _value(right, figures)
        if not isinstance(right, ast.Constant):
            check.expected += f" ({_formatted(bound)})"
        check.ok = (
            check.seen is not None
            and bound is not None
            and bool(_COMPARE[type(op)](check.seen, bound))
        )
    except (CheckError, ZeroDivisionError, TypeError, ValueError) as error:
        check.seen = f"nothing: {error}"
    return check
