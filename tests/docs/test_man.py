"""The man page is that of the commands, and man can read it."""

from __future__ import annotations

import shutil
import subprocess

import click
import pytest

from docs.tools.man import PAGE, escaped, page
from tests.mrcbed.cli.test_options import EVERY


def test_the_page_is_that_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: make man"


def test_every_command_and_option_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    for name, _, param in EVERY:
        path, option = name.rsplit(" ", 1)
        if path != "iperf3":  # the prompt's
            assert f".SS mrcbed {path} " in text
            assert not isinstance(param, click.Option) or param.hidden or option in text, name


def test_a_line_is_not_taken_for_a_request() -> None:
    assert escaped(".SH x\n'y\\n") == "\\&.SH x\n\\&'y\\en"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_no_complaint() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-P-cbou", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "mrcbed fabric denylist" in done.stdout
