"""The page of the explorer in a browser without a network, for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posenc.explorer import page
from tests.chromium import chromium
from tests.hf.checkpoints import CHECKPOINTS

ARGUMENTS: dict[str, dict[str, Any]] = {
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
    for name, config in ARGUMENTS.items():
        (base / name).mkdir()
        (base / name / "config.json").write_text(json.dumps(config))
    path = base / "explorer.html"
    path.write_text(page([base / name for name in ARGUMENTS]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    for driver in chromium():
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver
