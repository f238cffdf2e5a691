"""The page of the explorer in a browser without a network, for all tests of this folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posenc.explorer import page
from tests.hf.checkpoints import CHECKPOINTS

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
DRIVER = shutil.which("chromedriver")
GIVEN: dict[str, dict[str, Any]] = {
    "smollm2": {
        "model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_hidden_layers": 30,
        "max_position_embeddings": 8192, "rope_theta": 100000,
    },
    "llama-3.1": {**CHECKPOINTS["llama-3.1-8b"][0], "num_hidden_layers": 32},
    "gpt-oss": {**CHECKPOINTS["gpt-oss-20b"][0], "num_hidden_layers": 24},
    "qwen2-vl": {**CHECKPOINTS["qwen2-vl-7b"][0], "num_hidden_layers": 28, "max_position_embeddings": 32768},
    "broken": {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "rope_scaling": {"type": "yarn", "factor": "4</script>"},
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with a folder for each configuration of `GIVEN`."""
    base = tmp_path_factory.mktemp("explorer")
    for name, config in GIVEN.items():
        (base / name).mkdir()
        (base / name / "config.json").write_text(json.dumps(config))
    path = base / "explorer.html"
    path.write_text(page([base / name for name in GIVEN]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
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
