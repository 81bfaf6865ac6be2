"""Options and arguments of every command: what a person typed is checked before the command sees
it. click's own types accept "nan" within any bounds, digits of other scripts, ``1_000``, empty
names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from topologies.toml_files import MAX_WHOLE

F = TypeVar("F", bound=Callable[..., Any])
_TYPED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def wrong(word: str, kind: click.ParamType[Any]) -> str:
    """Return the end of a sentence; "" if nothing is wrong."""
    # as Python has bytes that are none (PEP 383)
    if any("\ud800" <= char <= "\udfff" for char in word):
        return f"'{word}' is no UTF-8: give another name"
    if not word.strip():
        return "it is empty: drop it, or give a value"
    # FloatRange and IntRange are of them
    if isinstance(kind, (click.types.FloatParamType, click.types.IntParamType)):
        whole = isinstance(kind, click.types.IntParamType)
        if (
            not (_WHOLE if whole else _NUMBER).fullmatch(word)
            or abs(int(word) if whole else float(word)) > MAX_WHOLE
        ):
            shown = word if len(word) <= 40 else word[:40] + "..."
            return (
                f"{shown!r} is no "
                f"{'whole number below 2^63, like 3' if whole else 'number below 2^63, like 2.5'}"
            )
    return ""


offers: list[Callable[[click.Context, click.Parameter], Iterable[str | CompletionItem[str]]]] = []


class _Checked(click.Parameter):
    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        own = [
            item if isinstance(item, CompletionItem) else CompletionItem(item)
            for more in offers
            for item in more(ctx, self)
        ]
        own = [item for item in own if item.type != "plain" or item.value.startswith(incomplete)]
        return own or super().shell_complete(ctx, incomplete)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        typed = (
            self.name is not None
            and ctx.get_parameter_source(self.name) in _TYPED
            and self.type is not click.UNPROCESSED
        )
        for word in (value if isinstance(value, (tuple, list)) else (value,)) if typed else ():
            if isinstance(word, str) and (why := wrong(word, self.type)):
                raise click.BadParameter(why, ctx, self)
            # most are written
            if (
                isinstance(self, click.Option)
                and isinstance(self.type, click.Path)
                and Path(word).is_fifo()
            ):
                raise click.BadParameter(
                    f"{word!r} is a FIFO, which may wait for ever: give a file", ctx, self
                )
        result = super().type_cast_value(ctx, value)
        if typed and isinstance(result, tuple) and len(set(result)) < len(result):
            twice = next(one for one in result if result.count(one) > 1)
            raise click.BadParameter(f"{str(twice)!r} is given twice: give it once", ctx, self)
        return result


class Option(_Checked, click.Option):
    """An option whose typed value is checked. Raises click.BadParameter."""


class Argument(_Checked, click.Argument):
    """Values that are passed on to another program (click.UNPROCESSED) stay as they are."""


def option(*names: str, cls: type[click.Option] = Option, **keys: Any) -> Callable[[F], F]:
    return click.option(*names, cls=cls, **keys)


def argument(*names: str, **keys: Any) -> Callable[[F], F]:
    return click.argument(*names, cls=Argument, **keys)
