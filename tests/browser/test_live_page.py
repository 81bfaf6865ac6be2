"""A living fabric in a real browser: a cable is cut and mended by mouse and by keyboard, axe-core
finds nothing, its end is said."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.machine.slowness import patient
from tests.browser.conftest import SIZES, Page
from tests.browser.test_replay_page import AXE, VIOLATIONS

TREE = Path(__file__).resolve().parents[2]
CABLE = "p0-t0-0:p0-t1-1"
OVER = (
    "pair.rows.some((row) => row.links.some((link) => page.runs[0].header.links[link].name "
    f"=== '{CABLE}'))"
)
"""Whether a pair has a path over the cable."""
Open = Callable[..., Page]


class Up:
    """``mrcbed up tiny --world simulated``; ``url``: of its page."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "mrcbed", "up", "tiny", "--world", "simulated", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TREE)
        assert self.process.stdout is not None
        found = re.search(r"view: (\S+)", self.process.stdout.readline())
        assert found is not None
        self.url = found[1]

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(patient(20))


@pytest.fixture
def up() -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*options: str) -> Up:
        started.append(Up(*options))
        return started[-1]

    yield start
    for one in started:
        one.end()


def chosen(page: Page) -> None:
    """Choose the cable on its plane's card, by keyboard."""
    cable = page.driver.find_element("css selector", f'g.cable[aria-label^="{CABLE}"]')
    page.js("arguments[0].focus()", cable)
    cable.send_keys("\ue007")  # Enter
    page.until("document.querySelectorAll('.commands button').length === 2")


def dead(page: Page) -> str:
    return f"page.runs[0].deadAt('{CABLE}', page.runs[0].end)"


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_cable_is_cut_and_mended_and_the_all_reduce_goes_on(
    browser: Open, up: Callable[..., Up], by: str
) -> None:
    fabric = up("--view-control")
    page = browser(fabric.url, still=by == "keyboard")
    assert (
        page.js("return location.hash") == ""
        and page.js("return document.getElementById('headline').textContent")
        == "mrc: all cables work"
    )
    page.until("page.runs[0].steps[0].length > 0 && page.columns[0].pair")
    page.js(f"page.columns[0].setPair(page.runs[0].pairs.find((pair) => !{OVER}))")
    chosen(page)
    assert page.js(f"const pair = page.columns[0].pair; return {OVER}")
    for number, (what, broken) in enumerate(
        [("is cut", f"{CABLE} is broken"), ("is mended", "all cables work")]
    ):
        button = page.driver.find_elements("css selector", ".commands button")[number]
        if by == "mouse":
            page.js("arguments[0].scrollIntoView({block: 'center'})", button)
            button.click()
        else:
            button.send_keys("\ue007")
        page.until(f"document.getElementById('status').textContent === '{CABLE} {what}'")
        page.until(dead(page) if number == 0 else f"!{dead(page)}")
        page.until(f"document.getElementById('headline').textContent === 'mrc: {broken}'")
    page.until(
        "page.columns[0].pair.rows.some((row) => row.spans.some((span) => span.state === 'died'))"
    )
    steps = page.js("return page.runs[0].steps[0].length")
    page.until(f"page.runs[0].steps[0].length > {steps}")
    assert page.complaints() == []


def test_the_pair_that_a_fault_hits_is_shown_unless_the_reader_has_chosen_one(
    browser: Open, up: Callable[..., Up]
) -> None:
    page = browser(up("--view-control").url)
    page.until("page.runs[0].steps[0].length > 0 && page.columns[0].pair")
    for by_hand in (True, False):
        page.js(
            f"page.columns[0].setPair(page.runs[0].pairs.find((pair) => !{OVER})); "
            f"page.columns[0].byHand = {str(by_hand).lower()}"
        )
        page.js(f"living.command('cut', '{CABLE}')")
        page.until(dead(page))
        page.until("page.runs[0].effect(page.runs[0].begun().at(-1)).given.length > 0")
        page.until(
            f"(() => {{ const pair = page.columns[0].pair; return {OVER} === "
            f"{str(not by_hand).lower()}; }})()"
        )
        page.js(f"living.command('mend', '{CABLE}')")
        page.until(f"!{dead(page)}")
        page.until(
            "page.runs[0].pairs.every((pair) => pair.rows.every((row) => "
            "!OUT.has(page.runs[0].stateAt(row, page.runs[0].end))))"
        )


@pytest.mark.parametrize("size", list(SIZES))
def test_axe_finds_nothing_and_the_page_asks_its_server_alone(
    browser: Open, up: Callable[..., Up], size: str
) -> None:
    fabric = up("--view-control")
    page = browser(fabric.url, size)
    page.until("page.columns[0].pair")
    chosen(page)
    assert page.js("return document.documentElement.scrollWidth") <= SIZES[size][0]
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
    assert page.driver.execute_async_script(VIOLATIONS) == []
    origin = fabric.url.partition("#")[0]
    assert {
        request for request in page.requests() if not request.startswith(origin)
    } == set() and page.complaints() == []


def test_who_moves_the_slider_stays_there_until_they_follow_again(
    browser: Open, up: Callable[..., Up]
) -> None:
    page = browser(up("--view").url)
    page.until("page.runs[0].steps[0].length > 0")
    assert page.js("return living.control") is False
    page.driver.find_element("id", "slider").send_keys("\ue012")  # left
    assert page.driver.find_element("id", "follow").get_attribute("aria-pressed") == "false"
    t, end = page.js("return [page.t, page.runs[0].end]")
    page.until(f"page.runs[0].end > {end}")
    assert page.js("return page.t") == pytest.approx(t)
    # s, to play what is shown
    assert 5 < page.js("return (page.to - page.from) / page.perSecond") < 80
    page.driver.find_element("id", "follow").click()
    page.until(f"page.t > {t}")


def test_the_end_is_said_and_what_was_seen_stays(browser: Open, up: Callable[..., Up]) -> None:
    fabric = up("--view")
    page = browser(fabric.url)
    page.until("page.runs[0].steps[0].length > 0")
    assert fabric.end() == 0
    page.until("document.getElementById('status').textContent.includes('has ended')")
    assert page.js("return page.runs[0].steps[0].length") > 0
