"""Rope types of vLLM, SGLang and Hunyuan, by the formulas of each engine, written down anew."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from posenc import MRoPE
from posenc.hf import model_from_config, read_rope
from posenc.hf.config.rope_config import RopeConfig
from posenc.hf.config.rotation import text_rope

BASE, WIDTH, LENGTH = 10000.0, 128, 8192
LLAMA = {"model_type": "llama", "head_dim": WIDTH, "max_position_embeddings": LENGTH}
HUNYUAN = {  # as Hunyuan-A13B's config.json has it
    "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "type": "dynamic",
}  # fmt: skip


def read(convention: str, **block: Any) -> RopeConfig:
    config = {**LLAMA, "rope_parameters": {"rope_theta": BASE, **block}}
    result = read_rope(config, convention=convention)  # type: ignore[arg-type]
    assert result.to_config() == config, "reading and writing changes nothing"
    return result


def holds(config: RopeConfig, expected: list[float], gain: float = 1.0) -> None:
    """The spectrum at every length, also after it was spelled as transformers does."""
    again = read_rope(config.to_config(version=5), convention=config.facts.reading.convention)
    for rope in (config.rope, again.rope):
        for length in (None, LENGTH, 4 * LENGTH):
            spectrum = text_rope(rope).spectrum(length)
            torch.testing.assert_close(spectrum.theta, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
            assert float(spectrum.gain) == pytest.approx(gain, rel=1e-12)


def geometric(base: float, divisor: float = 1.0) -> list[float]:
    return [base ** (-2 * pair / WIDTH) / divisor for pair in range(WIDTH // 2)]


class TestVLLM:
    def test_ntk(self) -> None:
        holds(read("vllm", rope_type="ntk", factor=8.0), geometric(BASE * 8, 8 ** (2 / WIDTH)))

    def test_ntk_mixed(self) -> None:
        power, pairs = 0.625, WIDTH // 2
        slower = math.log(8) / pairs**power
        expected = [theta / math.exp(slower * (j + 1) ** power) for j, theta in enumerate(geometric(BASE))]
        holds(read("vllm", rope_type="ntk", factor=8.0, mixed_b=power), expected)

    def test_dynamic_grows_from_the_trained_positions(self) -> None:
        """0.33's class: base · (f L/M − (f − 1))^(d/(d−2)), M from a key of its own."""
        holds(read("vllm", rope_type="dynamic", factor=4.0), geometric(BASE))
        trained = LENGTH // 4
        result = read("vllm", rope_type="dynamic", factor=4.0, max_trained_positions=trained)
        holds(result, geometric(BASE * (4.0 * LENGTH / trained - 3.0) ** (WIDTH / (WIDTH - 2))))


def test_dynamic_of_sglang_is_computed_once() -> None:
    longest, f = 4 * LENGTH, 4.0
    scale = (f * longest / LENGTH) - (f - 1)
    result = read("sglang", rope_type="dynamic", factor=f)
    holds(result, geometric(BASE * scale ** (WIDTH / (WIDTH - 2))))
    assert "dynamic-once" in {finding.name for finding in result.findings}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
class TestBothEngines:
    def test_gain_of_longrope(self, engine: str) -> None:
        """Of lengths, or of two keys of their own; attention_factor and factor have no effect."""
        lists = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
        lists["original_max_position_embeddings"] = 2048
        silent = math.sqrt(1 + math.log(4) / math.log(2048))
        for more, gain in (({}, silent), ({"factor": 32.0}, silent), ({"attention_factor": 1.0}, silent),
                           ({"short_mscale": 1.2, "long_mscale": 1.2, "attention_factor": 1.0}, 1.2)):  # fmt: skip
            result = read(engine, **lists, **more)
            assert float(result.rope.spectrum(4096).gain) == pytest.approx(gain), more
            unread = "attention-factor-ignored" in {item.name for item in result.findings}
            assert unread == (set(more) == {"attention_factor"})

    @pytest.mark.parametrize("scales", [{}, {"mscale": 1.0, "mscale_all_dim": 1.0}, {"mscale": 0.707}], ids=str)
    @pytest.mark.parametrize("rope_type", ["deepseek_yarn", "deepseek_llama_scaling"])
    def test_yarn_of_deepseek(self, engine: str, rope_type: str, scales: dict[str, float]) -> None:
        if (engine, rope_type) == ("sglang", "deepseek_llama_scaling"):
            pytest.skip("SGLang 0.5.23 has no such rope type")
        block = {"factor": 40.0, "original_max_position_embeddings": 4096, "attn_factor": 1.5, **scales}
        config = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": BASE, "head_dim": 64}
        result = read_rope({**config, "rope_scaling": {"rope_type": rope_type, **block}}, convention=engine)  # type: ignore[arg-type]
        sharp = {a: 0.1 * a * math.log(40) + 1 for a in (scales.get("mscale", 1.0), scales.get("mscale_all_dim", 0.0))}
        gain = (
            sharp[scales.get("mscale", 1.0)]
            / sharp[scales.get("mscale_all_dim", 0.0)]
            * (1.5 if engine == "sglang" else 1.0)
        )
        rope = read_rope({**config, "rope_scaling": {"rope_type": "yarn", **dict(list(block.items())[:2])}}).rope
        assert torch.equal(result.rope.spectrum().theta, rope.spectrum().theta)
        assert float(result.rope.spectrum().gain) == pytest.approx(gain)
        softmax = sharp[scales.get("mscale_all_dim", 0.0)] ** 2 if rope_type == "deepseek_yarn" else 1.0
        assert result.softmax_factor() == pytest.approx(softmax)

    def test_mrope(self, engine: str) -> None:
        for extra, interleaved in (({}, False), ({"mrope_interleaved": True}, True)):
            rope = read(engine, type="mrope", mrope_section=[24, 20, 20], **extra).rope
            assert isinstance(rope, MRoPE)
            assert (rope.sections, rope.interleaved) == ((24, 20, 20), interleaved)
        scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
        assert isinstance(read(engine, **scaled, mrope_section=[24, 20, 20]).rope, MRoPE)


def test_gain_of_sglang() -> None:
    """Both scales and attn_factor; an attention_factor is not read."""
    block = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    m = 0.1 * math.log(4) + 1

    def gain(**more: Any) -> float:
        return float(read("sglang", **block, **more).rope.spectrum().gain)

    assert gain() == pytest.approx(m)
    assert gain(attn_factor=2.0, mscale=1.0, mscale_all_dim=1.0) == pytest.approx(2.0)
    assert gain(attention_factor=3.0) == pytest.approx(m)
    assert gain(mscale=0.0, mscale_all_dim=1.0) == pytest.approx(1 / m), "0 is a number like others there"
    assert "attention-factor-ignored" in {item.name for item in read("sglang", **block, attention_factor=3.0).findings}
    rope = read_rope({**LLAMA, "rope_parameters": {"rope_theta": BASE, **block, "attention_factor": 3.0}}).rope
    written = read("sglang", **block).with_rope(rope).to_config()["rope_parameters"]
    assert written["attn_factor"] == pytest.approx(3.0 / m)


@pytest.mark.parametrize("model_type", ["hunyuan_v1_dense", "hunyuan_v1_moe", "llama"])
def test_alpha(model_type: str) -> None:
    config = {**LLAMA, "model_type": model_type, "rope_theta": BASE, "rope_scaling": HUNYUAN}
    for convention in ("transformers", "vllm", "sglang"):
        result = read_rope(config, convention=convention)  # type: ignore[arg-type]
        assert result.to_config() == config
        holds(result, geometric(BASE * 1000 ** (WIDTH / (WIDTH - 2))))
        ignored = model_type == "llama" and convention == "transformers"
        assert ("alpha-ignored" in {finding.name for finding in result.findings}) == ignored
        assert not result.rope.length_dependent
    assert model_from_config(config).distinct_layers[0].rotation is not None


@pytest.mark.parametrize(
    ("convention", "block", "words"),
    [
        ("vllm", {"rope_type": "ntk"}, "factor"),
        ("vllm", {"rope_type": "ntk", "factor": 2.0, "mixed_b": 0}, "mixed_b"),
        ("vllm", {"rope_type": "dynamic", "alpha": 0}, "alpha"),
        ("vllm", {"rope_type": "dynamic"}, "factor"),
        ("vllm", {"rope_type": "xdrope", "alpha": 1e3}, "Hunyuan-VL"),
        ("vllm", {"rope_type": "mllama4"}, "AxialRoPE"),
        ("vllm", {"rope_type": "openpangu"}, "openPangu"),
        ("sglang", {"rope_type": "default", "use_fope": True}, "FoPE"),
        ("sglang", {"rope_type": "default", "video_rope": True}, "Bailing"),
        ("sglang", {"rope_type": "yarn", "factor": 2.0, "apply_yarn_scaling": False}, "apply_yarn_scaling"),
    ],
    ids=str,
)
def test_what_cannot_be_read_says_why(convention: str, block: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="rope_parameters") as error:
        read_rope({**LLAMA, "rope_parameters": {"rope_theta": BASE, **block}}, convention=convention)  # type: ignore[arg-type]
    assert words in str(error.value)
