"""`posenc explain` on the config.json of a transformer of diffusers: what it says, without torch, and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import posenc_cli
from posenc.diffusion.models import MODELS, TRANSFORMERS
from posenc.hf.config.rope_config import read_rope
from posenc.hf.explanation.diffusion import diffusion_facts, diffusion_text
from posenc.hf.sources.load import load_any


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_defaults_of_each_class_are_the_presets(name: str) -> None:
    facts = diffusion_facts({"_class_name": name, "use_rotary_positional_embeddings": True})
    assert facts["preset"] in MODELS or not MODELS[TRANSFORMERS[name]].has_preset
    assert diffusion_text({"_class_name": name}).startswith(f"{name} (diffusers)")
    if facts["rotation"] is None or name in (
        "LuminaNextDiT2DModel",
        "CogView4Transformer2DModel",
        "GlmImageTransformer2DModel",
        "SanaVideoTransformer3DModel",
        "SanaWMTransformer3DModel",
        "SanaWMLTX2RefinerTransformer3DModel",
        "Cosmos3OmniTransformer",
        "LTX2VideoTransformer3DModel",
        "Ideogram4Transformer2DModel",
    ):
        return
    released = MODELS[TRANSFORMERS[name]]
    assert [axis["channels"] for axis in facts["rotation"]["axes"]] == list(released.axes_dims)
    assert facts["findings"] == []


def test_a_model_type_or_another_layout_next_to_the_class() -> None:
    """Wan's own files have model_type "i2v"; LTX-2's say rope_type "split", pairs of halves within each head."""
    wan = {"_class_name": "WanTransformer3DModel", "model_type": "i2v", "num_attention_heads": 12,
           "attention_head_dim": 128}  # fmt: skip
    facts = diffusion_facts(wan)
    assert (facts["preset"], [axis["channels"] for axis in facts["rotation"]["axes"]]) == ("wan", [44, 42, 42])
    ltx = {"_class_name": "LTX2VideoTransformer3DModel", "num_attention_heads": 32, "attention_head_dim": 128}
    layouts = {rope_type: diffusion_facts({**ltx, "rope_type": rope_type})["rotation"]["layout"]
               for rope_type in ("split", "interleaved")}  # fmt: skip
    assert layouts == {"split": "half", "interleaved": "interleaved"}


FLUX = {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 40]}


def pipeline(folder: Path, **parts: Any) -> Path:
    """A pipeline as diffusers saves it: an index, and a folder for each part."""
    index: dict[str, Any] = {"_class_name": "Pipeline", "_diffusers_version": "0.42.0", "image_encoder": [None, None]}
    for name, config in parts.items():
        index[name] = ["diffusers", config["_class_name"]]
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def test_a_pipeline_is_read_by_its_transformer_without_torch(tmp_path: Path) -> None:
    pipeline(tmp_path, vae={"_class_name": "AutoencoderKL"}, transformer=FLUX)
    assert load_any(tmp_path) == (FLUX, {})
    words = [sys.executable, "-X", "importtime", "-m", "posenc", "explain", str(tmp_path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "posenc.hf.explanation.diffusion" in imported
    assert not {"torch", "transformers", "diffusers", "huggingface_hub"} & imported
    assert "fault: the axes have 112 channels in all, a head has 128" in done.stdout
    (tmp_path / "model_index.json").unlink()
    assert load_any(tmp_path) == (FLUX, {})  # a download of the transformer alone


def test_a_pipeline_of_several_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wan = {"_class_name": "WanTransformer3DModel", "patch_size": [1, 2, 2]}
    other = {**wan, "attention_head_dim": 64}
    pipeline(
        tmp_path, transformer_2={**wan, "in_channels": 36}, transformer=wan, vae={"_class_name": "AutoencoderKLWan"}
    )
    assert posenc_cli.run(["explain", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("\ntransformer_2: the same\n")
    (tmp_path / "transformer_2" / "config.json").write_text(json.dumps(other))
    assert posenc_cli.run(["explain", str(tmp_path)]) == 0
    assert "transformer_2: different; posenc explain FOLDER/transformer_2 shows it" in capsys.readouterr().out
    assert posenc_cli.run(["explain", str(tmp_path / "transformer_2"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rotation"]["axes"][0]["channels"] == 24


def test_pipelines_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unet = pipeline(tmp_path / "sdxl", unet={"_class_name": "UNet2DConditionModel"}, vae={"_class_name": "VAE"})
    with pytest.raises(ValueError, match=r"names no transformer, whose positions could be read: unet, vae"):
        load_any(unet)
    flux = pipeline(tmp_path / "flux", transformer=FLUX)
    with pytest.raises(ValueError, match=r"is a pipeline of diffusers \(model_index.json\)"):
        read_rope(flux)
    for command in (
        ["recommend", "--model", "checkpoint"], ["doctor"], ["serve-flags"],
        ["extend", "--length", "8192", "--out", "x"],
        ["extend", "--length", "8192", "--config-only"], ["evaluate"],
    ):  # fmt: skip
        for folder in (flux, flux / "transformer"):
            assert posenc_cli.run([*command, str(folder)]) == 2
            told = capsys.readouterr().err
            assert "from posenc.diffusion import attach, dype" in told
            assert "attach(pipeline.transformer, dype())" in told
            assert "posenc explain" in told
    (flux / "transformer" / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no transformer/config.json, which model_index.json names"):
        load_any(flux)
    (flux / "model_index.json").write_text("[]")
    with pytest.raises(ValueError, match="must hold a JSON object"):
        load_any(flux)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="_class_name must be one of"):
        diffusion_facts({"_class_name": "UNet2DConditionModel"})
    with pytest.raises(ValueError, match="channels must be even"):
        diffusion_facts({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [15, 57, 56]})
    with pytest.raises(ValueError, match=r"each coordinate of this pipeline's positions \(none, rows, columns, text\)"):
        diffusion_facts({"_class_name": "Flux2Transformer2DModel", "axes_dims_rope": [8, 12, 12]})
    with pytest.raises(ValueError, match="has no sizes of this class"):
        diffusion_facts({"_class_name": "WanTransformer3DModel", "attention_head_dim": "128"})
