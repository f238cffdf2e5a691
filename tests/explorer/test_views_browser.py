"""The views in a browser: drawn on a telephone and a desktop, by day and night, and used by the keyboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import DESKTOP, PHONE, SCREENS, set_screen
from tests.explorer.conftest import GIVEN
from tests.samples import mostly_slow

pytestmark = pytest.mark.browser
VIEWS = (
    "wavelengths", "hands", "biases", "scores", "content", "layers", "two-models", "precision", "results",
)  # fmt: skip
CHANGE = (
    "const control = arguments[0]; control.value = arguments[1];"
    "control.dispatchEvent(new Event('input', {bubbles: true}));"
)


def show(browser: Any, path: Path, width: int = DESKTOP, scheme: str = "light") -> None:
    """Open the page on a screen."""
    set_screen(browser, width, scheme)
    browser.get(path.as_uri())


def said(browser: Any, view: str) -> str:
    text: str = browser.execute_script("return document.querySelector(arguments[0]).textContent", f"#{view} .said")
    return text


@pytest.mark.parametrize(("width", "scheme"), mostly_slow(SCREENS, (PHONE, "dark"), (DESKTOP, "light")))
def test_every_view_is_visible_and_nothing_overflows(browser: Any, explorer: Path, width: int, scheme: str) -> None:
    show(browser, explorer, width, scheme)
    assert not browser.get_log("browser")
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert tuple(browser.execute_script("return Object.keys(page.views)")) == VIEWS
    for select in ("layers", "wavelengths"):  # every configuration is looked at, the broken one too
        keys = browser.execute_script(
            "return [...document.querySelector(arguments[0]).options].map(o => o.value)", f"#{select} select"
        )
        for key in keys:
            control = browser.execute_script("return document.querySelector(arguments[0])", f"#{select} select")
            browser.execute_script(CHANGE, control, key)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (select, key)
    assert not browser.get_log("browser")
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('section')].map(s => [s.id, s.querySelector('h2').textContent,"
        " s.querySelectorAll('figure svg *, figure .token').length,"
        " [...s.querySelectorAll('figure svg, input, select, textarea')].filter(e => e.checkVisibility())"
        "  .every(e => e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth)])"
    )
    for view, title, marks, inside in boxes:
        assert title.strip(), view
        assert marks > 3, view
        assert inside, view
    sizes = (
        "return [...document.querySelectorAll('figure text, td, small')].filter(e => e.checkVisibility())"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(browser.execute_script(sizes)) > 10
    ink = "return getComputedStyle(document.body)[arguments[0]].match(/\\d+/g).slice(0, 3).map(Number)"
    paper, letters = (sum(browser.execute_script(ink, key)) for key in ("backgroundColor", "color"))
    assert (paper > 700 and letters < 150) if scheme == "light" else (paper < 120 and letters > 600)


def test_every_control_has_a_name_and_takes_the_keyboard(browser: Any, explorer: Path) -> None:
    show(browser, explorer)
    nameless = browser.execute_script(
        "return [...document.querySelectorAll('input, select, textarea, button')]"
        ".filter(e => !(e.labels?.length && e.labels[0].textContent.trim()) && !e.textContent.trim()).length"
    )
    assert nameless == 0
    assert (
        browser.execute_script("return document.querySelectorAll('[tabindex]:not([tabindex=\"0\"], section)').length")
        == 0
    )
    for view in VIEWS[:5]:
        before = (
            said(browser, view),
            browser.execute_script("return document.querySelector(arguments[0]).innerHTML", f"#{view} figure"),
        )
        slider = browser.execute_script(
            "const all = [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility());"
            "all[0].focus(); return all[0]",
            f"#{view} input[type=range]",
        )
        slider.send_keys("\ue012\ue012\ue012")  # the arrow to the left
        after = (
            said(browser, view),
            browser.execute_script("return document.querySelector(arguments[0]).innerHTML", f"#{view} figure"),
        )
        assert before != after, f"{view}: the slider changes what is seen"
    assert not browser.get_log("browser")


def test_a_pasted_configuration_is_drawn_or_refused_in_words(browser: Any, explorer: Path) -> None:
    show(browser, explorer)
    select = browser.execute_script("return document.querySelector('#layers select')")
    browser.execute_script(CHANGE, select, "pasted")
    assert re.findall(r"\d+", said(browser, "layers"))[:2] == ["16", "0"], "layers and faults"
    area = browser.execute_script("return document.querySelector('#layers textarea')")
    for text, faults in (
        (json.dumps(GIVEN["gpt-oss"]), ["0"]),
        (json.dumps(GIVEN["broken"]), ["1"]),
        ("{", []),
        ("", []),
    ):
        browser.execute_script(CHANGE, area, text)
        assert re.findall(r"\d+", said(browser, "layers"))[:1] == faults
    assert "JSON" in browser.execute_script("return document.querySelector('#layers pre').textContent")
    assert not browser.get_log("browser")


def test_the_text_one_types_is_what_attention_reads(browser: Any, explorer: Path) -> None:
    show(browser, explorer)
    area = browser.execute_script("return document.querySelector('#content textarea')")
    browser.execute_script(CHANGE, area, "one two. three four. five")
    chips = browser.execute_script(
        "return [...document.querySelectorAll('#content .token')].map(e => e.children[1].textContent)"
    )
    assert chips == ["one", "two", ".", "three", "four", ".", "five"]
    counts = browser.execute_script(
        "return [...document.querySelectorAll('#content .token small')].map(e => e.textContent)"
    )
    assert counts == ["2.0", "2.0", "2.0", "1.0", "1.0", "1.0", "0.0"], "full stops, counted from the query back"
    browser.execute_script(CHANGE, area, "  ")
    assert said(browser, "content")
    assert not browser.get_log("browser")


def test_a_button_switches_to_dark_mode(browser: Any, explorer: Path) -> None:
    show(browser, explorer, scheme="light")
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(paper)
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(paper) != before
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(paper) == before
