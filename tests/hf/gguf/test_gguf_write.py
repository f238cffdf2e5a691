"""GGUF files under another rotation: what they say then, what stays byte for byte, and what cannot be said."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posenc import DynamicNTK, Llama3, LongRoPE, NTKAware, PositionInterpolation, RoPE, YaRN
from posenc.frequencies import CLEX, MultiScale, Resonance
from posenc.hf import read_rope
from posenc.hf.gguf import write_gguf
from tests.hf.gguf.test_gguf_keys import metadata, yarn_of_ggml

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")

BASE, WIDTH = 500000.0, 128
UNSCALED = [BASE ** (-2 * pair / WIDTH) for pair in range(WIDTH // 2)]
Q4 = np.arange(2 * 18 * 3, dtype=np.uint8).reshape(2, 54)


def write_file(
    path: Path, arch: str = "llama", tensors: dict[str, list[float]] | None = None, *, parts: int = 1, **keys: Any
) -> Path:
    """A file as llama.cpp's converter writes them: keys, arrays, quantized and plain weights."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_custom_alignment(64)
    for name, value in metadata(arch, **keys).items():
        if name == "general.architecture":
            continue
        kind = gguf.GGUFValueType
        types = {bool: kind.BOOL, int: kind.UINT32, float: kind.FLOAT32, str: kind.STRING}
        writer.add_key_value(name, value, types[type(value)])
    if parts > 1:
        writer.add_uint16("split.count", parts)
    writer.add_token_list(["a", "ß", ""])
    writer.add_token_scores([0.5, -1.0, 2.0])
    writer.add_chat_template("{{ x }}")
    writer.add_tensor("blk.0.attn_q.weight", Q4, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, np.array(values, dtype=np.float32))
    writer.add_tensor("token_embd.weight", np.array([[1.0, float("nan")], [-0.0, 3.0]], dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    return keys, {item.name: (item.tensor_type, item.data.tobytes(), item.data) for item in reader.tensors}


def rewritten(tmp_path: Path, change: Callable[[RoPE], RoPE], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys and tensors of a file under a changed rotation; all else is held against the original here."""
    source, target = write_file(tmp_path / "old.gguf", **options), tmp_path / "new.gguf"
    rope = read_rope(source).rope
    write_gguf(source, target, change(rope))
    (old, weights), (new, result) = read(source), read(target)
    touched = ("rope.", "context_length", "temperature")
    same = [{k: v for k, v in keys.items() if not any(word in k for word in touched)} for keys in (old, new)]
    assert same[0] == same[1]
    for name in ("blk.0.attn_q.weight", "token_embd.weight"):
        assert weights[name][:2] == result[name][:2], "weights changed"
    scaled = {key.partition(".rope.")[2]: value for key, value in new.items() if ".rope." in key}
    return {**scaled, "context_length": next(v for k, v in new.items() if k.endswith("context_length"))}, result


def under(scaling: Any, **other: Any) -> Callable[[RoPE], RoPE]:
    return lambda rope: RoPE(rope.head_dim, base=other.get("base", rope.base), layout="half", scaling=scaling)


def test_yarn(tmp_path: Path) -> None:
    """The keys of llama.cpp's converter, and the angles that ggml makes of them."""
    keys, _ = rewritten(tmp_path, under(YaRN(4.0, original_length=8192, attention_factor=1.25)))
    gain = 1.25 / (0.1 * math.log(4) + 1)
    assert keys.pop("scaling.attn_factor") == pytest.approx(gain, rel=1e-7)
    assert keys == {
        "dimension_count": 128, "freq_base": BASE, "scaling.type": "yarn", "scaling.factor": 4.0,
        "scaling.original_context_length": 8192, "context_length": 32768,
    }  # fmt: skip
    spectrum = read_rope(tmp_path / "new.gguf").rope.spectrum()
    right = torch.tensor(yarn_of_ggml(BASE, 128, 4.0, 8192, 32.0, 1.0), dtype=torch.float64)
    torch.testing.assert_close(spectrum.theta, right, rtol=1e-7, atol=0)
    assert float(spectrum.gain) == pytest.approx(1.25, rel=1e-6)


def test_llama_3(tmp_path: Path) -> None:
    """Factors as llama.cpp's converter computes them: 1, 8, and a smooth part between."""
    recipe = Llama3(8.0, original_length=8192)
    keys, tensors = rewritten(tmp_path, under(recipe), context_length=131072)
    assert keys == {"dimension_count": 128, "freq_base": BASE, "context_length": 131072}
    factors = []
    for theta in UNSCALED:
        turns = 8192 * theta / (2 * math.pi)
        smooth = min(1.0, max(0.0, (turns - 1) / 3))
        factors.append(1 / ((1 - smooth) / 8 + smooth))
    kind, _, data = tensors["rope_freqs.weight"]
    assert kind == gguf.GGMLQuantizationType.F32
    assert data.tolist() == pytest.approx(factors, rel=1e-6)
    assert factors[0] == 1
    assert factors[-1] == 8


def test_longrope(tmp_path: Path) -> None:
    short, long = [1.0] * 64, [1.0 + pair / 4 for pair in range(64)]
    scaling = LongRoPE(short, long, original_length=4096, factor=32.0, gain=1.19)
    keys, tensors = rewritten(tmp_path, under(scaling), arch="phi3", context_length=4096)
    assert keys.pop("scaling.attn_factor") == pytest.approx(1.19, rel=1e-7)
    assert keys == {
        "dimension_count": 128, "freq_base": BASE, "scaling.type": "longrope",
        "scaling.original_context_length": 4096, "context_length": 131072,
    }  # fmt: skip
    assert tensors["rope_factors_short.weight"][2].tolist() == short
    assert tensors["rope_factors_long.weight"][2].tolist() == long
    rope = read_rope(tmp_path / "new.gguf").rope
    assert rope.spectrum(4096).theta.tolist() == pytest.approx(UNSCALED, rel=1e-9)
    assert rope.spectrum(4097).theta.tolist() == pytest.approx([t / f for t, f in zip(UNSCALED, long, strict=True)])


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, {"freq_base": 1e6}),
        (PositionInterpolation(4.0), {"scaling.type": "linear", "scaling.factor": 4.0, "freq_base": 1e6}),
        (NTKAware(4.0), {"freq_base": pytest.approx(1e6 * 4 ** (128 / 126), rel=1e-7)}),
    ],
)
def test_bases_and_linear_scaling(tmp_path: Path, scaling: Any, expected: dict[str, Any]) -> None:
    """A file that had YaRN and factors loses what no longer holds."""
    before = {"rope__scaling__type": "yarn", "rope__scaling__factor": 2.0, "rope__scaling__yarn_beta_fast": 16.0}
    keys, _ = rewritten(tmp_path, under(scaling, base=1e6), **before)
    assert keys == {"dimension_count": 128, "context_length": 8192, **expected}
    (tmp_path / "new.gguf").unlink()
    _, tensors = rewritten(tmp_path, under(scaling, base=1e6), tensors={"rope_freqs.weight": [2.0] * 64})
    assert "rope_freqs.weight" not in tensors


def test_a_spectrum_of_ones_own_becomes_factors(tmp_path: Path) -> None:
    """YaRN with whole wavelengths has no rope type; llama.cpp has no unrounded ramp and no other betas."""
    both = torch.nn.Sequential(YaRN(4.0, original_length=8192), Resonance())
    ragged = YaRN(4.0, original_length=8192, truncate=False)
    for scaling in (both, ragged, YaRN(4.0, original_length=8192, beta_fast=16.0, beta_slow=2.0)):
        keys, tensors = rewritten(tmp_path, under(scaling))
        assert "scaling.type" not in keys
        assert keys["scaling.attn_factor"] == pytest.approx(0.1 * math.log(4) + 1, rel=1e-7)
        thetas = torch.tensor(UNSCALED).double() / torch.tensor(tensors["rope_freqs.weight"][2].tolist()).double()
        torch.testing.assert_close(thetas, RoPE(128, base=BASE, scaling=scaling).spectrum().theta, rtol=1e-6, atol=0)
        (tmp_path / "new.gguf").unlink()


LATENT = {
    "attention__key_length": 576, "attention__key_length_mla": 192, "attention__value_length_mla": 128,
    "attention__kv_lora_rank": 512, "rope__dimension_count": 64,
}  # fmt: skip


def test_latent_attention_and_windows(tmp_path: Path) -> None:
    deepseek = YaRN(40.0, original_length=4096, mscale=0.707, mscale_all_dim=0.707)
    keys, _ = rewritten(tmp_path, under(deepseek), arch="deepseek2", **LATENT)
    assert keys["scaling.yarn_log_multiplier"] == pytest.approx(0.0707, rel=1e-6)
    source = write_file(tmp_path / "gemma.gguf", "gemma3", attention__sliding_window=512)
    before = read_rope(source)
    layers = {
        "full_attention": RoPE(128, base=2e6, scaling=PositionInterpolation(8.0)),
        "sliding_attention": RoPE(128, base=2e4),
    }
    write_gguf(source, tmp_path / "wide.gguf", layers)
    keys, _ = read(tmp_path / "wide.gguf")
    assert (keys["gemma3.rope.freq_base"], keys["gemma3.rope.freq_base_swa"]) == (2e6, 2e4)
    with pytest.raises(ValueError, match="sliding_attention"):
        write_gguf(
            source,
            tmp_path / "x.gguf",
            {**before.layers, "sliding_attention": RoPE(128, scaling=Llama3(2.0, original_length=512))},
        )
    with pytest.raises(ValueError, match="GGUF"):
        write_gguf(source, tmp_path / "x.gguf", {**before.layers, "sliding_attention": None})


def test_temperature(tmp_path: Path) -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 4096}
    source = write_file(tmp_path / "old.gguf", "mistral3", attention__temperature_scale=0.1, **yarn)
    warm = read_rope(source).config
    warm["rope_parameters"]["llama_4_scaling_beta"] = 0.2
    write_gguf(source, tmp_path / "new.gguf", read_rope(warm, layout="interleaved"))
    keys, _ = read(tmp_path / "new.gguf")
    assert keys["mistral3.attention.temperature_scale"] == pytest.approx(0.2)
    assert keys["mistral3.attention.temperature_length"] == 4096
    cold = write_file(tmp_path / "cold.gguf")
    warm = read_rope(cold).config
    warm["rope_parameters"]["llama_4_scaling_beta"] = 0.2
    with pytest.raises(ValueError, match="temperature"):
        write_gguf(cold, tmp_path / "x.gguf", read_rope(warm))


YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 2048}
FREQS = [1.0] * 20 + [8.0] * 44


@pytest.mark.parametrize(
    ("arch", "tensors", "keys"),
    [
        ("llama", {}, {}),
        ("llama", {"rope_freqs.weight": FREQS}, {}),
        ("llama", {}, {**YARN, "rope__scaling__attn_factor": 0.9}),
        ("qwen3", {}, {"rope__scale_linear": 2.0}),
        ("phi3", {"rope_factors_long.weight": FREQS, "rope_factors_short.weight": [1.0] * 64},
         {"rope__scaling__original_context_length": 4096, "rope__scaling__attn_factor": 1.19}),
    ],
)  # fmt: skip
def test_there_and_back_is_the_identity(tmp_path: Path, arch: str, tensors: Any, keys: Any) -> None:
    source, target = write_file(tmp_path / "old.gguf", arch, tensors, **keys), tmp_path / "new.gguf"
    written = write_gguf(source, target, read_rope(source))
    assert target.read_bytes() == source.read_bytes()
    assert (written.keys, written.tensors) == ({}, {})
    away = write_gguf(source, tmp_path / "away.gguf", RoPE(128, base=BASE, scaling=YaRN(2.0, original_length=8192)))
    assert away.keys
    back = write_gguf(tmp_path / "away.gguf", tmp_path / "back.gguf", read_rope(source))
    assert back.config.rope.spectrum(9000).theta.tolist() == pytest.approx(
        read_rope(source).rope.spectrum(9000).theta.tolist(), rel=1e-6
    )


def test_the_original_is_safe(tmp_path: Path) -> None:
    source = write_file(tmp_path / "old.gguf")
    bytes_before, other = source.read_bytes(), RoPE(128, base=1e6)
    with pytest.raises(ValueError, match=r"old\.gguf"):
        write_gguf(source, source, other)
    with pytest.raises(ValueError, match=r"there\.gguf"):
        write_gguf(source, write_file(tmp_path / "there.gguf"), other)
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "no")):
        write_gguf(source, tmp_path / "no" / "x.gguf", other)
    assert source.read_bytes() == bytes_before
    write_gguf(source, source, other, replace=True)
    assert read_rope(source).rope.base == 1e6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.gguf", "there.gguf"], "nothing is left aside"


@pytest.mark.parametrize(
    ("arch", "rope", "words"),
    [
        ("llama", RoPE(128, scaling=DynamicNTK(original_length=8192)), "DynamicNTK"),
        ("llama", RoPE(128, scaling=MultiScale(8)), "MultiScale"),
        ("llama", RoPE(128, scaling=CLEX(64, original_length=8192)), "CLEX"),
        ("qwen3", RoPE(128, scaling=Llama3(8.0, original_length=8192)), "rope_freqs.*qwen3"),
        ("arcee", RoPE(128, scaling=LongRoPE([1.0] * 64, FREQS, original_length=8192, factor=4.0)), "arcee"),
        ("llama", RoPE(64), "head_dim"),
        ("llama", RoPE(128, rotary_dim=64), "rotary_dim"),
    ],
)  # fmt: skip
def test_what_cannot_be_said(tmp_path: Path, arch: str, rope: RoPE, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_gguf(write_file(tmp_path / "old.gguf", arch), tmp_path / "new.gguf", rope)
    assert not (tmp_path / "new.gguf").exists()


def test_one_part_of_several(tmp_path: Path) -> None:
    source = write_file(tmp_path / "old.gguf", parts=2)
    with pytest.raises(ValueError, match="2"):
        write_gguf(source, tmp_path / "new.gguf", RoPE(128))
