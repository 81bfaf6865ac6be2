"""The man page is that of the commands, and man can read it."""

from __future__ import annotations

import shutil
import subprocess

import click
import pytest

from testbed.cli import COMMANDS, group
from testbed.cli.completion import commands as completed
from tests.docs.man import PAGE, escaped, page


def test_the_page_is_that_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: make man"


def test_every_command_and_option_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    context = click.Context(group)
    assert set(group.list_commands(context)) == set(COMMANDS)
    for command in completed():
        for inner in (command, *command.commands):
            assert f".SS mrcbed {inner.path} " in text
            for option in inner.options:
                assert option.names[-1] in text, (inner.path, option.names)


def test_a_line_is_not_taken_for_a_request() -> None:
    assert escaped(".SH x\n'y\\n") == "\\&.SH x\n\\&'y\\en"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint() -> None:
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(PAGE)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "mrcbed denylist" in done.stdout
