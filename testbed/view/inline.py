"""Makes ``replay.html``: the frames of some runs in one file that needs no network, no server and
no root. Its Content-Security-Policy lets nothing be loaded, and only its own scripts run."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from testbed.results.manifest import Manifest
from testbed.results.reading import read
from testbed.view.read import first_of_each, read_frames, read_run

NAME = "replay.html"
LEVEL = 6  # of gzip: 9 takes three times as long for 8 % less
SCRIPTS = ("model.js", "charts.js", "planes.js", "column.js", "page.js")
LIVE_SCRIPT = "live.js"
_STATIC = Path(__file__).parent / "static"

Look = Callable[[str], tuple[str, str]]


def _static(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def packed(directory: Path, key: str, look: Look | None = None) -> str:
    """The same files give the same text: a line of JSON per frame, gzipped, in base64. Raises
    :class:`testbed.errors.UserError`."""
    run = read_run(directory, key)
    encoder, packer = msgspec.json.Encoder(), zlib.compressobj(LEVEL, wbits=31)
    parts = []
    for frame in read_frames(directory, run):
        if frame["f"] == "run" and look is not None:
            frame["colour"], frame["marker"] = look(run.transport)
        parts.append(packer.compress(encoder.encode(frame) + b"\n"))
    return base64.b64encode(b"".join(parts) + packer.flush()).decode()


def _page(title: str, data: str, scripts: Sequence[str], policy: str) -> tuple[str, str]:
    style, script = _static("view.css"), "\n".join(_static(name) for name in scripts)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri "
        f"'none'; form-action 'none'{policy}"
    )
    parts = {
        "csp": policy,
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": data,
    }
    # in one pass: a part may look like a mark
    return re.sub(r"{{(\w+)}}", lambda mark: parts[mark[1]], _static("view.html")), policy


def live_page(name: str) -> tuple[str, str]:
    return _page(
        f"{name}: live, mrcbed",
        "",
        (*SCRIPTS[:-1], LIVE_SCRIPT, SCRIPTS[-1]),
        "; connect-src 'self'",
    )


def write_replay(
    directory: Path, keys: Sequence[str] = (), look: Look | None = None, out: Path | None = None
) -> Path:
    """By default the page has one run of each transport. Raises
    :class:`testbed.errors.UserError`."""
    blocks = [
        '<script type="application/gzip" class="frames" '
        f'id="frames-{number}">{packed(directory, key, look)}</script>'
        for number, key in enumerate(keys or first_of_each(directory))
    ]
    page, _ = _page(f"{_name(directory)}: path by path, mrcbed", "\n".join(blocks), SCRIPTS, "")
    path = out if out is not None else directory / NAME
    path.write_text(page, encoding="utf-8")
    return path


def _name(directory: Path) -> str:
    path = directory / "manifest.json"
    return (read(path, Manifest).scenario.name if path.is_file() else "") or directory.name
