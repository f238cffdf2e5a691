"""The page as a file, without a browser: its size, what it holds, and that it asks nobody for anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from guide.stage import _fitted as fitted

import posenc_cli
from posenc.explorer import page
from posenc.explorer.page import script
from posenc.hf import facts, preset, read_rope
from posenc.hf.config.rotation import text_rope
from tests.explorer.conftest import ARGUMENTS

STATIC = Path(posenc_cli.__file__).parents[1] / "posenc" / "explorer" / "static"
MOST = 3 * 2**20  # bytes


def data_of(text: str) -> dict[str, Any]:
    result = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert result is not None
    data: dict[str, Any] = json.loads(result.group(1))
    return data


def test_one_file_asks_nobody_for_anything(explorer: Path) -> None:
    text = explorer.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST
    addresses = set(re.findall(r"\b(?:https?:)?//[a-z][^\s\"'`]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of SVG, which nobody loads"
    assert not re.search(r"<(?:script|img|link|iframe)[^>]*\b(?:src|href)=|@import|url\(|fetch\(|import ", text)
    assert 'type="module"' not in text
    assert text.count("</script>") == 2, "no text of a configuration ends an element"


def test_every_script_and_style_is_in_the_page() -> None:
    text = page([])
    for file in STATIC.rglob("*.*"):
        assert file.name == "page.html" or file.read_text(encoding="utf-8") in text, file.name
    assert script().startswith('"use strict";')


def test_given_configurations_are_shown_as_posenc_reads_them(explorer: Path) -> None:
    models = {model["name"]: model for model in data_of(explorer.read_text(encoding="utf-8"))["models"]}
    assert list(models)[: len(ARGUMENTS)] == list(ARGUMENTS), "in the order that was given, before the examples"
    for name in ("smollm2", "llama-3.1", "gpt-oss", "qwen2-vl"):
        read, model = read_rope(ARGUMENTS[name]), models[name]
        assert len(model["layers"]) == ARGUMENTS[name]["num_hidden_layers"]
        assert [finding["text"] for finding in model["findings"]] == [finding.text for finding in read.findings]
        shown = model["kinds"]["all"]
        longest = facts(read)["layers"]["all"]["longest_length"]
        spectrum = text_rope(read.rope).spectrum(longest)
        assert shown["scaled"] == spectrum.theta.tolist()
        assert (shown["gain"], shown["longest"]) == (float(spectrum.gain), longest)
    kinds = models["gpt-oss"]["schedule"]
    sliding, full = (kinds[kind] for kind in models["gpt-oss"]["layers"][:2])
    assert "128" in sliding, "the window in tokens"
    assert "128" not in full
    broken = models["broken"]
    assert broken["kinds"] == {}
    assert "rope_scaling.factor" in broken["error"]


def test_a_link_with_a_view_opens_the_explorer_of_the_site(tmp_path: Path) -> None:
    chapter = Path(__file__).parents[2] / "docs" / "learn" / "01-order.md"
    text = "[this](../explorer.md#view=biases&heads=4), [about it](../explorer.md#links-to-a-view)"
    linked = "[this](../assets/explorer.html#view=biases&heads=4), [about it](../explorer.md#links-to-a-view)"
    assert fitted(text, chapter, tmp_path) == linked


def test_a_link_may_have_code_in_its_words_and_code_is_no_link(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "README.md"
    assert fitted("[the `doctor`](docs/doctor.md), `[b](docs/b.md)`", page, tmp_path) == (
        "[the `doctor`](doctor.md), `[b](docs/b.md)`"
    )
    assert fitted("[a run](docs/results/quick)", page, tmp_path) == "[a run](results/quick/table.md)"


def test_the_drawn_network_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = page([]), page([])
    assert torch.equal(before, torch.get_rng_state())
    assert first == second


def test_the_command_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "config.json", tmp_path / "page.html"
    config.write_text(json.dumps(preset("llama-3.2")))
    assert posenc_cli.run(["explore", str(config), "--out", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert data_of(out.read_text(encoding="utf-8"))["models"][0]["name"] == f"{tmp_path.name}/config.json"
    assert posenc_cli.run(["explore", str(tmp_path / "nowhere"), "--out", str(out)]) == 2
    assert "nowhere" in capsys.readouterr().err
