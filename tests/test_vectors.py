"""The test vectors for engines: what the file says is what posenc reads, and a changed digit is found."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from posenc.hf import model_from_config, read_rope
from posenc.hf.config.rotation import text_rope

FOLDER = Path(__file__).parents[1] / "examples" / "vectors"
FILE = FOLDER / "rope-v1.json"
CASES = json.loads(FILE.read_text())["cases"]


def reader() -> Any:
    spec = importlib.util.spec_from_file_location("check_vectors", FOLDER / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_posenc_reads(config: dict[str, Any], length: int, kind: str) -> tuple[list[float], float]:
    rotation = read_rope(config).rotations[kind]
    assert rotation is not None
    spectrum = text_rope(rotation).spectrum(length)
    return spectrum.theta.tolist(), float(spectrum.gain)


def test_posenc_reads_every_case_as_the_file_says() -> None:
    assert reader().check(as_posenc_reads, tolerance=1e-14) == []


def test_layers_are_those_that_explain_tells() -> None:
    for case in CASES:
        layers = model_from_config(case["config"]).layers
        facts = [{"kind": layer.kind, "rotates": layer.spec is not None, "window": layer.window} for layer in layers]
        assert case["layers"] == facts, case["name"]
        rotations = read_rope(case["config"]).rotations
        assert {kind for kind, facts in case["kinds"].items() if facts} == {k for k, r in rotations.items() if r}


def test_a_reader_that_forgets_the_gain_is_found() -> None:
    off = reader().check(lambda *case: (as_posenc_reads(*case)[0], 1.0))
    with_gain = {
        case["name"]
        for case in CASES
        for expected in case["kinds"].values()
        if expected and abs(expected["gain"] - 1) > 1e-6
    }
    assert {name for name, _, _ in off} == with_gain
    assert all("yarn" in name or "longrope" in name for name in with_gain)


@pytest.mark.parametrize("key", ["cos", "sin"])
def test_a_changed_digit_of_cos_or_sin_is_found_by_the_reader(key: str, tmp_path: Path) -> None:
    content = json.loads(FILE.read_text())
    content["cases"][17]["kinds"]["all"][key][8][1] += 1e-9
    (tmp_path / "changed.json").write_text(json.dumps(content))
    ((name, _, gap),) = reader().check(path=tmp_path / "changed.json")
    assert name == content["cases"][17]["name"]
    assert gap == pytest.approx(1e-9, rel=0.1)


def test_any_changed_digit_is_found_by_the_checksum() -> None:
    checksum = (FOLDER / "rope-v1.json.sha256").read_text().split()[0]
    content = FILE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == checksum
    place = content.index(b'"inv_freq":[1.0,0.') + len(b'"inv_freq":[1.0,0.') + 9
    changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    assert hashlib.sha256(changed).hexdigest() != checksum


@pytest.mark.reference
def test_transformers_reads_every_case_as_the_file_says() -> None:
    from benchmarks.engines.transformers_rotary import rotary_module, transformers_frequencies
    from transformers import AutoConfig

    def as_transformers_reads(config: dict[str, Any], length: int, kind: str) -> tuple[list[float], float]:
        module = rotary_module(AutoConfig.for_model(**json.loads(json.dumps(config))))
        return transformers_frequencies(module, length, kind)

    assert reader().check(as_transformers_reads, tolerance=1e-6) == []
