"""`posenc explain` on the config.json of a transformer of diffusers: what it says, without torch, and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posenc.hf.explanation.diffusion import diffusion_config, diffusion_facts, diffusion_text
from posenc.hf.families.diffusion import DIFFUSION
from posenc.presets import MODELS
from posenc.rotary._conventions import DIFFUSION_MODELS


@pytest.mark.parametrize("name", DIFFUSION)
def test_defaults_of_each_class_are_the_presets(name: str) -> None:
    facts = diffusion_facts({"_class_name": name, "use_rotary_positional_embeddings": True})
    assert facts["preset"] in MODELS
    assert diffusion_text({"_class_name": name}).startswith(f"{name} (diffusers)")
    if facts["rotation"] is None or name in (
        "LuminaNextDiT2DModel",
        "CogView4Transformer2DModel",
        "GlmImageTransformer2DModel",
    ):
        return
    released = DIFFUSION_MODELS[facts["preset"]]
    assert [axis["channels"] for axis in facts["rotation"]["axes"]] == list(released.axes_dims)
    assert facts["findings"] == []


def test_a_pipeline_is_read_by_its_transformer_without_torch(tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    config = {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 40]}
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(config))
    assert diffusion_config(tmp_path) == config
    words = [sys.executable, "-X", "importtime", "-m", "posenc", "explain", str(tmp_path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "posenc.hf.explanation.diffusion" in imported
    assert not {"torch", "transformers", "diffusers"} & imported
    assert "fault: the axes have 112 channels in all, a head has 128" in done.stdout


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="_class_name must be one of"):
        diffusion_facts({"_class_name": "UNet2DConditionModel"})
    with pytest.raises(ValueError, match="channels must be even"):
        diffusion_facts({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [15, 57, 56]})
    with pytest.raises(ValueError, match="has no sizes of this class"):
        diffusion_facts({"_class_name": "WanTransformer3DModel", "attention_head_dim": "128"})
