"""The built site in a browser without a network: nothing is fetched, nothing sticks out, the search answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zensical", reason="needs the extra docs")

from guide.build import build

from tests.chromium import DESKTOP, SCREENS, chromium, set_screen

pytestmark = [pytest.mark.slow, pytest.mark.browser]
PAGES = (
    "index.html", "readme.html", "learn/06-rotation.html", "learn/11-pictures.html", "learn/12-comparing.html",
    "methods/yarn.html", "methods/stick-breaking.html", "methods/fox.html", "decision.html", "table.html",
    "models.html", "rope-vs-alibi-vs-t5.html", "learn/10-context-extension.html", "combinations.html",
    "quickstart.html", "pitfalls.html", "findings.html", "results/quick/table.html", "reference/posenc.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with warnings as errors, its links checked."""
    out = tmp_path_factory.mktemp("guide") / "site"
    build(out)
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium(performance="ALL")


def show(browser: Any, path: Path, width: int, scheme: str) -> None:
    """Open a page on a screen, as somebody who has chosen no colours yet."""
    set_screen(browser, width, scheme)
    browser.get(path.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.get(path.as_uri())


def requests(browser: Any) -> list[str]:
    """Addresses that pages have asked a network for, since the last call."""
    messages = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if url.startswith(("http", "ws"))]


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_pages_are_whole_on_every_screen_without_a_network(browser: Any, site: Path, width: int, scheme: str) -> None:
    for page in PAGES:
        show(browser, site / page, width, scheme)
        assert not browser.get_log("browser"), page
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g)")
        assert (sum(map(float, paper[:3])) > 600) == (scheme == "light"), page
    assert not requests(browser)


def test_formulas_and_drawings_are_drawn(browser: Any, site: Path) -> None:
    show(browser, site / "learn/06-rotation.html", DESKTOP, "light")
    sizes = "return [...document.querySelectorAll('math')].map(e => e.getBoundingClientRect().width)"
    widths = browser.execute_script(sizes)
    assert len(widths) > 20
    assert min(widths) > 3
    assert "$" not in browser.execute_script(
        "return [...document.querySelectorAll('article p')].map(e => e.innerText).join()"
    )
    assert browser.execute_script("return document.querySelectorAll('.drawing svg polyline').length") == 1


def test_the_table_is_sorted_by_a_click(browser: Any, site: Path) -> None:
    show(browser, site / "table.html", DESKTOP, "light")
    kinds = "return [...document.querySelectorAll('.properties tbody tr')].map(row => row.cells[2].innerText.trim())"
    for down in (False, True):
        browser.execute_script("document.querySelectorAll('.properties th')[2].click()")
        cells = browser.execute_script(kinds)
        assert cells == sorted(cells, reverse=down)
        assert len(set(cells)) > 3


def test_the_table_is_filtered_and_keeps_its_first_column_in_sight(browser: Any, site: Path) -> None:
    show(browser, site / "table.html", DESKTOP, "light")
    browser.find_element("css selector", ".filter input").send_keys("Relative BLOOM")
    shown = browser.execute_script(
        "return [...document.querySelectorAll('.properties tbody tr')].filter(row => row.offsetParent)"
        ".map(row => row.cells[0].innerText)"
    )
    assert shown == ["alibi"]
    assert browser.execute_script("return document.querySelector('.filter output').value").startswith("1 of ")
    left = "return Math.round(document.querySelector('.properties th').getBoundingClientRect().left)"
    second = left.replace("querySelector('.properties th')", "querySelectorAll('.properties th')[1]")
    before = [browser.execute_script(script) for script in (left, second)]
    browser.execute_script(
        "let box = document.querySelector('.properties table');"
        "while (box.scrollWidth <= box.clientWidth || getComputedStyle(box).overflowX === 'visible')"
        "  box = box.parentElement;"
        "box.scrollLeft = 400;"
    )
    assert browser.execute_script(second) == before[1] - 400
    assert 0 <= before[0] - browser.execute_script(left) <= 20, "no more than the padding of its frame"


def test_formulas_have_their_font(browser: Any, site: Path) -> None:
    show(browser, site / "learn/06-rotation.html", DESKTOP, "light")
    browser.execute_async_script("document.fonts.ready.then(arguments[0])")
    fonts = browser.execute_script("return [...document.fonts].map(font => [font.family, font.status])")
    assert fonts == [["STIX Two Math", "loaded"]]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("stick-breaking", "methods/stick-breaking.html"),
        ("rope", "methods/rope.html"),
        ("how to install", "install.html"),
        ("rope vs alibi", "rope-vs-alibi-vs-t5.html"),
        ("gpt2 longer context", "howto/longer-context-for-gpt2.html"),
        ("yarn factor 4 qwen3", "howto/yarn-factor.html"),
        ("extend llama to 128k", "howto/extend-qwen3-to-128k.html"),
        ("which models use alibi", "models.html"),
        ("long context", "extend.html"),
        ("packed sequences", "howto/packed-sequences.html"),
        ("llama-server context", "howto/llama-server-context.html"),
    ],
)
def test_the_search_answers_from_disk(browser: Any, site: Path, words: str, page: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    show(browser, site / "index.html", DESKTOP, "light")
    browser.find_element("css selector", ".md-search__button").click()
    time.sleep(1)
    ActionChains(browser).send_keys(words).perform()
    result = (
        "const all = []; const walk = root => { for (const e of root.querySelectorAll('*')) {"
        "if (e.shadowRoot) walk(e.shadowRoot); else if (e.tagName === 'A') all.push(e.href); } }; walk(document);"
        "return all.filter(url => url.includes('?h='))"
    )
    links: list[str] = []
    for _ in range(40):
        links = browser.execute_script(result)
        if links and page in links[0]:
            break
        time.sleep(0.25)
    assert page in links[0], links[:5]
    assert not requests(browser)
