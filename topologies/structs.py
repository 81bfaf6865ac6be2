"""Converts plain data (TOML, JSON, ``--set``, options) to msgspec Structs. The one place where
input is validated.

A table of input is a frozen Struct with ``forbid_unknown_fields``. Its annotations hold types,
bounds, choices, and a :class:`Doc` for each key; its ``__post_init__`` checks what several keys
must satisfy together, and raises :class:`Refused`. :func:`convert` words every refusal in one line:
the dotted key, the value, what it must be, and the nearest right name of an unknown key.

Classes that mypyc compiles lose the bounds of their annotations and cannot be Structs: such a
package declares a dataclass with a default for each option, and bounds and meanings beside it.
:func:`options_of` makes the Struct.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType, inspect

T = TypeVar("T")
_PATH = re.compile(r"(?P<text>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = "Object contains unknown field `"
_HOLDERS = (inspect.ListType, inspect.VarTupleType, inspect.TupleType, inspect.DictType)
_MISSING = "Object missing required field `"


class Refused(ValueError):
    """``key``, dotted, and ``text``, the rest of the sentence that begins with it."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(key, text)
        self.key, self.text = key, text

    def __str__(self) -> str:
        return f"{self.key} {self.text}" if self.key else self.text


@dataclass(frozen=True)
class Doc:
    """Documents a key in ``Annotated[..., Doc(...)]``: what it means, in one sentence without its
    end. ``unit``: of a plain number. ``default``: in words, where the Struct's own only stands for
    it. ``example``: as TOML writes it."""

    meaning: str
    unit: str = ""
    default: str = ""
    example: str = ""


class Written(type):
    """Metaclass of the types that people write in a form of their own: a field holds what ``read``
    returns, or ``read`` raises ValueError with the end of a sentence that begins with the value.
    ``words`` says for a reader what may be written, ``schema`` the same as JSON Schema; ``example``
    is a value as TOML writes it."""

    words: str
    schema: dict[str, object]
    example: str

    def __instancecheck__(cls, value: object) -> bool:
        return True


def one_of(names: Iterable[str]) -> msgspec.Meta:
    names = tuple(names)
    return msgspec.Meta(
        pattern=rf"^(?:{'|'.join(map(re.escape, names))})\Z", extra={"names": names}
    )


def text(pattern: str, description: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=rf"^(?:{pattern})\Z", description=description)


MAX_NAME = 200
NAME = text(
    rf"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{{0,{MAX_NAME}}}",
    f"one line of text without control characters, of at most {MAX_NAME} letters",
)
"""A name that its author is free to choose. Pages and drawings are XML, which has no control
characters."""


def convert(data: Any, kind: type[T], where: str = "", strict: bool = True) -> T:
    """Fill the Struct ``kind``. Raises :class:`Refused`, whose key begins with ``where``. Not
    ``strict``: text may hold numbers."""
    try:
        return msgspec.convert(data, kind, strict=strict, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise _refused(error, data, kind, where) from None
    except UnicodeEncodeError as error:  # a byte of the command line that is no UTF-8
        raise Refused(where, f"has {_shown(error.object)}, which is no text") from None


def options_of(
    record: type, keys: Mapping[str, tuple[msgspec.Meta | Doc, ...]]
) -> type[msgspec.Struct]:
    """Fields are those of the dataclass that have a default, with bounds and meaning. :func:`given`
    says which of them were set."""
    hints = get_type_hints(record)
    assert keys.keys() <= hints.keys(), keys.keys() - hints.keys()
    options: list[Any] = []
    for field in fields(record):
        if field.default is not MISSING:
            kind: Any = hints[field.name]
            for annotation in keys.get(field.name, ()):
                kind = Annotated[kind, annotation]
            options.append((field.name, kind | UnsetType, UNSET))
    return msgspec.defstruct(record.__name__, options, frozen=True, forbid_unknown_fields=True)


def defaults_of(record: type) -> dict[str, object]:
    return {field.name: field.default for field in fields(record) if field.default is not MISSING}


def docs_of(kind: type[msgspec.Struct]) -> dict[str, Doc]:
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    found = {
        names[name]: _doc(hint)
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if name in names
    }
    return {name: doc for name, doc in found.items() if doc is not None}


def _doc(hint: Any) -> Doc | None:
    own = next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Doc)), None)
    return own or next((doc for doc in map(_doc, get_args(hint)) if doc is not None), None)


def given(data: Mapping[str, object], options: type[msgspec.Struct]) -> dict[str, Any]:
    return {
        key: value for key, value in plain(convert(data, options)).items() if value is not UNSET
    }


def nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, tuple(names), n=1, cutoff=0.0)
    return f"is not a key: did you mean {near[0]!r}?" if near else "is not a key: there are none"


def there_are(value: Any, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(value), tuple(names), n=1, cutoff=0.5)
    return f"there are {', '.join(names)}" + (f", did you mean {near[0]!r}?" if near else "")


def join(where: str, key: str) -> str:
    return f"{where}{key}" if not where or not key or key[0] == "[" else f"{where}.{key}"


def _shown(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 120 else f"{words[:117]}..."


def _read(kind: Any, value: Any) -> Any:
    return getattr(kind, "read", kind)(value)


def _refused(error: msgspec.ValidationError, data: Any, kind: Any, where: str) -> Refused:
    match = _PATH.fullmatch(str(error))
    assert match is not None
    message, path = match["text"], match["path"] or ""
    at, value = _follow(path, inspect.type_info(kind), data)
    key = join(where, path.removeprefix("."))
    reason = error.__cause__
    if isinstance(reason, Refused):  # of a __post_init__
        return Refused(join(key, reason.key), reason.text)
    if message.startswith(_UNKNOWN):
        name = message[len(_UNKNOWN) : -1]
        return Refused(
            join(key, name if name.isprintable() else repr(name)),
            nearest(name, (f.encode_name for f in _struct(at).fields)),
        )
    if message.startswith(_MISSING):
        return Refused(join(key, message[len(_MISSING) : -1]), "is missing")
    if reason is not None:  # of a type's `read`
        return Refused(key, f"= {_shown(value)} {reason}")
    names = next(
        (
            t.extra["names"]
            for t in _parts(at)
            if isinstance(t, inspect.Metadata) and t.extra and "names" in t.extra
        ),
        None,
    )
    if names and isinstance(value, str):
        return Refused(key, f"= {_shown(value)}: {there_are(value, names)}")
    most = getattr(_bare(at), "max_length", None)
    if most is not None and isinstance(value, (list, tuple, dict)) and len(value) > most:
        return Refused(key, f"has {len(value):,} entries: {most:,} at most")
    if isinstance(at, inspect.ListType) and isinstance(
        at.item_type, (inspect.StructType, inspect.DictType)
    ):
        return Refused(
            key, f"is empty: add a [[{key}]]" if value == [] else f"must be written as [[{key}]]"
        )
    return Refused(
        key, f"= {_shown(value)} must be {expected(at)}" if key else f"must be {expected(at)}"
    )


def _struct(kind: inspect.Type) -> inspect.StructType:
    return next(part for part in map(_bare, _parts(kind)) if isinstance(part, inspect.StructType))


def _parts(kind: inspect.Type) -> Sequence[inspect.Type]:
    types = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return [t for t in types if not isinstance(t, inspect.NoneType)]


def _bare(kind: inspect.Type) -> inspect.Type:
    return kind.type if isinstance(kind, inspect.Metadata) else kind


def _follow(path: str, kind: inspect.Type, value: Any) -> tuple[inspect.Type, Any]:
    for key, number in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        if key:
            kind = next(field.type for field in _struct(kind).fields if field.encode_name == key)
            value = value[key]
        else:
            inner: Any = next(
                part for part in map(_bare, _parts(kind)) if isinstance(part, _HOLDERS)
            )
            if number == "...":
                kind = inner.value_type  # msgspec does not say of which key
            else:
                kind = (
                    inner.item_types[int(number)]
                    if isinstance(inner, inspect.TupleType)
                    else inner.item_type
                )
                value = value[int(number)]
    parts = _parts(kind)
    return (parts[0] if len(parts) == 1 else kind), value


def expected(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(extra=extra) if extra and "names" in extra:
            return f"one of {', '.join(extra['names'])}"
        case inspect.Metadata(extra_json_schema={"description": words}):
            return str(words)
        case inspect.Metadata(type=inner):
            return expected(inner)
        case inspect.UnionType():
            return ", or ".join(map(expected, _parts(kind)))
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind)}"
        case inspect.StrType():
            return "text"
        case inspect.StructType() | inspect.DictType():
            return "a table"
        case inspect.CustomType(cls=Written() as written):
            return str(written.words)
        case inspect.TupleType(item_types=types):
            return f"a list of {len(types)}, each {expected(types[0])}"
        case (
            inspect.ListType(item_type=item, min_length=least)
            | inspect.VarTupleType(item_type=item, min_length=least)
        ):
            return f"a list{' of one or more' if least else ''}, each {expected(item)}"
    return type(kind).__name__


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    def shown(bound: float) -> str:
        return f"{bound:g}" if isinstance(bound, float) else str(bound)

    words = ""
    if kind.ge is not None and kind.le is not None:
        words = f" in {shown(kind.ge)}..{shown(kind.le)}"
    else:
        limits = (("above", kind.gt), ("from", kind.ge), ("below", kind.lt), ("up to", kind.le))
        words = " " + " and ".join(
            f"{word} {shown(bound)}" for word, bound in limits if bound is not None
        )
    several = f", a multiple of {kind.multiple_of}" if kind.multiple_of else ""
    return words.rstrip() + several


def plain(record: Any) -> dict[str, object]:
    data: dict[str, object] = msgspec.to_builtins(record)
    return data
