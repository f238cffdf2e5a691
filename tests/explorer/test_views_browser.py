"""The views in a browser: drawn on a telephone and a desktop, by day and night, linked by address, used by keyboard."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from posenc.explorer import page
from tests.chromium import DESKTOP, PHONE, SCREENS, set_screen
from tests.samples import mostly_slow

pytestmark = pytest.mark.browser
VIEWS = (
    "config", "wavelengths", "rotation", "biases", "logits", "content", "precision", "results",
)  # fmt: skip
CHANGE = (
    "const control = arguments[0]; control.value = arguments[1];"
    "control.dispatchEvent(new Event('input', {bubbles: true}));"
)
LEFT = "\ue012"  # a key


def show(browser: Any, path: Path, width: int = DESKTOP, scheme: str = "light", state: str = "") -> None:
    """Open the page on a screen, with a state in its address."""
    set_screen(browser, width, scheme)
    browser.get("about:blank")  # else a new state alone is no new page
    browser.get(path.as_uri() + state)


def text_of(browser: Any, view: str) -> str:
    text: str = browser.execute_script("return document.querySelector(arguments[0]).textContent", f"#{view} .said")
    return text


def address(browser: Any) -> dict[str, str]:
    """The state in the address, by key."""
    parts = browser.execute_script("return location.hash").removeprefix("#").split("&")
    return dict(part.split("=", 1) for part in parts)


def noted(browser: Any) -> str:
    text: str = browser.execute_script("const n = document.getElementById('note'); return n.hidden ? '' : n.innerText")
    return text


def visible(browser: Any) -> list[str]:
    ids: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('section')].filter(s => s.checkVisibility()).map(s => s.id)"
    )
    return ids


@pytest.mark.parametrize(("width", "scheme"), mostly_slow(SCREENS, (PHONE, "dark"), (DESKTOP, "light")))
def test_every_view_is_visible_and_nothing_overflows(browser: Any, explorer: Path, width: int, scheme: str) -> None:
    show(browser, explorer, width, scheme)
    assert not browser.get_log("browser")
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert tuple(browser.execute_script("return Object.keys(page.views)")) == VIEWS
    assert visible(browser) == ["config"], "the view that opens"
    for view in VIEWS:
        show(browser, explorer, width, scheme, f"#view={view}")
        assert visible(browser) == [view]
        keys = []
        if view in ("config", "wavelengths"):  # every configuration is looked at, the broken one too
            keys = browser.execute_script(
                "return [...document.querySelector(arguments[0]).options].map(o => o.value)", f"#{view} select"
            )
        for key in keys:
            control = browser.execute_script("return document.querySelector(arguments[0])", f"#{view} select")
            browser.execute_script(CHANGE, control, key)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (view, key)
        title, marks, inside, smallest = browser.execute_script(
            "const s = document.getElementById(arguments[0]); return [s.querySelector('h2').textContent,"
            " s.querySelectorAll('figure svg *, figure .token').length,"
            " [...s.querySelectorAll('figure svg, figure canvas, input, select, textarea, button')]"
            "  .filter(e => e.checkVisibility())"
            "  .every(e => e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth),"
            " Math.min(...[...s.querySelectorAll('figure text, td, small')].filter(e => e.checkVisibility())"
            "  .map(e => parseFloat(getComputedStyle(e).fontSize)))]",
            view,
        )
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, view
        assert title.strip(), view
        assert marks > 3, view
        assert inside, view
        assert smallest is None or smallest > 10, view
        assert not browser.get_log("browser"), view
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
    for view in ("wavelengths", "rotation", "biases", "logits", "content", "precision"):
        show(browser, explorer, state=f"#view={view}")
        picture = "return document.querySelector(arguments[0]).innerHTML"
        before = (text_of(browser, view), browser.execute_script(picture, f"#{view} figure"), address(browser))
        slider = browser.execute_script(
            "const all = [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility());"
            "all[0].focus(); return all[0]",
            f"#{view} input[type=range]",
        )
        slider.send_keys(LEFT * 3)
        time.sleep(0.3)  # the address follows
        after = (text_of(browser, view), browser.execute_script(picture, f"#{view} figure"), address(browser))
        assert before[:2] != after[:2], f"{view}: the slider changes what is seen"
        assert before[2] != after[2], f"{view}: and the address"
    assert not browser.get_log("browser")


def test_the_address_holds_every_control_and_a_pasted_link_restores_it(browser: Any, explorer: Path) -> None:
    link = "#view=wavelengths&model=own&scaling=pi&factor=3&trained=5000&base=1000000&channels=128"
    show(browser, explorer, state=link)
    assert browser.execute_script("return location.hash") == link, "values between a slider's steps are kept"
    assert noted(browser) == ""
    assert "within 5,000 tokens. In a sequence of 15,000" in text_of(browser, "wavelengths")
    for view in VIEWS:
        show(browser, explorer, state=f"#view={view}")
        shown = browser.execute_script(
            "const v = page.views[arguments[0]];"
            "return [...v.controls].filter(([, c]) => c.box.checkVisibility()).map(([key]) => key)",
            view,
        )
        assert list(address(browser)) == ["view", *shown], view
        boxes = browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).length",
            f"#{view} form .control :is(input, select, textarea), #{view} form fieldset",
        )
        assert boxes == len(shown), f"{view}: every control has a key"
        hash_before = browser.execute_script("return location.hash")
        numbers_before = text_of(browser, view)
        show(browser, explorer, state=hash_before)
        assert (browser.execute_script("return location.hash"), text_of(browser, view)) == (hash_before, numbers_before)
        assert noted(browser) == "", view
    text = '{"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "note": "50 % & más = +1, #2"}'
    show(browser, explorer, state="#view=config&config=pasted")
    area = browser.execute_script("return document.querySelector('#config textarea')")
    browser.execute_script(CHANGE, area, text)
    show(browser, explorer, state=browser.execute_script("return location.hash"))
    assert browser.execute_script("return document.querySelector('#config textarea').value") == text
    assert noted(browser) == ""
    assert not browser.get_log("browser")


def test_back_and_forward_restore_views_and_controls(browser: Any, explorer: Path) -> None:
    show(browser, explorer, state="#view=biases&encoding=alibi")
    select = browser.execute_script("return document.querySelector('#biases select')")
    browser.execute_script(CHANGE, select, "FIRE")
    heads = browser.execute_script("return document.querySelector('#biases input[type=range]')")
    heads.send_keys(LEFT * 3)
    time.sleep(0.3)
    assert (address(browser)["encoding"], address(browser)["heads"]) == ("fire", "5")
    browser.execute_script("[...document.querySelectorAll('nav a')].find(a => a.textContent === 'precision').click()")
    time.sleep(0.1)
    assert visible(browser) == ["precision"]
    assert browser.execute_script("return document.activeElement.id") == "precision", "Tab goes on in the view"
    seen = []
    for _ in range(3):
        browser.back()
        time.sleep(0.1)
        seen.append((visible(browser)[0], address(browser)["encoding"], address(browser)["heads"]))
    assert seen == [("biases", "fire", "5"), ("biases", "fire", "8"), ("biases", "alibi", "8")]
    assert browser.execute_script("return page.views.biases.controls.get('encoding').value") == "ALiBi"
    for _ in range(3):
        browser.forward()
        time.sleep(0.1)
    assert visible(browser) == ["precision"]
    browser.execute_script("[...document.querySelectorAll('nav a')].find(a => a.textContent === 'biases').click()")
    time.sleep(0.1)
    assert (address(browser)["encoding"], address(browser)["heads"]) == ("fire", "5"), "a view keeps its controls"
    assert not browser.get_log("browser")


def test_what_the_address_cannot_mean_is_left_out_and_noted(browser: Any, explorer: Path) -> None:
    wrong = {
        "#view=wavelengths&scaling=yam": ("scaling=yam", "yarn"),
        "#view=wavelengths&factor=1000": ("factor=1000", "1 × to 64 ×"),
        "#view=wavelengths&factor=": ("factor=", "number"),
        "#view=wavelengths&trained=99.5": ("trained=99.5", "whole number"),
        "#view=wavelengths&channels=65": ("channels=65", "steps of 8"),
        "#view=wavelengths&speed=3": ("speed", "factor"),
        "#view=wavelengths&model=%E0%A4%A": ("model", "percent-encoded"),
        "#view=logits&encodings=rope,alibaba": ("alibaba", "alibi"),
        "#view=spirals": ("view=spirals", "wavelengths"),
    }
    for state, (named, remedy) in wrong.items():
        show(browser, explorer, state=state)
        assert named in noted(browser), state
        assert remedy in noted(browser), state
        assert browser.execute_script("return document.getElementById('note').getAttribute('role')") == "alert"
        assert visible(browser) == [state.split("=")[1].split("&")[0] if "spirals" not in state else "config"]
    show(browser, explorer, state="#view=logits&encodings=rope,alibaba")
    assert address(browser)["encodings"] == "rope", "what it can mean is kept"
    browser.execute_script("location.hash = '#view=logits&encodings=t5'")
    time.sleep(0.1)
    assert noted(browser) == ""
    show(browser, explorer, state="#wavelengths")
    assert visible(browser) == ["wavelengths"], "an anchor alone names a view too"
    assert not browser.get_log("browser")


def test_links_of_the_guide_show_what_they_say(browser: Any, tmp_path: Path) -> None:
    site = tmp_path / "explorer.html"  # as the site has it: no config of a command line
    site.write_text(page([]), encoding="utf-8")
    docs = Path(__file__).parents[2] / "docs"
    link = re.compile(r"explorer\.md#(view=[^)\s]*)")
    links = {state: file for file in docs.rglob("*.md") for state in link.findall(file.read_text(encoding="utf-8"))}
    assert len(links) > 12
    for state, source in links.items():
        show(browser, site, state=f"#{state}")
        assert noted(browser) == "", (source, state)
        assert dict(part.split("=") for part in state.split("&")).items() <= address(browser).items(), (source, state)
    assert not browser.get_log("browser")
