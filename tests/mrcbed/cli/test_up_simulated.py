"""``mrcbed up --world simulated``: a living view without root and without a browser; its replay has
what the view showed."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from testbed.machine.slowness import patient
from testbed.view.read import first_of_each, read_frames, read_run
from tests.mrcbed.cli.conftest import Said
from tests.waiting import wait_until

TREE = Path(__file__).parents[3]
CABLE = "p0-t0-0:p0-t1-1"


def command(host: str, token: str, body: dict[str, str]) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(host, timeout=patient(20))
    headers = {
        "Authorization": f"Bearer {token}",
        "Origin": f"http://{host}",
        "Content-Type": "application/json",
    }
    connection.request("POST", "/command", json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_what_a_view_showed_is_what_its_replay_has(tmp_path: Path) -> None:
    words = ["up", "tiny", "--world", "simulated", "--view-control", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "mrcbed", *words], stdout=subprocess.PIPE, text=True, cwd=TREE
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"view: http://(\S+)/#(\S+)&(\S+)\n", process.stdout.readline())
        assert found is not None
        host, token, control = found.groups()
        reader = http.client.HTTPConnection(host, timeout=patient(20))

        def asked() -> bool:
            try:
                reader.request("GET", "/frames", headers={"Authorization": f"Bearer {token}"})
            except ConnectionError:  # the server is about to listen
                return False
            return True

        wait_until(asked, "no server listens")
        answer = reader.getresponse()
        shown: list[dict[str, Any]] = []

        def until(kind: str, **fields: Any) -> None:
            while not (shown and shown[-1]["f"] == kind and fields.items() <= shown[-1].items()):
                shown.append(json.loads(answer.readline())[1])

        until("step", ok=True)
        assert command(host, control, {"do": "cut", "link": CABLE}) == (200, {})
        until("fault", links=[CABLE], gone=False)
        until("path", state="died")
        assert command(host, control, {"do": "cut", "link": CABLE}) == (
            409,
            {"error": "it is cut already"},
        )
        assert command(host, control, {"do": "burn", "link": CABLE}) == (
            409,
            {"error": "a view can cut or mend a cable"},
        )
        status, refused = command(host, control, {"do": "cut", "link": "p0-t0-0:p0-t1-9"})
        assert (
            status == 409 and "p0-t0-0:p0-t1-9" in refused["error"] and "\n" not in refused["error"]
        )
        assert command(host, control, {"do": "mend", "link": CABLE}) == (200, {})
        until("fault", links=[CABLE], gone=True)
        until("path", state="back")
        process.send_signal(signal.SIGINT)
        assert process.wait(patient(20)) == 0
        rest = process.stdout.read()
    finally:
        process.kill()
        process.wait()
    assert f"replay: {tmp_path / 'out' / 'replay.html'}" in rest
    [key] = first_of_each(tmp_path / "out")
    replayed = Counter(
        json.dumps(frame, sort_keys=True)
        for frame in read_frames(tmp_path / "out", read_run(tmp_path / "out", key))
    )
    for frame in shown[2:]:  # after the greeting and the header, which has a colour besides
        replayed[json.dumps(frame, sort_keys=True)] -= 1
    assert min(replayed.values()) == 0 and len(shown) > 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--world simulated", "has no prompt: add --view"),
        ("--out x", "--out x keeps what a view showed: add --view"),
    ],
)
def test_bad_input_is_one_line(words: str, says: str, mrcbed: Said) -> None:
    assert says in mrcbed.refused("up", "tiny", *words.split())
