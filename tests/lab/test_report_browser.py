"""The page in a real browser without a network: by day and night, on a phone and on a desktop."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab.made_up import BITS, MANY, RECORD, costs, rows
from tests.lab.test_sequences_report import RECORD as COPY
from tests.lab.test_sequences_report import ROWS as COPY_ROWS
from tests.samples import mostly_slow

from posenc.lab.report.page import Page, Part

pytestmark = pytest.mark.browser
CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
PHONE, DESKTOP = 390, 1440  # pixels


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
    parts = [Part(rows(MANY), RECORD), Part(COPY_ROWS, COPY)]
    return Page(parts, [costs()]).write(tmp_path_factory.mktemp("page"))


def show(browser: Any, path: Path, width: int, scheme: str) -> None:
    """Look at a page, opened before if it was, and wait until its figures are drawn."""
    preference = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preference})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    if browser.current_url != path.as_uri():
        browser.get(path.as_uri())
    wait(browser, "document.documentElement.dataset.drawn === 'yes'")


def wait(browser: Any, condition: str) -> None:
    """Until a condition holds in the page; an error after a minute."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(f"return {condition}"))


def opacity(browser: Any, chart: str) -> dict[str, float]:
    """How bright each encoding is drawn in a figure."""
    return dict(
        browser.execute_script(
            "return Object.fromEntries([...document.querySelectorAll('#' + arguments[0] + ' .scatterlayer .trace')]"
            ".map(e => [(e.__data__[0].trace.meta || {}).spec, parseFloat(e.style.opacity || 1)]))",
            chart,
        )
    )


@pytest.mark.parametrize(("width", "scheme"), mostly_slow([(PHONE, "dark"), (DESKTOP, "light")], (PHONE, "dark")))
def test_everything_is_drawn_and_nothing_sticks_out(browser: Any, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    messages = [entry["message"] for entry in browser.get_log("browser")]
    assert not messages
    charts = browser.execute_script("return report.charts.map(chart => chart.id)")
    assert len(charts) == 9
    for chart in charts:
        count = (
            "return document.querySelectorAll('#' + arguments[0] + ' svg .trace, #' + arguments[0] + ' svg .hm').length"
        )
        assert browser.execute_script(count, chart) > 0, chart
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    links = browser.execute_script("return document.querySelectorAll('figure a.data').length")
    assert links == len(charts)
    tables = browser.execute_script("return document.querySelectorAll('table.numbers').length")
    assert browser.execute_script("return document.querySelectorAll('a.data').length") == links + tables
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert not [name for name in loaded if name.startswith("http")]


@pytest.mark.slow
def test_when_night_falls_page_and_figures_turn_dark(browser: Any, page: Path) -> None:
    brightness = (
        "(element, key) => getComputedStyle(element)[key].match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    paper = f"({brightness})(document.body, 'backgroundColor')"
    axis = f"({brightness})(document.querySelector('#text-by-length .xtick text'), 'fill')"
    show(browser, page, DESKTOP, "light")
    wait(browser, f"{paper} > 700 && {axis} < 200")
    show(browser, page, DESKTOP, "dark")
    wait(browser, f"{paper} < 150 && {axis} > 600")


def test_names_stand_at_the_ends_on_a_desktop_only(browser: Any, page: Path) -> None:
    count = "document.querySelectorAll('#text-by-length .annotation-text').length"
    names = "return [...document.querySelectorAll('#text-by-length .annotation-text')].map(text => text.textContent)"
    show(browser, page, DESKTOP, "light")
    wait(browser, f"{count} > 2")
    assert set(browser.execute_script(names)) == {*MANY, "zlib -9", "lzma"} - {"learned"}
    show(browser, page, PHONE, "light")
    wait(browser, f"{count} === 2")
    assert set(browser.execute_script(names)) == {"zlib -9", "lzma"}


def test_a_click_isolates_an_encoding_everywhere(browser: Any, page: Path) -> None:
    show(browser, page, DESKTOP, "light")
    browser.execute_script("document.querySelector('#text-glance .chip[data-spec=rope]').click()")
    for chart in ("text-by-length", "text-by-position", "text-ranking", "cost-time"):
        bright = {spec for spec, value in opacity(browser, chart).items() if value == 1}
        assert bright - {"null", None} == {"rope"}, chart
    faded = "return [...document.querySelectorAll('#text-results tr.faded')].map(row => row.dataset.spec)"
    assert set(browser.execute_script(faded)) == set(MANY) - {"rope"}
    assert browser.execute_script("return document.querySelector('.picked span').textContent") == "rope"
    browser.execute_script("document.querySelector('.picked button').click()")
    assert set(opacity(browser, "text-by-length").values()) == {1}
    assert not browser.execute_script(faded)


def test_views_change_what_is_shown_and_downloaded(browser: Any, page: Path) -> None:
    show(browser, page, DESKTOP, "light")
    csv = "return csv(report.charts.find(chart => chart.id === arguments[0]))"
    lines = browser.execute_script(csv, "text-by-length")
    assert lines[0] == ["series", "bytes of text that the model reads", "bits per byte", "lowest seed", "highest seed"]
    assert len(lines) == 1 + 3 * len(MANY)
    last = browser.execute_script(csv, "text-ranking")
    browser.execute_script("document.querySelector('#text-ranks .views button:last-child').click()")
    assert browser.execute_script(csv, "text-ranking") != last
    pairs = browser.execute_script(csv, "text-pairs")
    assert pairs[0][-2:] == ["difference, bits", "p, adjusted"]
    click = (
        "const link = document.querySelector('figure a.data'); link.addEventListener('click', e => e.preventDefault());"
        "link.click(); return fetch(link.href).then(answer => answer.text()).then(text => [link.download, text]);"
    )
    browser.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1},
    )
    name, text = browser.execute_script(click)
    assert name == "text-ranking.csv"
    assert text.splitlines()[0] == "series,rank,y,mean,low,high"


def test_tables_are_sorted_and_searched(browser: Any, page: Path) -> None:
    show(browser, page, DESKTOP, "light")
    order = "return [...document.querySelectorAll('#text-results tbody tr:not([hidden])')].map(row => row.dataset.spec)"
    head = "document.querySelectorAll('#text-results th')[arguments[0]].click()"
    heads = browser.execute_script(
        "return [...document.querySelectorAll('#text-results th')].map(th => th.textContent)"
    )
    browser.execute_script(head, heads.index("16×"))
    found = browser.execute_script(order)
    assert found[:2] == ["fox", "alibi"]
    assert found[-1] == "learned"
    browser.execute_script(head, heads.index("16×"))
    assert browser.execute_script(order)[0] == "sinusoidal"
    assert browser.execute_script(order)[-1] == "learned", "what has no number is last both ways"
    search = (
        "const box = document.querySelector('#text-numbers .search'); box.value = 'ROPE';"
        "box.dispatchEvent(new Event('input'));"
    )
    browser.execute_script(search)
    assert set(browser.execute_script(order)) == {"rope", "rope+window"}


@pytest.mark.slow
def test_few_encodings_have_a_legend_of_names(browser: Any, tmp_path: Path) -> None:
    show(browser, Page([Part(rows(BITS), RECORD)]).write(tmp_path), PHONE, "light")
    chips = "return [...document.querySelectorAll('#text-length .legend > .chip')].map(chip => chip.dataset.spec)"
    assert set(browser.execute_script(chips)) == set(BITS)
