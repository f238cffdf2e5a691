"""What holds for all tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import NoReturn

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a name such as org/model must not make a test ask the network

for kind in (torch.cuda, torch.xpu, torch.mtia):
    if not kind.is_available():  # torch.manual_seed would write down the stack for each, milliseconds in every test
        kind.manual_seed_all = lambda seed: None

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # several processes, each with a thread for every core, mostly wait for one another


REFERENCE = Path(__file__).parent / "reference"  # all of it is marked so, and reads whole families of transformers


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the tests of a marker that is left out."""
    return True if collection_path == REFERENCE and "not reference" in config.option.markexpr else None


def pytest_collection() -> None:
    """Nothing that is imported and collected is garbage."""
    gc.disable()


if torch.__version__ < "2.7":  # whose compiler breaks the graph at NamedTuple._replace, which whole graphs must not

    def skip(*args: object, **options: object) -> NoReturn:
        pytest.skip("whole graphs need a newer torch")

    torch.compile = torch.export.export = skip


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what stays for all tests: it would look through it hundreds of times."""
    gc.collect()
    gc.freeze()


def pytest_runtestloop() -> None:
    gc.enable()
