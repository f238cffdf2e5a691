"""Configs that `posenc extend --config-only` and `posenc convert` write, opened by transformers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from posenc import RoPE
from posenc.frequencies import Llama3, PositionInterpolation, Proportional, YaRN
from posenc.hf import convert_config, extend_config
from tests.golden import configs
from tests.hf.extend.ten_models import PUBLISHED, TEN, Extended

pytest.importorskip("transformers")

import transformers

from tests.hf.transformers_models import model_of, transformers_frequencies

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
GEMMA_4 = nn.Sequential(Proportional(0.25), PositionInterpolation(2.0))
INTENDED = {  # by kind of layers, the rotation of the extended model, written out by hand
    "Qwen2.5-7B-Instruct": {"all": RoPE(128, base=1e6, scaling=YaRN(4.0, original_length=32768))},
    "Qwen3-8B": {"all": RoPE(128, base=1e6, scaling=YaRN(4.0, original_length=32768))},
    "Qwen3.5-27B": {"all": RoPE(256, base=1e7, rotary_dim=64, scaling=YaRN(4.0, original_length=262144))},
    "Qwen3-VL": {"all": RoPE(128, base=5e6, scaling=YaRN(3.0, original_length=262144))},
    "gpt-oss": {"all": RoPE(64, base=1.5e5, scaling=YaRN(64.0, original_length=4096, truncate=False))},
    "Gemma 4": {"full_attention": RoPE(512, base=1e6, scaling=GEMMA_4),
                "sliding_attention": RoPE(256, base=1e4)},
    "EXAONE 4": {"all": RoPE(128, base=1e6, scaling=Llama3(16.0, original_length=8192))},
    "DeepSeek-V3": {"all": RoPE(64, base=1e4, scaling=YaRN(80.0, original_length=4096, attention_factor=1.0))},
    "Llama 3.1": {"all": RoPE(128, base=5e5, scaling=Llama3(16.0, original_length=8192))},
    "Gemma 3 1B": {"full_attention": RoPE(256, base=1e6, scaling=PositionInterpolation(8.0)),
                   "sliding_attention": RoPE(256, base=1e4)},
}  # fmt: skip


def opened(folder: Path) -> Any:
    """The text config that transformers reads from a folder."""
    return transformers.AutoConfig.from_pretrained(folder).get_text_config()


@pytest.mark.parametrize("model", TEN, ids=lambda model: model.name)
def test_written_folders_rotate_as_intended(model: Extended, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(model.config, indent=2))
    extend_config(tmp_path / "m", model.length, out=tmp_path / "out")
    config = opened(tmp_path / "out")
    assert config.max_position_embeddings == model.length
    _, rotary, _ = model_of(config.model_type)
    module = rotary(config)
    intended = INTENDED[model.name]
    kinds = set(getattr(module, "layer_types", None) or ["all"])
    assert kinds == set(intended), "each kind of layers that transformers rotates is compared"
    for kind, rope in intended.items():
        theta, gain = transformers_frequencies(module, None, kind)
        spectrum = rope.spectrum()
        torch.testing.assert_close(theta.double(), spectrum.theta, rtol=2e-5, atol=0)
        assert gain == pytest.approx(float(spectrum.gain), rel=1e-6)


def meaning(config: dict[str, Any]) -> Any:
    """What transformers reads of the rotation; "type" repeats rope_type, and a share of 1 says nothing."""

    def simplified(block: Any) -> Any:
        if not isinstance(block, dict):
            return block
        return {
            key: simplified(value)
            for key, value in block.items()
            if key != "type" and (key, value) != ("partial_rotary_factor", 1.0)
        }

    copied = json.loads(json.dumps(config))
    return simplified(transformers.AutoConfig.for_model(**copied).get_text_config().to_dict().get("rope_parameters"))


@pytest.mark.parametrize("spelling", ["both", "v5"])
@pytest.mark.parametrize("model", PUBLISHED)
def test_converted_configs_are_read_alike(model: str, spelling: str) -> None:
    config = next(line["config"] for line in configs("published_configs") if line["model"] == model)
    try:
        before, converted = meaning(config), convert_config(config, spelling).config
    except (ValueError, KeyError) as error:  # transformers does not have the model type, or nothing can be converted
        pytest.skip(str(error)[:80])
    assert meaning(converted) == before
