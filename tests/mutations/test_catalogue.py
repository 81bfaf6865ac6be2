"""The mutation check itself takes minutes (`make mutations`); that it can still be run is seen each
time."""

from __future__ import annotations

import ast

import pytest

from tests.mutations.catalogue import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_bug_still_applies_exactly_once_and_is_python(mutation: Mutation) -> None:
    source = (ROOT / mutation.file).read_text()
    mutated = mutation.mutated(source)
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
    for path in mutation.first:
        assert (ROOT / path).exists(), path


def test_names_are_unique() -> None:
    names = [m.name for m in MUTATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("source", ["nothing of the kind", "x = 1\nx = 1\n"])
def test_a_piece_that_is_gone_or_stands_twice_is_told(source: str) -> None:
    mutation = Mutation("a slip", "agents/x.py", (("x = 1", "x = 2"),), ())
    assert mutation.mutated("x = 1\n") == "x = 2\n"
    with pytest.raises(
        ValueError, match="'a slip' no longer applies: agents/x.py has [02] times: 'x = 1'"
    ):
        mutation.mutated(source)
