"""A real browser for the pages that a run leaves: Debian's chromium and its driver (`make browser`
installs them), without any network."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from scenarios.run.simulate import simulate
from scenarios.schema.scenario import load_scenario
from scenarios.show.replay_page import replay
from tests.scenarios.small import TEXT, undrawn
from tests.waiting import wait_until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
SIZES = {"desk": (1280, 800), "phone": (390, 844)}


def page_of(directory: Path, fabric: str | None, transports: list[str]) -> Path:
    """replay.html of a small simulated run: a cable dies for a while under steps that take longer
    than that."""
    out = directory / "out"
    out.mkdir()
    file = directory / "page.toml"
    changes = {
        '"40KiB"': '"400KiB"',
        'at = "10us"': 'at = "200us"',
        'for = "10us"': 'for = "100us"',
    }
    file.write_text(reduce(lambda text, change: text.replace(*change), changes.items(), TEXT))
    with undrawn():
        simulate(load_scenario(str(file), fabric=fabric, transports=transports, seeds=[1]), out)
    return replay(out)


@pytest.fixture(scope="session")
def chrome() -> Any:
    """selenium's module; no page is made where there is no browser to show it."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium and chromium-driver here: make browser installs them")
    return pytest.importorskip(
        "selenium.webdriver", reason="no selenium here: make browser installs it"
    )


@pytest.fixture(scope="session")
def page_file(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two transports on a small fabric."""
    return page_of(tmp_path_factory.mktemp("browser"), None, ["mrc", "roce-1p"])


@pytest.fixture(scope="session")
def wide_file(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MRC on 8 planes of 16 T1s: 128 paths between two hosts."""
    return page_of(tmp_path_factory.mktemp("wide"), "wide", ["mrc"])


class Page:
    """A page in a browser of a size and a colour scheme. ``requests``: what it asked for beside
    itself."""

    def __init__(self, driver: Any, where: Path | str) -> None:
        self.driver = driver
        self.url = where if isinstance(where, str) else where.as_uri()
        driver.get_log("performance")  # what the browser's own first page asked for
        driver.get(self.url)
        self.until("document.documentElement.dataset.ready === 'yes'")
        self.until("document.querySelector('.plot canvas').width > 100")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: str) -> None:
        """Wait for a condition in the page, at most 30 s of a quick machine."""
        wait_until(lambda: self.js(f"return Boolean({condition})"), condition, 30)

    @property
    def t(self) -> float:
        """The time of the player, ns."""
        return float(self.js("return page.t"))

    def complaints(self) -> list[str]:
        """What the browser's console has to say."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        sent = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        urls = [
            event["params"]["request"]["url"]
            for event in sent
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if url != self.url]


@pytest.fixture
def browser(chrome: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """``browser(file, size, dark)`` opens a page; it is closed after the test."""
    from selenium.webdriver.chrome.service import Service

    os.environ["SE_OFFLINE"] = "true"  # selenium looks for no driver on the net
    drivers: list[Any] = []

    def open_page(
        file: Path | str, size: str = "desk", dark: bool = False, still: bool = False
    ) -> Page:
        options = chrome.ChromeOptions()
        options.binary_location = CHROMIUM
        width, height = SIZES[size]
        for flag in [
            *FLAGS,
            f"--user-data-dir={tmp_path / f'profile{len(drivers)}'}",
            f"--window-size={width},{height}",
        ]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = chrome.Chrome(options=options, service=Service(DRIVER))
        drivers.append(driver)
        metrics = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": size == "phone",
        }
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": k, "value": v} for k, v in media.items()]},
        )
        return Page(driver, file)

    yield open_page
    for driver in drivers:
        driver.quit()
