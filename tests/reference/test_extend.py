"""Every family: its rotation is built again and measured, its folder opens in transformers alone, or it is refused."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM

from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.attach.scaling_methods import scaled_rope
from posenc.hf.extend.folder import with_both_versions
from posenc.hf.families import ROTARY
from tests.hf.attach.smallest import built, decoder, tokens

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
SAVED = (
    "llama", "mistral", "qwen2", "qwen3", "gpt_neox", "gemma2", "gemma3_text", "glm4", "olmo2", "smollm3",
    "deepseek_v3", "starcoder2", "falcon",
)  # fmt: skip
METHODS = ("pi", "ntk", "yarn", "llama3", "yarn+resonance", "dynamic_ntk")
LENGTH = 16  # of the smallest models


def test_the_rotation_of_every_family_is_replaced_or_refused() -> None:
    done = []
    for name in (name for name, family in ROTARY.items() if not family.not_compared):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = built(name)
                rotations = RotaryModules(model)
                far = rotations.long_range_ropes(1)  # no window is shorter
                ropes = {kind: scaled_rope(rope, "yarn", 4.0, LENGTH // 2) for kind, rope in far.items()}
                rotations.rebuild(rotations.config_with(ropes, LENGTH // 2, 2 * LENGTH))
            except (LookupError, ValueError):
                continue
        done.append(name)
    assert len(done) >= 80, done


@pytest.mark.parametrize("name", SAVED)
def test_folders_open_alone(name: str, tmp_path: Path) -> None:
    ids = tokens(count=24)
    for method in METHODS:
        model = decoder(name)
        rotations = RotaryModules(model)
        far = rotations.long_range_ropes(1)
        ropes = {kind: scaled_rope(rope, method, 2.0, LENGTH) for kind, rope in far.items()}
        rotations.rebuild(rotations.config_with(ropes, LENGTH, 2 * LENGTH))
        model.save_pretrained(tmp_path / method)
        config = tmp_path / method / "config.json"
        config.write_text(json.dumps(with_both_versions(json.loads(config.read_text()))))
        with torch.no_grad():
            equal = model.config._attn_implementation
            again = AutoModelForCausalLM.from_pretrained(tmp_path / method, attn_implementation=equal)
            torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
