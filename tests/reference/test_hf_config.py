"""Configurations read by us and run by transformers: the same frequencies and gains, but for its known faults.

The faults of transformers 5.23 have a test each, named after the fault, which shows both values.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn

from posenc import RoPE
from posenc.hf import read_rope, rope_to_config
from posenc.hf.config.rotation import Rotation, text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.families import ROTATIONS
from posenc.hf.families.family import FULL, SLIDING
from tests.hf.checkpoints import CHECKPOINTS
from tests.hf.config.generated import configs
from tests.hf.config.test_write import BY_HAND

pytest.importorskip("transformers")

from tests.hf.transformers_models import TEXT, model_of, rotary_module, transformers_frequencies

pytestmark = pytest.mark.reference
logging.getLogger("transformers").setLevel(logging.CRITICAL)
LENGTHS = (None, 1000, 5000, 70000, 300000)


def agree(config: dict[str, Any]) -> None:
    module = rotary_module(config)
    flat = hasattr(module, "inv_freq")
    for kind, rope in read_rope(config).layers.items():
        for length in LENGTHS if rope is not None else ():
            assert_equal(rope, transformers_frequencies(module, length, "all" if flat else kind), length)


def assert_equal(rope: Rotation, result: tuple[Tensor, float], length: int | None = None) -> None:
    spectrum = rope.spectrum(length)
    torch.testing.assert_close(result[0].double(), spectrum.theta, rtol=2e-5, atol=0)
    assert result[1] == pytest.approx(float(spectrum.gain), rel=1e-6)


def trusted(config: dict[str, Any]) -> bool:
    """Whether transformers reads this configuration as it is written; the tests below name what it does not."""
    block = config.get("rope_parameters") or config.get("rope_scaling") or {}
    share = block.get("partial_rotary_factor", config.get("partial_rotary_factor", 1))
    rope_type = block.get("rope_type", block.get("type", "default"))
    one_scale = bool(block.get("mscale")) != bool(block.get("mscale_all_dim")) and block.get("attention_factor") is None
    return not (rope_type == "default" and share != 1) and not one_scale


@pytest.mark.parametrize("rope_type", ["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"])
def test_generated_configurations_rotate_equally(rope_type: str) -> None:
    seen = []

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
    @given(configs(rope_type))
    def check(config: dict[str, Any]) -> None:
        if trusted(config):
            agree(config)
            seen.append(config)

    check()
    assert len({str(config) for config in seen}) >= 20


FAULTY = {
    "phi-3-mini-128k, first spelling": "test_phi3_su_fails",
    "phi-3.5-moe": "test_phimoe_never_uses_the_long_factors",
    "gpt-j-6b": "it has no rotary module; see test_peers.py",
}


@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name not in FAULTY])
def test_checkpoints_rotate_equally(name: str) -> None:
    config, _ = CHECKPOINTS[name]
    text = dict(find_text_config(config))
    agree({**text, "model_type": TEXT.get(text["model_type"], text["model_type"])})


@pytest.mark.parametrize(("scaling", "block"), BY_HAND, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("version", [4, 5])
def test_written_configurations_rotate_correctly_in_transformers(
    scaling: Any, block: dict[str, Any], version: int
) -> None:
    if version == 4 and block["rope_type"] == "proportional":
        return
    rope = RoPE(64, base=500000.0, scaling=scaling)
    module = rotary_module(
        {"model_type": "llama", "max_position_embeddings": 65536, **rope_to_config(rope, version=version)}
    )
    for length in LENGTHS:
        assert_equal(rope, transformers_frequencies(module, length), length)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("name", [name for name in CHECKPOINTS if name not in FAULTY])
def test_checkpoints_in_the_other_spelling_rotate_equally(name: str, version: int) -> None:
    config, _ = CHECKPOINTS[name]
    if version == 5 or "gemma-4" not in name:
        text = read_rope(dict(find_text_config(config))).to_config(version=version)
        agree({**text, "model_type": TEXT.get(text["model_type"], text["model_type"])})


WIDTH = {"glm4_moe": 128, "glm4v_moe_text": 128, "qwen3_omni_moe_text": 128}  # whose default width is odd
WIDTH |= {"glm4v_text": 64, "glm_image_text": 64}  # whose default sections do not fit their default width
WIDTH |= {"qwen4_exp_text": 64}
_NESTED = {FULL: {"rope_type": "default", "rope_theta": 1e4}}
WITHOUT_DEFAULT_BLOCK = {"cohere_compass_text": {"rope_parameters": _NESTED}}  # whose code has no default block
SCALABLE = [name for name, family in ROTATIONS.items() if not family.fixed]


def of_family(name: str) -> tuple[Any, nn.Module, Any, dict[str, Any]]:
    """A default configuration, its rotary module, the family's code and the configuration as a dictionary."""
    cls, rotary, code = model_of(TEXT.get(name, name))
    on = ROTATIONS[name].rotates_if
    width = {"head_dim": WIDTH[name]} if name in WIDTH else {}
    config = cls(**width, **(dict([on]) if on else {}), **WITHOUT_DEFAULT_BLOCK.get(name, {}))
    full = {**config.to_dict(), "model_type": name}
    if name == "minimax_m3_vl_text":  # of which the tests of faults tell
        del full["rotary_dim"]
    return config, rotary(config), code, full


@pytest.mark.parametrize("name", SCALABLE)
def test_family_defaults(name: str) -> None:
    """A configuration without a word on rotation: base, share and width as the family's code has them."""
    _, module, _, config = of_family(name)
    actual = {"rope_parameters", "partial_rotary_factor", "rotary_dim"}
    bare = {key: value for key, value in config.items() if key not in actual}
    if ROTATIONS[name].nested and ROTATIONS[name].block is None:
        with pytest.raises(ValueError, match=r"rope_parameters|layer_types"):
            read_rope(bare)
        bare = config
    compared = 0
    for kind, rope in read_rope(bare).layers.items():
        flat = "all" if hasattr(module, "inv_freq") else kind
        if rope is not None and (flat == "all" or hasattr(module, f"{kind}_inv_freq")):
            assert_equal(rope, transformers_frequencies(module, None, flat))
            compared += 1
    assert compared


LLAMA = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 65536}
YARN_BLOCK = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "original_max_position_embeddings": 4096}


class TestFaultsOfTransformers:
    """What transformers 5.23 does not do as a configuration says: its value, and ours."""

    def test_llama_ignores_the_share_for_the_default_type(self) -> None:
        config = {
            **LLAMA,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        }
        assert len(transformers_frequencies(rotary_module(config), None)[0]) == 32
        assert_equal(read_rope(config).rope, (10000.0 ** (-torch.arange(16) / 16), 1.0))

    def test_minimax_m3_ignores_its_own_rotary_dim(self) -> None:
        cls, rotary, _ = model_of("minimax_m3_vl_text")
        full = {**cls().to_dict(), "model_type": "minimax_m3_vl_text"}
        assert len(transformers_frequencies(rotary(cls()), None)[0]) == 64
        read = read_rope(full)
        assert (full["rotary_dim"], read.rope.rotary_dim) == (64, 64)
        assert any(item.key == "rotary_dim" and "is ignored" in item.text for item in read.findings)

    @pytest.mark.parametrize("key", ["mscale", "mscale_all_dim"])
    def test_one_mscale_alone_is_ignored(self, key: str) -> None:
        gain = 0.1 * math.log(40) + 1
        for alone in ({key: 2.0}, {key: 0.0}, {"mscale": 0.0, "mscale_all_dim": 0.0, key: 2.0}):
            config = {**LLAMA, "rope_parameters": {**YARN_BLOCK, **alone}}
            assert transformers_frequencies(rotary_module(config), None)[1] == pytest.approx(gain)
            assert float(read_rope(config).rope.spectrum().gain) == pytest.approx(gain)

    def test_truncate_is_ignored_in_nested_blocks(self) -> None:
        blocks = {FULL: {**YARN_BLOCK, "truncate": False}, SLIDING: {"rope_type": "default", "rope_theta": 1e4}}
        config = {"model_type": "gemma3_text", "head_dim": 64, "rope_parameters": blocks}
        truncated = read_rope({**LLAMA, "rope_parameters": YARN_BLOCK}).rope
        exact = read_rope({**LLAMA, "rope_parameters": blocks[FULL]})
        assert_equal(truncated, transformers_frequencies(rotary_module(config), None, FULL))
        assert_equal(exact.rope, transformers_frequencies(rotary_module(exact.config), None))
        assert torch.equal(read_rope(config).layers[FULL].spectrum().theta, exact.rope.spectrum().theta)
        assert not torch.allclose(exact.rope.spectrum().theta, truncated.spectrum().theta, rtol=0.1)

    def test_olmo3_gives_the_base_to_full_attention_alone(self) -> None:
        config = {"model_type": "olmo3", "rope_theta": 1e6, "head_dim": 64}
        module = rotary_module(config)
        read = read_rope(config)
        assert_equal(read.layers[FULL], transformers_frequencies(module, None, FULL))
        assert_equal(RoPE(64, base=5e5), transformers_frequencies(module, None, SLIDING))
        assert read.layers[SLIDING].base == 1e6

    def test_modernbert_fails_without_a_local_base(self) -> None:
        config = {"model_type": "modernbert", "local_rope_theta": None}
        with pytest.raises(TypeError):
            rotary_module(config)
        with pytest.raises(ValueError, match="rope_theta"):
            read_rope({**config, "head_dim": 64})

    def test_phi3_su_fails(self) -> None:
        config, _ = CHECKPOINTS["phi-3-mini-128k, first spelling"]
        with pytest.raises(KeyError, match="original_max_position_embeddings"):
            rotary_module(config)
        expected = read_rope(CHECKPOINTS["phi-3.5-mini"][0]).rope
        for length in (4096, 4097):
            assert torch.equal(read_rope(config).rope.spectrum(length).theta, expected.spectrum(length).theta)

    def test_phi3_prefers_its_own_original_length_to_the_block(self) -> None:
        config, _ = CHECKPOINTS["phi-3.5-mini"]
        block = {**config["rope_scaling"], "original_max_position_embeddings": 2048}
        changed = {key: value for key, value in config.items() if key != "original_max_position_embeddings"}
        changed["rope_scaling"] = block
        assert transformers_frequencies(rotary_module(changed), None)[1] == pytest.approx(
            math.sqrt(1 + math.log(32) / math.log(4096))
        )
        gain = float(read_rope(changed).rope.spectrum().gain)
        assert gain == pytest.approx(math.sqrt(1 + math.log(64) / math.log(2048)))

    def test_phimoe_never_uses_the_long_factors(self) -> None:
        config, _ = CHECKPOINTS["phi-3.5-moe"]
        rope = read_rope(config).rope
        cos, _ = rotary_module(config)(torch.zeros(1), torch.arange(5000)[None])
        short, long = rope.spectrum(4096), rope.spectrum(5000)
        assert float(cos[0, 4999, 47]) == pytest.approx(1.25 * math.cos(4999 * short.theta[47]), abs=1e-4)
        assert float(cos[0, 4999, 47]) != pytest.approx(1.25 * math.cos(4999 * long.theta[47]), abs=1e-2)
        assert (float(short.gain), float(long.gain)) == (1.243163121016122, 1.25)

    @pytest.mark.parametrize("model_type", ["gemma3_text", "gemma3n_text", "olmo3"])
    def test_a_flat_block_is_ignored_where_kinds_of_layers_differ(self, model_type: str) -> None:
        config = {"model_type": model_type, "head_dim": 64, "rope_parameters": {"rope_type": "linear", "factor": 8.0}}
        module = rotary_module(config)
        assert module.rope_type[FULL] == "default"
        read = read_rope(config)
        assert {rope.scaling for rope in read.rotations.values()} == {None}
        assert [(finding.name, finding.level) for finding in read.findings if finding.alarms] == [
            ("flat-block-dropped", "fault")
        ]

    def test_gpt_neox_ignores_rope_theta(self) -> None:
        config = {"model_type": "gpt_neox", "hidden_size": 512, "num_attention_heads": 2, "rope_theta": 5e5}
        assert_equal(RoPE(256, rotary_dim=64), transformers_frequencies(rotary_module(config), None))
        assert read_rope(config).rope.base == 5e5

    def test_an_original_length_next_to_the_block_silently_wins(self) -> None:
        block = {**YARN_BLOCK, "original_max_position_embeddings": 1024}
        config = {**LLAMA, "rope_parameters": block, "original_max_position_embeddings": 4096}
        right = read_rope({**LLAMA, "rope_parameters": {**block, "original_max_position_embeddings": 4096}}).rope
        assert_equal(right, transformers_frequencies(rotary_module(config), None))
        with pytest.raises(ValueError, match=r"rope_type|type"):
            read_rope(config)

    def test_a_base_next_to_the_block_is_silently_ignored(self) -> None:
        config = {**LLAMA, "rope_parameters": YARN_BLOCK, "rope_theta": 5e5}
        assert_equal(
            read_rope({**LLAMA, "rope_parameters": YARN_BLOCK}).rope,
            transformers_frequencies(rotary_module(config), None),
        )
        with pytest.raises(ValueError, match=r"rope_type|type"):
            read_rope(config)

    @pytest.mark.parametrize("change", [{"factor": 0.5}, {"factr": 4.0}, {"beta_fast": 1.0, "beta_slow": 2.0}], ids=str)
    def test_nonsense_is_accepted(self, change: dict[str, Any]) -> None:
        config = {**LLAMA, "rope_parameters": {**YARN_BLOCK, **change}}
        rotary_module(config)
        with pytest.raises(ValueError, match=next(iter(change))):
            read_rope(config)


@pytest.mark.parametrize("model_type", ["hunyuan_v1_dense", "hunyuan_v1_moe"])
def test_alpha_of_hunyuan(model_type: str) -> None:
    block = {"type": "dynamic", "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0}
    config = {"model_type": model_type, "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 1e4}
    agree({**config, "rope_scaling": block})


def test_learned_factors_of_mistral_large_4() -> None:
    """Frequencies times exp(alpha), which stands in the weights: `with_factors` gives them to ours."""
    _, module, _, full = of_family("mistral_large4_text")
    alpha = torch.linspace(-0.5, 0.5, len(module.inv_freq))
    module.alpha.copy_(alpha)
    places = torch.tensor([[0, 1, 7, 300]])
    cos = module(torch.zeros(1), places)[0][0]
    learned = next(rope for rope in read_rope(full).with_factors(alpha.double().exp().tolist()).layers.values() if rope)
    spectrum = text_rope(learned).spectrum()
    actual = (places[0][:, None].double() * spectrum.theta).cos() * float(spectrum.gain)
    torch.testing.assert_close(cos[:, : actual.shape[1]].double(), actual, rtol=0, atol=1e-4)
