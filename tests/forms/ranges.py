"""Source that keeps to the ranges of native integers: whatever would wrap in C raises
:class:`OutOfRange`.

mypy says which expressions are native (it is what mypyc compiles by). The modules are then loaded
from source with a test around every operation and call of that type, and after every assignment to
a name or attribute of that type (arguments need none: compiled code refuses those that do not
fit)::

    with ranges.kept():
        from agents.mrc.endpoint import Endpoint

Only for a process that has not imported ``agents`` yet.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, GetSetDescriptorType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BITS = {
    "mypy_extensions.i64": 64,
    "mypy_extensions.i32": 32,
    "mypy_extensions.i16": 16,
    "mypy_extensions.u8": -8,
}
"""Native types, by the bits of their values; negative: unsigned."""
ROOMS = ("agents.", "testbed.simulated.")
"""Where modules are that may have such numbers."""
Place = tuple[int, int, int, int]
"""Line, column, last line and end of an expression, as in ast."""


class OutOfRange(Exception):
    """A native integer would have wrapped. Not an OverflowError, which code might take for a wrong
    argument."""


def keep(value: int, bits: int) -> int:
    """``value``, if it fits."""
    low, high = (0, 1 << -bits) if bits < 0 else (-1 << bits - 1, 1 << bits - 1)
    if not low <= value < high:
        raise OutOfRange(f"{value:#x} has no place in {abs(bits)} bits")
    return value


def native_places(paths: Iterable[Path], root: Path = ROOT) -> dict[Path, dict[Place, int]]:
    """The native expressions of each module: places and bits. Raises ValueError if the source does
    not type-check."""
    from mypy import build, options, types
    from mypy.config_parser import parse_config_file
    from mypy.modulefinder import BuildSource

    chosen = options.Options()
    parse_config_file(chosen, lambda: None, str(ROOT / "pyproject.toml"), sys.stdout, sys.stderr)
    chosen.export_types = chosen.preserve_asts = True
    chosen.incremental = False
    chosen.python_executable = sys.executable
    wanted = {
        path.resolve(): ".".join(
            path.resolve().relative_to(root).with_suffix("").parts
        ).removesuffix(".__init__")
        for path in paths
    }
    result = build.build(
        [BuildSource(str(path), name) for path, name in wanted.items()], chosen, fscache=None
    )
    if result.errors:
        raise ValueError("\n".join(result.errors))

    found: dict[Path, dict[Place, int]] = {}
    for path, name in wanted.items():
        places = found[path] = {}
        for node in parts(result.files[name]):
            kind = types.get_proper_type(result.types.get(node))
            n = BITS.get(kind.type.fullname, 0) if isinstance(kind, types.Instance) else 0
            if n:
                places[node.line, node.column, node.end_line, node.end_column] = n
    return found


def parts(tree: Any) -> Iterator[Any]:
    """All nodes of a module's tree. By hand, since mypy's own visitors are compiled and cannot be
    derived from."""
    from mypy import nodes

    rest, seen = [tree], {id(tree)}
    while rest:
        node = rest.pop()
        yield node
        for name in _fields(type(node)):
            value = getattr(node, name, None)
            for child in _flat(value):
                # What a name refers to is no part of the tree.
                if (
                    isinstance(child, nodes.Node)
                    and not isinstance(child, (nodes.Var, nodes.TypeInfo, nodes.MypyFile))
                    and id(child) not in seen
                ):
                    seen.add(id(child))
                    rest.append(child)


@cache
def _fields(kind: type[Any]) -> list[str]:
    return [
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, GetSetDescriptorType) and name not in _LINKS
    ]


_LINKS = frozenset(("node", "info", "def_var", "original_def", "definition"))
"""Fields that lead from a use to a definition."""


def _flat(value: Any) -> Iterator[Any]:
    """The value, or what is in it."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


class Guards(ast.NodeTransformer):
    """Puts ``__keep__(..., bits)`` around the native expressions of a module, and after what is
    assigned to native variables."""

    def __init__(self, places: dict[Place, int]) -> None:
        self.places = places

    def bits(self, node: Any) -> int:
        return self.places.get(
            (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), 0
        )

    def guarded(self, node: Any) -> Any:
        """The node, tested; of a call that is what it converts to or returns."""
        self.generic_visit(node)
        n = self.bits(node)
        if not n:
            return node
        call = ast.Call(ast.Name("__keep__", ast.Load()), [node, ast.Constant(n)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    visit_BinOp = visit_UnaryOp = visit_Call = guarded

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        return self.followed(node, node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        self.generic_visit(node)
        return self.followed(node, [node.target] if node.value is not None else [])

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        return self.followed(node, [node.target])

    def followed(self, node: Any, targets: Sequence[Any]) -> Any:
        """The statement, and the tests of what it assigned to single names and attributes."""
        tests = []
        for target in targets:
            n = self.bits(target)
            if n and isinstance(target, (ast.Name, ast.Attribute)):
                read = ast.parse(ast.unparse(target), mode="eval").body
                call = ast.Expr(
                    ast.Call(ast.Name("__keep__", ast.Load()), [read, ast.Constant(n)], [])
                )
                for part in ast.walk(call):
                    ast.copy_location(part, node)
                tests.append(call)
        return [node, *tests] if tests else node


def guard(source: str, path: str, places: dict[Place, int]) -> CodeType:
    """Code of a module that keeps its ranges; it needs ``__keep__`` among its globals."""
    code: CodeType = compile(Guards(places).visit(ast.parse(source, path)), path, "exec")
    return code


class _Loader(SourceFileLoader):
    places: dict[Path, dict[Place, int]]

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return guard(source, self.path, self.places.get(Path(self.path).resolve(), {}))

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__keep__"] = keep
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, places: dict[Path, dict[Place, int]]) -> None:
        self.loader = type("Loader", (_Loader,), {"places": places})

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(ROOMS):
            return None
        found = (FileFinder(folder, (self.loader, [".py"])).find_spec(fullname) for folder in path)
        return next((spec for spec in found if spec is not None), None)


@contextmanager
def kept(root: Path = ROOT) -> Iterator[dict[Path, dict[Place, int]]]:
    """Modules that are imported within come from source and keep their ranges; gives the places
    that are tested."""
    if any(name.startswith(ROOMS) for name in sys.modules):
        raise RuntimeError(
            "the engine has been imported already: ranges are kept from the first import on"
        )
    os.environ["MRCBED_INTERPRETED"] = "1"
    sources = [
        path
        for room in ROOMS
        for path in sorted(root.joinpath(*room.rstrip(".").split(".")).rglob("*.py"))
    ]
    places = native_places(sources, root)
    import agents  # noqa: F401  (it puts its own finder first)

    finder = _Finder(places)
    sys.meta_path.insert(0, finder)
    try:
        yield places
    finally:
        sys.meta_path.remove(finder)
