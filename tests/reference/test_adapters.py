"""posenc in other projects' models: each example runs with the real package, and prints what it must."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.reference

ADAPTERS = Path(__file__).parents[2] / "examples" / "adapters"
LINES, TINY = 30, 1e-5
# What each needs besides torch, and what the numbers at the ends of its lines must be.
KNOWN: dict[str, tuple[str | None, list[Callable[[float], bool]]]] = {
    "lightning_training": ("lightning", [lambda loss: loss < 0.1]),
    "litgpt_gpt": ("litgpt", [lambda own: own < TINY, lambda cached: cached < TINY]),
    "nanogpt_block": (None, [lambda nope: nope < TINY, *[lambda other: other > TINY] * 3]),
    "timm_vit": ("timm", [lambda nope: nope < TINY, *[lambda other: other > TINY] * 2]),
    "trl_finetuning": ("trl", [lambda loss: loss < 6.0, lambda trained: trained == 1.0]),
    "x_transformers_decoder": ("x_transformers", [lambda own: own < TINY, lambda other: other > TINY]),
}


def test_every_adapter_is_run_and_short() -> None:
    files = sorted(ADAPTERS.glob("*.py"))
    assert [file.stem for file in files] == sorted(KNOWN)
    for file in files:
        assert len(file.read_text().splitlines()) <= LINES, file.name


@pytest.mark.parametrize("name", KNOWN)
def test_an_adapter_does_what_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    package, checks = KNOWN[name]
    if package is not None:
        pytest.importorskip(package)
    runpy.run_path(str(ADAPTERS / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr().out
    numbers = [
        float(text) for text in re.findall(r" (-?\d[\d.e+-]*)$", shown.replace("True", "1").replace("False", "0"), re.M)
    ]
    assert len(numbers) == len(checks), shown
    assert all(check(number) for check, number in zip(checks, numbers, strict=True)), shown
