"""GGUF's metadata: the angles that llama.cpp computes, written down anew, and the layers beside them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from posenc import MRoPE
from posenc.hf import as_text, model_from_config, read_rope
from posenc.hf.config.rotation import text_rope
from posenc.hf.families import NON_ROTARY, ROTATIONS
from posenc.hf.families.family import FULL, SLIDING
from posenc.hf.sources.gguf_metadata import ARCHITECTURES


def metadata(arch: str = "llama", **keys: Any) -> dict[str, Any]:
    """Of a model of 8 layers; double underscores stand for points."""
    arguments: dict[str, Any] = {
        "context_length": 8192, "embedding_length": 1024, "block_count": 8, "attention__head_count": 8,
        "attention__head_count_kv": 2, "rope__dimension_count": 128, "rope__freq_base": 500000.0, **keys,
    }  # fmt: skip
    named = {f"{arch}.{key.replace('__', '.')}": value for key, value in arguments.items() if value is not None}
    return {"general.architecture": arch, **named}


FREQS = [1.0] * 20 + [4.0] * 44


def yarn_of_ggml(base: float, width: int, factor: float, original: int, fast: float, slow: float) -> list[float]:
    """ggml's rope_yarn: an interpolated angle, the plain one, and a ramp between by the index of the pair."""

    def corner(rotations: float) -> float:
        return width * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(0.0, math.floor(corner(fast))), min(width - 1.0, math.ceil(corner(slow)))
    thetas = []
    for pair in range(width // 2):
        theta = base ** (-2 * pair / width)
        mix = 1 - min(1.0, max(0.0, (pair - low) / max(0.001, high - low)))
        thetas.append(theta / factor * (1 - mix) + theta * mix)
    return thetas


def geometric(base: float = 500000.0, width: int = 128) -> list[float]:
    return [base ** (-2 * pair / width) for pair in range(width // 2)]


SCALED: list[tuple[dict[str, Any], list[float], float]] = [
    ({}, geometric(), 1.0),
    ({"rope__freq_base": None}, geometric(10000.0), 1.0),
    ({"rope__scaling__factor": 4.0}, [theta / 4 for theta in geometric()], 1.0),
    ({"rope__scaling__factor": 0.0}, geometric(), 1.0),
    ({"rope__scaling__factor": 4.0, "rope__scaling__type": "none"}, geometric(), 1.0),
    ({"rope__scale_linear": 2.0}, [theta / 2 for theta in geometric()], 1.0),
    (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 4096},
        yarn_of_ggml(500000.0, 128, 4.0, 4096, 32.0, 1.0), 0.1 * math.log(4) + 1,
    ),
    (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 4096,
         "rope__scaling__yarn_beta_fast": 16.0, "rope__scaling__yarn_beta_slow": 2.0,  # for mistral3 alone
         "rope__scaling__attn_factor": 1.5},
        yarn_of_ggml(500000.0, 128, 4.0, 4096, 32.0, 1.0), 1.5 * (0.1 * math.log(4) + 1),
    ),
    (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 48.0, "rope__scaling__yarn_log_multiplier": 1.0,
         "rope__scaling__original_context_length": 8192},
        yarn_of_ggml(500000.0, 128, 48.0, 8192, 32.0, 1.0), 1.0,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "thetas", "gain"), SCALED, ids=lambda value: str(value)[:40])
def test_angles(keys: dict[str, Any], thetas: list[float], gain: float) -> None:
    spectrum = read_rope(metadata(**keys)).rope.spectrum()
    torch.testing.assert_close(spectrum.theta, torch.tensor(thetas, dtype=torch.float64), rtol=1e-12, atol=0)
    assert float(spectrum.gain) == pytest.approx(gain, rel=1e-12)


def test_betas_are_read_as_llama_cpp_reads_them() -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 4096}
    changed = metadata(**yarn, rope__scaling__yarn_beta_fast=16.0)
    assert [item.level for item in read_rope(changed).findings if item.name == "gguf-beta-ignored"] == ["fault"]
    silent = metadata(**yarn, rope__scaling__yarn_beta_fast=32.0)
    assert not [item for item in read_rope(silent).findings if item.name == "gguf-beta-ignored"]
    mistral = {key.replace("llama.", "mistral3."): value for key, value in changed.items()}
    mistral["general.architecture"] = "mistral3"
    spectrum = read_rope(mistral).rope.spectrum()
    right = torch.tensor(yarn_of_ggml(500000.0, 128, 4.0, 4096, 16.0, 1.0), dtype=torch.float64)
    torch.testing.assert_close(spectrum.theta, right, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["rope_freqs", "rope_freqs.weight"])
def test_factors_of_all_texts(name: str) -> None:
    read = read_rope({**metadata(rope__scaling__factor=2.0, rope__scaling__type="linear"), name: FREQS})
    expected = [theta / 2 / factor for theta, factor in zip(geometric(), FREQS, strict=True)]
    for length in (None, 100_000):
        spectrum = read.rope.spectrum(length)
        torch.testing.assert_close(spectrum.theta, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
        assert float(spectrum.gain) == 1.0


def test_factors_of_short_and_long_texts() -> None:
    keys = {
        "context_length": 131072,
        "rope__scaling__original_context_length": 4096,
        "rope__scaling__attn_factor": 1.19,
    }
    read = read_rope({**metadata("phi3", **keys), "rope_factors_short": [1.0] * 64, "rope_factors_long": FREQS})
    assert read.rope.layout == "half"
    for length, factors in ((4096, [1.0] * 64), (4097, FREQS)):
        spectrum = read.rope.spectrum(length)
        expected = [theta / factor for theta, factor in zip(geometric(), factors, strict=True)]
        torch.testing.assert_close(spectrum.theta, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
        assert float(spectrum.gain) == pytest.approx(1.19)
    assert {finding.name for finding in read.findings} == {"gguf-scaling-dropped"}


def test_shares_widths_and_layouts() -> None:
    assert read_rope(metadata("gptneox", rope__dimension_count=32)).rope.rotary_dim == 32
    assert read_rope(metadata("glm4", rope__dimension_count=64)).rope.layout == "interleaved"
    assert read_rope(metadata("qwen3", attention__key_length=256, rope__dimension_count=None)).rope.head_dim == 256
    rope = read_rope(metadata("qwen2vl", rope__dimension_sections=[16, 24, 24, 0])).rope
    assert isinstance(rope, MRoPE)
    assert rope.sections == (16, 24, 24)
    heads = [0, 0, 8, 0, 0, 8, 0, 8]
    assert read_rope(metadata("lfm2", attention__head_count=8, attention__head_count_kv=heads)).rope.head_dim == 128


LATENT = {
    "attention__key_length": 576, "attention__key_length_mla": 192, "attention__value_length_mla": 128,
    "attention__kv_lora_rank": 512, "rope__dimension_count": 64, "rope__scaling__type": "yarn",
    "rope__scaling__factor": 40.0, "rope__scaling__original_context_length": 4096,
}  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 0.707])
def test_latent_attention(scale: float) -> None:
    """The converter writes a tenth of mscale_all_dim; the gains cancel, and the softmax has the square."""
    config = metadata("deepseek2", **LATENT, rope__scaling__yarn_log_multiplier=0.1 * scale)
    read, model = read_rope(config), model_from_config(config)
    softmax = (0.1 * scale * math.log(40) + 1) ** 2
    assert float(read.rope.spectrum().gain) == pytest.approx(1.0)
    assert read.softmax_factor() == pytest.approx(softmax)
    assert model.layers[0].scale == pytest.approx(192**-0.5 * softmax)
    assert model.latent is not None
    assert model.latent[:4] == (64, 128, 128, 512)


def test_windows_bases_and_temperatures() -> None:
    gemma = model_from_config(metadata("gemma3", attention__sliding_window=512, rope__scaling__factor=8.0))
    assert [layer.window for layer in gemma.layers] == [512] * 5 + [None] + [512] * 2
    assert [getattr(layer.rotation, "base", 0) for layer in gemma.layers[4:6]] == [10000.0, 500000.0]
    assert gemma.layers[0].rotation is not None
    assert gemma.layers[0].rotation.spectrum().theta[1] == 10000.0 ** (-2 / 128), "no scaling under a window"
    listed = metadata("exaone4", attention__sliding_window=64, attention__sliding_window_pattern=[True, False] * 4)
    assert [layer.kind for layer in model_from_config(listed).layers] == [SLIDING, FULL] * 4
    oss = model_from_config(metadata("gpt-oss", attention__sliding_window=128))
    assert [(layer.window, layer.sink) for layer in oss.layers[:2]] == [(128, "learned"), (None, "learned")]
    warm = metadata("mistral3", attention__temperature_scale=0.1, rope__scaling__type="yarn",
                    rope__scaling__factor=4.0, rope__scaling__original_context_length=4096)  # fmt: skip
    heat = model_from_config(warm).layers[0].temperature
    assert heat is not None
    assert heat.options == {"step": 4096, "strength": 0.1, "offset": 0}
    large = metadata("deepseek2", **LATENT, attention__temperature_scale=0.2, attention__temperature_length=4096)
    heat = model_from_config(large).layers[0].temperature
    assert heat is not None
    assert heat.options == {"step": 4096, "strength": 0.2, "offset": 0}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_is_read(arch: str) -> None:
    model_type, layout = ARCHITECTURES[arch]
    assert model_type in (NON_ROTARY if layout is None else ROTATIONS)
    known = ROTATIONS.get(model_type, ROTATIONS["llama"])
    sections = {"rope__dimension_sections": [22, 22, 20, 0]} if known.sections else {}
    config = metadata(arch, **(LATENT if arch == "deepseek2" else {}), **sections)
    read = read_rope(config)
    assert {text_rope(rope).layout for rope in read.layers.values() if rope is not None} == ({layout} - {None})
    assert read.to_config() == read.config
    assert not [finding for finding in read.findings if finding.level == "fault"]
    assert as_text(read)


LLAMA_31 = metadata(context_length=131072, embedding_length=4096, attention__head_count=32, vocab_size=128256)
QWEN_3 = metadata("qwen3moe", context_length=131072, rope__freq_base=1e6)


@pytest.mark.parametrize(
    ("config", "name", "level", "words"),
    [
        (
            {**LLAMA_31, "tensors.without_factors": True},
            "gguf-scaling-lost",
            "fault",
            ["131,072", "convert the checkpoint"],
        ),
        (QWEN_3, "gguf-scaling-lost", "fault", ["gibberish", "--rope-scaling yarn"]),
        (LLAMA_31, "gguf-tensors-unseen", "suspicion", ["are tensors", "give the file"]),
        ({**LLAMA_31, "rope_freqs": FREQS}, "gguf-scaling-dropped", "note", ["transformers"]),
    ],
)
def test_faults_of_files(config: dict[str, Any], name: str, level: str, words: list[str]) -> None:
    (result,) = [finding for finding in read_rope(config).findings if finding.name == name]
    assert result.level == level
    assert [word for word in words if word not in result.text] == []
    right = {**metadata(), "tensors.without_factors": True}
    assert read_rope(right).findings == ()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (metadata("gemma9"), "general.architecture 'gemma9' is not known here"),
        (metadata(rope__freq_base="x"), "llama.rope.freq_base"),
        (metadata(rope__scaling__type="ntk"), "llama.rope.scaling.type"),
        (metadata(rope__scaling__type="longrope"), "rope_factors_short"),
        (metadata(rope__scaling__factor="2"), "factor"),
        (metadata(rope__scaling__alpha=1000.0), "alpha"),
        (metadata(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__yarn_ext_factor=0.0),
         "yarn_ext_factor = 0.0"),
        ({**metadata(), "rope_freqs": [0.0]}, "rope_freqs.weight"),
        ({**metadata(), "rope_freqs": [1.0] * 3}, "64"),
        ({**metadata(), "rope_factors_long": FREQS}, "rope_factors"),
        ({**metadata(rope__scaling__type="yarn"), "rope_freqs": FREQS}, "rope_freqs"),
        (metadata("deepseek2", **LATENT, attention__temperature_scale=0.1, attention__temperature_length=8),
         "temperature_length"),
    ],
)  # fmt: skip
def test_what_cannot_be_understood(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as error:
        read_rope(config)
    assert words in str(error.value)


YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (metadata(**YARN), {"original-length-missing"}),
        (metadata(**{**YARN, "rope__scaling__factor": 2.0}, rope__scaling__original_context_length=4096), set()),
        (metadata(**YARN, rope__scaling__original_context_length=2048), set()),
        (metadata(**YARN, rope__scaling__original_context_length=1024), {"declared-beyond-scaling"}),
        (
            metadata(**{**YARN, "rope__scaling__factor": 16.0}, rope__scaling__original_context_length=2048),
            {"scaling-beyond-declared"},
        ),
        (metadata(rope__scaling__factor=4.0), {"gguf-type-missing"}),
        (metadata(rope__scaling__type="yarn"), {"gguf-factor-missing"}),
        (metadata(rope__scaling__type="linear"), {"gguf-factor-missing"}),
        (metadata(rope__scaling__type="linear", rope__scale_linear=2.0), set()),
        (
            metadata(**YARN, rope__scaling__original_context_length=2048, rope__scaling__yarn_ext_factor=4.0),
            {"gguf-ext-factor"},
        ),  # ikawrakow/ik_llama.cpp#2003
        (metadata(**YARN, rope__scaling__original_context_length=2048, rope__scaling__yarn_ext_factor=1.0), set()),
        (metadata(rope__dimension_count=64), {"gguf-width-refused"}),
        (metadata("qwen3", rope__dimension_count=64), set()),
        (metadata("gemma3"), {"gguf-window-lost"}),
        (metadata("gemma3", attention__sliding_window=512), set()),
        (metadata("gpt-oss"), {"gguf-window-lost"}),
        (metadata("gemma2"), set()),
    ],
)
def test_scalings_and_windows_that_are_incomplete(config: dict[str, Any], names: set[str]) -> None:
    findings = read_rope({**config, "tensors.without_factors": True}).findings
    assert {finding.name for finding in findings if finding.level != "note"} == names
