"""Chromium for the tests that open a page, and a screen for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
PHONE, DESKTOP = 390, 1440  # pixels
SCREENS = [(width, scheme) for width in (PHONE, DESKTOP) for scheme in ("light", "dark")]


def chromium(**logs: str) -> Iterator[Any]:
    """A browser without a window, with these logs; the test is skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs Chromium and its driver (Debian: apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", **logs})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.execute_cdp_cmd("Network.enable", {})
    yield driver
    driver.quit()


def set_screen(browser: Any, width: int, scheme: str) -> None:
    """A telephone or a desktop whose user prefers light or dark."""
    preference = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preference})
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
