"""Whether the settings that `posenc serve --for` prints make a trainer's own code rotate as the config says.

    pip install --no-deps megatron-core==0.16.1      # into an environment with torch and numpy
    python -m benchmarks.engines.trainers            # writes results/trainers.json

Megatron: the printed arguments go to the classes that its GPTModel hands them to (models/gpt/gpt_model.py), on a CPU;
cos and sin of 1,024 positions, with YaRN's gain, are compared with posenc's in float64. No model is built and nothing
is trained.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from posenc.hf import read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.serving.lines import Serving, trainer_line

RECORD = Path(__file__).parents[1] / "results" / "trainers.json"
LENGTH = 4 * 8192
COMPARED = 1024  # tokens: beyond, float32 angles alone differ by more than 6e-5
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
BLOCKS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "partial": {"rope_type": "default", "partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192},
    "yarn": YARN,
    "yarn: mscale and mscale_all_dim": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn: attention_factor": {**YARN, "attention_factor": 1.3},
    "yarn: betas": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn: truncate false": {**YARN, "truncate": False},
}  # fmt: skip


def config_of(block: dict[str, Any]) -> dict[str, Any]:
    """A config of one head width with a block in version 5's spelling."""
    model_type = "glm4" if "partial_rotary_factor" in block else "llama"
    return {"model_type": model_type, "head_dim": 128, "hidden_size": 512, "num_attention_heads": 4,
            "max_position_embeddings": LENGTH, "rope_parameters": {"rope_theta": 500000.0, **block}}  # fmt: skip


def megatron_table(arguments: dict[str, Any]) -> tuple[torch.Tensor, float]:
    """Angles by position and channel, and the gain, from the arguments of the line."""
    from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
    from megatron.core.models.common.embeddings.yarn_rotary_pos_embedding import YarnRotaryEmbedding

    common = {"kv_channels": 128, "rotary_percent": arguments["rotary_percent"], "use_cpu_initialization": True,
              "rotary_base": arguments["rotary_base"]}  # fmt: skip
    with mock.patch("torch.cuda.current_device", return_value="cpu"):
        if arguments["position_embedding_type"] == "rope":
            rope = RotaryEmbedding(
                **common, seq_len_interpolation_factor=arguments.get("seq_len_interpolation_factor"),
                rope_scaling=arguments.get("rope_scaling", False),
                rope_scaling_factor=arguments.get("rope_scaling_factor", 8.0),
            )  # fmt: skip
            return rope(LENGTH), 1.0
        config = arguments["config"]
        yarn = YarnRotaryEmbedding(
            **common, scaling_factor=config["yarn_rotary_scaling_factor"],
            original_max_position_embeddings=config["yarn_original_max_position_embeddings"],
            beta_fast=config["yarn_beta_fast"], beta_slow=config["yarn_beta_slow"], mscale=config["yarn_mscale"],
            mscale_all_dim=config["yarn_mscale_all_dim"],
            correction_range_round_to_int=config["yarn_correction_range_round_to_int"],
        )  # fmt: skip
        angles, gain = yarn(LENGTH)
    return angles, float(gain)


def gap_in_megatron(block: dict[str, Any]) -> float | str:
    """The largest difference in cos and sin, or why there is no line."""
    config = read_rope(config_of(block))
    line = trainer_line(Serving(config.facts, LENGTH), "megatron")
    if not line.command:
        return line.text
    angles, gain = megatron_table(eval(line.command, {"GPTModel": dict}))
    spectrum = text_rope(config.rotation).spectrum()
    theta = torch.tensor(spectrum.theta.tolist(), dtype=torch.float64)
    engine_angles = angles[:COMPARED, 0, 0, : len(theta)].double()
    posenc_angles = torch.arange(COMPARED)[:, None] * theta
    gaps = [
        (f(engine_angles) * gain - f(posenc_angles) * float(spectrum.gain)).abs().max() for f in (torch.cos, torch.sin)
    ]
    return float(max(gaps))


if __name__ == "__main__":
    import megatron.core

    gaps = {row: gap_in_megatron(block) for row, block in BLOCKS.items()}
    record = {"megatron-core": megatron.core.__version__, "torch": torch.__version__, "tokens": LENGTH,
              "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "largest difference": gaps}  # fmt: skip
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
