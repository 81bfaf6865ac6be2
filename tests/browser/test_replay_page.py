"""replay.html in a real browser, from file://: no request, no complaint, mouse and keyboard, both
sizes, both colour schemes, axe-core."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import SIZES, Page

AXE = Path(__file__).parent / "axe" / "axe.min.js"
AXE_SHA256 = "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb"
"""Of axe.min.js of axe-core 4.10.3 in the npm registry (Deque Systems, MPL 2.0; LICENSE is beside
it)."""

Open = Callable[..., Page]
VIOLATIONS = """
const done = arguments[0];
axe.run().then((result) => done(result.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ")}`)));
"""  # noqa: E501


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", list(SIZES))
def test_it_opens_without_request_or_complaint_and_axe_finds_nothing(
    browser: Open, page_file: Path, size: str, dark: bool
) -> None:
    page = browser(page_file, size, dark)
    paper = page.js("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == dark
    assert page.js("return document.documentElement.scrollWidth") <= SIZES[size][0]
    for summary in page.driver.find_elements("css selector", "summary"):
        summary.send_keys("\ue007")  # Enter
    page.until(
        "document.querySelectorAll('details table').length === "
        "document.querySelectorAll('details').length"
    )
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256
    script = AXE.read_text(encoding="utf-8")
    # past the page's policy, which would refuse it
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": script})
    assert page.driver.execute_async_script(VIOLATIONS) == []
    assert page.complaints() == [] and page.requests() == []


def test_a_large_fabric_has_matrices_and_the_path_that_died_stands_out(
    browser: Open, wide_file: Path
) -> None:
    page = browser(wide_file)
    cells, lines = page.js(
        "return ['rect.cell', 'line.heat'].map((name) => document.querySelectorAll(name).length)"
    )
    assert cells == 2 * page.js("return page.runs[0].header.links.length") and lines == 0
    heights = page.js("""
        const {places} = stripRows(page.columns[0].pair);
        return [true, false].map((died) => places.filter(({row}) => (row.spans.length > 1) === died).map(({height}) => height));""")  # noqa: E501
    assert len(heights[0]) == 1 and len(heights[1]) == 127 and min(heights[0]) > 3 * max(heights[1])
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
    assert page.driver.execute_async_script(VIOLATIONS) == []
    assert page.complaints() == []


def test_it_says_at_first_glance_what_happened(browser: Open, page_file: Path) -> None:
    page = browser(page_file)
    headline = page.js("return document.getElementById('headline').textContent")
    assert headline.startswith("cable pulled: mrc ") and "roce-1p" in headline and "%" in headline
    stories = page.js(
        "return [...document.querySelectorAll('.story')].map((node) => node.textContent)"
    )
    assert "left 1 of" in stories[0] and "no sender leaves a path by itself" in stories[1]
    reasons = page.js(
        "return [...document.querySelectorAll('.events')].map((node) => node.textContent)"
    )
    assert (
        "assumed bad" in reasons[0]
        and "after the cut" in reasons[0]
        and "the network has re-routed around" in reasons[1]
    )
    boxes = page.js(
        "return [...document.querySelectorAll('.run')].map((node) => "
        "node.getBoundingClientRect().top)"
    )
    assert boxes[0] == boxes[1]  # side by side
    assert page.js("return page.columns.map((column) => column.pair.name)")[0].startswith("h")


def test_time_zero_is_the_fault_in_both_runs(browser: Open, page_file: Path) -> None:
    page = browser(page_file)
    begins, heads = page.js("""
        return [page.columns.map((column) => column.axis.x(column.run.begun()[0].t)),
                page.columns.map((column) => new DOMMatrix(column.plots[0].head.style.transform).m41)];""")  # noqa: E501
    assert (
        heads == pytest.approx(begins, abs=0.01)
        and begins[0] == pytest.approx(begins[1], abs=1)
        and page.t == 0
    )


def test_the_slider_by_mouse_and_keyboard(browser: Open, page_file: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    page = browser(page_file)
    slider = page.driver.find_element("id", "slider")
    ActionChains(page.driver).move_to_element_with_offset(
        slider, slider.size["width"] // 4, 0
    ).click().perform()
    by_mouse = page.t
    assert by_mouse > page.js("return page.from + 0.6 * (page.to - page.from)")
    spoken = page.js("return document.getElementById('live').textContent")
    assert "mrc: " in spoken and "after" in spoken
    slider.send_keys(Keys.ARROW_LEFT)
    assert page.t < by_mouse
    slider.send_keys(Keys.HOME)
    assert page.t == page.js("return page.from")
    slider.send_keys(Keys.END)
    assert page.t == page.js("return page.to")
    assert page.js(
        "return document.getElementById('slider').getAttribute('aria-valuetext')"
    ).endswith("after the fault")
    body = page.driver.find_element("css selector", "body")
    page.js("document.activeElement.blur()")
    body.send_keys("[")
    assert page.t < page.js("return page.to")
    plot = page.driver.find_element("css selector", ".plot")
    ActionChains(page.driver).move_to_element_with_offset(
        plot, -plot.size["width"] // 4, 0
    ).click().perform()
    assert page.t == pytest.approx(
        page.js("return page.from + 0.25 * (page.to - page.from)"),
        abs=page.js("return (page.to - page.from) / 50"),
    )


def test_space_plays_and_pauses(browser: Open, page_file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = browser(page_file)
    body = page.driver.find_element("css selector", "body")
    begun = page.t
    body.send_keys(Keys.SPACE)
    page.until(f"page.t > {begun} + 1000")
    assert page.js("return document.getElementById('play').textContent").endswith("Pause")
    body.send_keys(Keys.SPACE)
    stopped = page.t
    assert (
        not page.js("return page.playing")
        and page.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => "
            "done(page.t)));"
        )
        == stopped
    )


def test_reduced_motion_plays_in_few_pictures(browser: Open, page_file: Path) -> None:
    page = browser(page_file, still=True)
    page.js(
        "window.seen = 0; const show = page.show; page.show = (t) => { window.seen += 1; "
        "show.call(page, t); }; page.play();"
    )
    page.until("window.seen >= 2")
    pictures, passed = page.driver.execute_async_script("""
        const done = arguments[0], begun = performance.now(), first = window.seen;
        setTimeout(() => done([window.seen - first, performance.now() - begun]), 1200);""")
    assert pictures <= passed / 500 + 1


def test_cables_are_reached_and_chosen_by_keyboard(browser: Open, page_file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page = browser(page_file)
    stops = page.js(
        "return [...document.querySelectorAll('.clos')].map((node) => "
        "node.querySelectorAll('.cable[tabindex=\"0\"]').length)"
    )
    assert set(stops) == {1}
    cut = page.js(
        "return page.columns[0].run.linkIndex.get(page.columns[0].run.begun()[0].links[0])"
    )
    page.js(
        "page.columns[0].planes.cables[arguments[0]].node.parentNode.querySelector('[tabindex=\"0\"]').focus()",
        cut,
    )
    for _ in range(40):
        if page.js(
            "return document.activeElement === page.columns[0].planes.cables[arguments[0]].node",
            cut,
        ):
            break
        page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    name = page.js("return page.columns[0].run.header.links[arguments[0]].name", cut)
    assert page.driver.switch_to.active_element.accessible_name == name
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    told = page.js("return page.columns[0].detail.textContent")
    assert name in told and "down" in told and "Gb/s" in told
    assert page.driver.switch_to.active_element.get_attribute("aria-pressed") == "true"
    rows = page.js(
        "return "
        "[...page.columns[0].pathLabels.querySelectorAll('button[aria-pressed=\"true\"]')].map((node) "  # noqa: E501
        "=> node.textContent)"
    )
    assert len(rows) == 1  # of the shown pair, one path goes over that cable


def test_the_strip_shows_the_dead_path_in_its_colour_and_shape(
    browser: Open, page_file: Path
) -> None:
    """Pixels in the middle of the row of the path that died, and the same place in a row that
    lives."""
    page = browser(page_file)
    died, lives = page.js("""
        const column = page.columns[0], {places} = stripRows(column.pair), context = column.stripCanvas.getContext("2d");
        const hit = places.find(({row}) => row.spans.some((span) => span.state === "died"));
        const other = places.find(({row}) => row.spans.length === 1);
        const span = hit.row.spans.find((item) => item.state === "died"), next = hit.row.spans[hit.row.spans.indexOf(span) + 1];
        const x = column.axis.x((span.t + Math.min(next ? next.t : column.run.end, column.window[1])) / 2);
        return [hit, other].map((place) => [...context.getImageData(x, place.y + 5, 1, 1).data].slice(0, 3));""")  # noqa: E501
    assert died[0] > 200 and died[0] > died[2] + 80  # vermilion
    assert lives[2] >= lives[0]  # blue


def test_frames_may_come_one_by_one(browser: Open, page_file: Path) -> None:
    """As those of a living run will: later ones, and late ones, are on the page as if they had
    always been there."""
    page = browser(page_file)
    whole, parts = page.js("""
        const [run] = page.runs, header = run.header, name = header.links[0].name, pair = header.pairs[0];
        const path = (t, state) => ({f: "path", t, src: pair.src, dst: pair.dst, evs: [pair.evs[0][0]], state, why: state});
        const frames = [path(1, "died"), path(5, "probed"), path(9, "back"), {f: "rate", t: 2, ns: 2, host: 0, tx: [1], rx: [3]},
                        {f: "fault", t: 1, name: "n", fault: "link", on: name, phase: "begin", links: [name], gone: false, text: "n"}];
        const told = (order) => {
            const model = new RunModel(header);
            for (const number of order) model.take(frames[number]);
            return JSON.stringify([model.pairs[0].rows[0].spans, model.bins, model.deadAt(name, 3), model.begun().length]);
        };
        return [told([0, 1, 2, 3, 4]), told([4, 2, 3, 1, 0])];""")  # noqa: E501
    assert whole == parts and "back" in whole


def test_an_open_page_shows_frames_that_come_later(browser: Open, page_file: Path) -> None:
    page = browser(page_file)
    words = page.js("return page.columns[0].stripNow.textContent")
    assert "in use · window " in words and "RTT" in words
    page.js("""
        const {run, pair} = page.columns[0], {links} = run.header, t = run.begun()[0].t - 1000;
        const why = "EV 0:0 denied by a late frame";
        page.take({f: "path", t, src: pair.src, dst: pair.dst, evs: [pair.rows[0].ev], state: "denied", why}, "frames-0");
        page.take({f: "fault", t: run.end + 9e5, name: "a second fault", fault: "link", on: links[0].name, phase: "begin", gone: false,
                   links: [links[0].name], text: "a second fault begins"}, "frames-0");""")  # noqa: E501
    page.until("page.columns[0].stripNow.textContent.includes('1 denied')")
    page.until("document.getElementById('window').textContent.includes('a second fault')")
    told = page.js(
        "return [page.columns[0].events.textContent, document.getElementById('window').textContent]"
    )
    assert "EV 0:0 denied by a late frame" in told[0] and "a second fault" in told[1]
    assert page.complaints() == []


def test_a_page_of_another_format_says_so(browser: Open, page_file: Path, tmp_path: Path) -> None:
    import base64
    import gzip
    import re

    def newer(match: re.Match[str]) -> str:
        frames = gzip.decompress(base64.b64decode(match[2])).replace(b'"v":1', b'"v":2', 1)
        return f"{match[1]}{base64.b64encode(gzip.compress(frames)).decode()}</script>"

    text = re.sub(
        r'(<script type="application/gzip"[^>]*>)([^<]*)</script>', newer, page_file.read_text()
    )
    (tmp_path / "newer.html").write_text(text)
    page = browser(page_file)
    page.driver.get((tmp_path / "newer.html").as_uri())
    page.until("document.querySelector('.problem')")
    assert "frames of format 2: this page reads 1" in page.js(
        "return document.querySelector('.problem').textContent"
    )
