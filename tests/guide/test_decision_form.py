"""The form of the decision page in a browser: the same sentences as Python's, state in the address, bad input named."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from guide.decision import RULES, rules_script
from guide.records import ROOT

from posenc.recommend import Needs, recommend
from posenc.recommend.needs import ALGORITHMIC, DECODERS, ENGINES, KINDS, MODELS, TASKS
from tests.chromium import PHONE, chromium, set_screen

pytestmark = pytest.mark.browser
PAGE = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<div id="recommend"></div><script src="{0}"></script><script src="{1}"></script>"""
NAMES = ("model", "kind", "task", "train_length", "length", "engine", "tune", "memory")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("form")
    (folder / RULES).write_text(rules_script(), encoding="utf-8")
    script = ROOT / "docs" / "assets" / "recommend.js"
    path = folder / "decision.html"
    path.write_text(PAGE.format(RULES, script.as_uri()), encoding="utf-8")
    return path


def random_needs(count: int) -> list[Needs]:
    """Possible needs, drawn at random."""
    draw, needs = random.Random(1), []
    while len(needs) < count:
        model, kind, task = draw.choice(MODELS), draw.choice(list(KINDS)), draw.choice(list(TASKS))
        if task in ALGORITHMIC and kind not in (*DECODERS, "algorithmic"):
            continue
        train_length = draw.choice((1, 64, 196, 1000, 4096, 8192, 32768))
        length = max(1, int(train_length * draw.choice((0.5, 1, 1.25, 2, 3, 4, 5.3, 32, 100))))
        tune = model == "checkpoint" and draw.random() < 0.5
        memory = draw.choice((None, 0.7, 1.0, 16.0, 123.456))
        needs.append(Needs(model, kind, task, train_length, length, draw.choice(ENGINES), tune, memory))
    return needs


def test_the_form_gives_the_sentences_of_python(browser: Any, page: Path) -> None:
    open_form(browser, page.as_uri())
    all_needs = random_needs(400)
    rows = [{name: getattr(needs, name) for name in NAMES} for needs in all_needs]
    answers = browser.execute_script("return arguments[0].map(posencRecommend.recommend)", rows)
    for needs, answer in zip(all_needs, answers, strict=True):
        expected = [{**asdict(s), "sources": list(s.sources)} for s in recommend(needs).sentences]
        assert answer == expected, needs


def open_form(browser: Any, address: str) -> None:
    """Load an address as a new document, not as an anchor of the open page, and wait for its form."""
    browser.get("about:blank")
    browser.get(address)
    ready = "return document.getElementById('recommend-kind') !== null"
    deadline = time.monotonic() + 30
    while not browser.execute_script(ready):
        assert time.monotonic() < deadline, "the form never appeared"
        time.sleep(0.05)


def set_value(browser: Any, name: str, value: str) -> None:
    browser.execute_script(
        "const input = document.getElementById('recommend-' + arguments[0]); input.value = arguments[1];"
        "input.dispatchEvent(new Event('input', {bubbles: true}));", name, value,
    )  # fmt: skip


def shown(browser: Any) -> str:
    text: str = browser.execute_script("return document.querySelector('.recommend-answer').innerText")
    return text


def test_an_answer_has_an_address_and_bad_input_a_message(browser: Any, page: Path) -> None:
    set_screen(browser, PHONE, "light")
    open_form(browser, page.as_uri())
    assert recommend(Needs(length=131072)).default in shown(browser)
    set_value(browser, "kind", "speech")
    assert recommend(Needs(kind="speech", length=131072)).default in shown(browser)
    address = browser.current_url
    assert "kind=speech" in address
    open_form(browser, address)
    assert "Moonshine" in shown(browser)
    browser.get(page.as_uri() + "#kind=nonsense&length=2048&train_length=2048")
    assert recommend(Needs(length=2048, train_length=2048)).default in shown(browser), "an unknown word is left out"
    for name, value in (("length", "0"), ("length", "1.5"), ("memory", "-1")):
        open_form(browser, page.as_uri())
        set_value(browser, name, value)
        assert "from 1" in shown(browser) or "above 0" in shown(browser)
    open_form(browser, page.as_uri() + "#kind=vision&task=sorting")
    assert "sorting" in shown(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE
    assert not [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
