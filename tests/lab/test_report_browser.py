"""The page in a real browser without a network: by day and night, on a telephone and on a desktop."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab.synthetic import TASK, TEXT, run_of
from tests.samples import mostly_slow

from posenc.lab.report.charts import draw_charts, run_charts
from posenc.lab.report.render import page as page_of
from posenc.lab.report.summary import named_tables

pytestmark = pytest.mark.browser
CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
PHONE, DESKTOP = 390, 1440  # pixels
SCREENS = [(width, scheme) for width in (PHONE, DESKTOP) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver (Debian: apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    few = {name: TEXT[name] for name in ("rope", "alibi", "rope+alibi")}
    runs = [run_of(few, seeds=2), run_of(TASK, task="passkey", seeds=3)]
    tables = named_tables([dataclasses.replace(run, curves=()) for run in runs])
    charts = {label: list(run_charts(*part)) for label, part in tables.items()}
    path = tmp_path_factory.mktemp("page") / "report.html"
    html = page_of(tables, charts, [], overview=list(draw_charts("runs", tables)))
    path.write_text(html, encoding="utf-8")
    return path


def show(browser: Any, path: Path, width: int, scheme: str) -> None:
    """Open a page on a screen."""
    preference = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preference})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(path.as_uri())


def brightness(browser: Any, selector: str, key: str) -> float:
    """From 0, black, to 765, white."""
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]].match(/[\\d.]+/g).slice(0, 3)"
    return sum(map(float, browser.execute_script(script, selector, key)))


@pytest.mark.parametrize(("width", "scheme"), mostly_slow(SCREENS, (PHONE, "dark"), (DESKTOP, "light")))
def test_all_is_seen_and_nothing_sticks_out(browser: Any, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    assert not browser.get_log("browser")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert not [name for name in loaded if name.startswith("http")]
    measured = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].filter(svg => svg.checkVisibility()).map(svg => "
        "[svg.getBoundingClientRect(), svg.querySelectorAll('path,line').length])"
    )
    assert len(measured) == 3, "all runs together, and two charts of the first; the others are behind a selector"
    assert all(box["left"] >= 0 and box["right"] <= width and marks > 9 for box, marks in measured)
    sizes = (
        "const scale = e => e.getScreenCTM ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1;"
        "return [...document.querySelectorAll('figure svg text, td')].filter(e => e.checkVisibility())"
        ".map(e => parseFloat(getComputedStyle(e).fontSize) * scale(e))"
    )
    assert min(browser.execute_script(sizes)) > 9.5, "names and numbers are legible"
    paper, ink = brightness(browser, "body", "backgroundColor"), brightness(browser, "figure svg text", "fill")
    assert (paper > 700 > 450 > ink) if scheme == "light" else (paper < 120 < 300 < ink)


def test_a_button_turns_day_into_night(browser: Any, page: Path) -> None:
    show(browser, page, DESKTOP, "light")
    for _ in range(2):
        before = brightness(browser, "body", "backgroundColor")
        browser.execute_script("document.getElementById('theme').click()")
        assert abs(brightness(browser, "body", "backgroundColor") - before) > 500
    assert brightness(browser, "body", "backgroundColor") > 700


def test_selectors_show_one_part_each_and_names_their_formulas(browser: Any, page: Path) -> None:
    show(browser, page, PHONE, "light")
    titles = "return [...document.querySelectorAll('#runs article')].filter(e => e.checkVisibility()).map(e => e.id)"
    assert browser.execute_script(titles) == ["run-1"]
    browser.execute_script("document.querySelectorAll('[data-of=runs] button')[1].click()")
    assert browser.execute_script(titles) == ["run-2"]
    parts = "return [...document.querySelectorAll('#details-2 > section')].map(e => e.checkVisibility())"
    browser.execute_script("document.querySelectorAll('[data-of=details-2] button')[1].click()")
    assert browser.execute_script(parts) == [False, True, False]
    for name in ("#run-2 .narrow svg a[href='#formula-cope']", "#run-2 td a[href='#formula-rope']"):
        browser.execute_script("document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click'))", name)
    browser.execute_script("location.hash = 'formula-rope'; dispatchEvent(new Event('hashchange'))")
    assert browser.execute_script("return document.getElementById('formula-rope').checkVisibility()")


def test_what_is_downloaded_holds_its_own_colours(browser: Any, page: Path) -> None:
    show(browser, page, DESKTOP, "dark")
    text = browser.execute_script(
        "let file; URL.createObjectURL = blob => { file = blob; return 'data:,'; };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.querySelector('a[data-svg]').dispatchEvent(new MouseEvent('click', {cancelable: true}));"
        "return file.text()"
    )
    assert text.startswith("<svg")
    assert "var(" not in text
    assert "rgb(230, 233, 236)" in text, "the ink of the night"
    link = "return document.querySelector('figcaption a[download]').href"
    assert browser.execute_script(link).startswith("data:text/csv;charset=utf-8,encoding,run,verdict")
    assert not browser.get_log("browser")
