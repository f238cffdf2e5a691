"""M-RoPE of configurations: queries and keys of pictures in a text are rotated as in transformers, family by family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from posenc import MRoPE, RoPE
from posenc.hf import read_rope, rope_to_config
from posenc.hf.config.rotation import order_of, text_rope
from posenc.hf.config.text_config import find_text_config
from posenc.hf.families import ROTATIONS
from posenc.hf.families.family import FULL
from tests.hf.checkpoints import CHECKPOINTS
from tests.reference.test_hf_config import TEXT, WITHOUT_DEFAULT_BLOCK, model_of, of_family, rotary_module

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.reference
SEEING = [name for name, family in ROTATIONS.items() if family.sections is not None]
VISION = [name for name, (_, turns) in CHECKPOINTS.items() if any(turn and turn.sections for turn in turns.values())]
PLACES = torch.randint(0, 300, (1, 9, 3), generator=torch.Generator().manual_seed(0))


def by_transformers(config: dict[str, Any], x: Tensor, places: Tensor) -> Tensor:
    """``x`` rotated by the family's own module and function, on places (batch, tokens, axes)."""
    config = {**config, "model_type": TEXT.get(config["model_type"], config["model_type"])}
    _, _, code = model_of(config["model_type"])
    kinds = {"layer_type": FULL} if ROTATIONS[config["model_type"]].nested else {}
    table = rotary_module(config)(x, places.movedim(-1, 0), **kinds)
    rotated: Tensor = code.apply_rotary_pos_emb(x, x, *table)[0]
    return rotated


def check(config: dict[str, Any]) -> None:
    """Ours is theirs, and neither another order of the axes nor the rotation of text is."""
    rope = read_rope(config).rope
    assert isinstance(rope, MRoPE)
    x = torch.randn(1, 2, 9, rope.head_dim, generator=torch.Generator().manual_seed(1))
    expected = by_transformers(config, x, PLACES)
    assert gap(rope, x, expected) < 1e-3
    rest = [{"interleaved": True}, {"time_last": True}, {}]
    inner = text_rope(rope)
    options = {"base": inner.base, "layout": inner.layout, "rotary_dim": inner.rotary_dim, "scaling": inner.scaling}
    for order in rest:
        other = MRoPE(rope.head_dim, sections=rope.sections, **order, **options)
        assert order_of(other) == order_of(rope) or gap(other, x, expected) > 0.1
    assert float((inner.rotate(x, inner.table(PLACES[..., 0])) - expected).abs().max()) > 0.1


def gap(rope: MRoPE, x: Tensor, expected: Tensor) -> float:
    return float((rope.rotate(x, rope.table(PLACES)) - expected).abs().max())


@pytest.mark.parametrize("name", SEEING)
def test_families_deal_out_their_pairs_as_the_table_says(name: str) -> None:
    """Without a word on sections in the configuration; without a block, where transformers has a default one."""
    _, _, _, config = of_family(name)
    if name in WITHOUT_DEFAULT_BLOCK:
        assert "mrope_section" not in config["rope_parameters"][FULL]
    else:
        del config["rope_parameters"]
    check(config)


@pytest.mark.parametrize("version", [None, 4, 5])
@pytest.mark.parametrize("name", VISION)
def test_checkpoints_rotate_equally(name: str, version: int | None) -> None:
    check(read_rope(dict(find_text_config(CHECKPOINTS[name][0]))).to_config(version=version))


@pytest.mark.parametrize(
    ("model_type", "rope"),
    [
        ("qwen2_5_vl_text", MRoPE(64, sections=(8, 10, 14), base=5e5)),
        ("qwen3_vl_text", MRoPE(64, sections=(12, 10, 10), interleaved=True)),
        ("glm4v_text", MRoPE(64, sections=(4, 6, 6), rotary_dim=32, layout="interleaved")),
        ("ernie4_5_vl_moe_text", MRoPE(64, sections=(11, 11, 10), time_last=True, layout="interleaved")),
    ],
)
@pytest.mark.parametrize("version", [4, 5])
def test_written_configurations_rotate_correctly_in_transformers(model_type: str, rope: MRoPE, version: int) -> None:
    config = rope_to_config(rope, model_type=model_type, version=version)
    check(config)
    x = torch.randn(1, 1, 9, 64, generator=torch.Generator().manual_seed(2))
    assert gap(rope, x, by_transformers(config, x, PLACES)) < 1e-3


class TestWhatTransformersDoes:
    """Where transformers 5.23 does not do as a configuration says, or cannot."""

    def test_it_never_reads_mrope_interleaved(self) -> None:
        config, _ = CHECKPOINTS["qwen2-vl-7b"]
        changed = {**config, "rope_scaling": {**config["rope_scaling"], "mrope_interleaved": True}}
        check(changed)
        assert read_rope(changed).rope.order() == read_rope(config).rope.order()
        assert [finding.key for finding in read_rope(changed).findings] == ["mrope_interleaved"]
        assert read_rope(changed).to_config() == changed

    def test_llama_ignores_sections(self) -> None:
        block = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 12, 12]}
        config = {"model_type": "llama", "head_dim": 64, "rope_parameters": block}
        x = torch.randn(1, 1, 9, 64)
        cos, sin = rotary_module(config)(x, PLACES[..., 0])
        actual = RoPE(64).table(PLACES[..., 0])
        torch.testing.assert_close((cos[..., :32], sin[..., :32]), actual, rtol=0, atol=1e-4)
        assert read_rope(config).rope.sections == (8, 12, 12)

    def test_default_sections_that_do_not_fit_fail_in_the_first_call(self) -> None:
        config = {"model_type": "glm4v_text", "head_dim": 128}
        module = rotary_module(config)
        with pytest.raises(RuntimeError, match="split"):
            module(torch.zeros(1), PLACES.movedim(-1, 0))
        with pytest.raises(ValueError, match=r"\[8, 12, 12\].*64"):
            read_rope(config)

    def test_ernie_takes_no_scaling(self) -> None:
        config = dict(find_text_config(CHECKPOINTS["ernie-4.5-vl-28b"][0]))
        changed = {**config, "rope_parameters": {**config["rope_parameters"], "rope_type": "linear", "factor": 2.0}}
        with pytest.raises(ValueError, match="default"):
            rotary_module(changed)

    def test_hunyuan_rotates_the_two_channels_of_a_pair_by_different_axes(self) -> None:
        block = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [8, 8, 8, 8]}
        config = {"model_type": "hunyuan_vl_text", "head_dim": 64, "rope_parameters": block}
        places = torch.tensor([1, 2, 3, 4]).view(4, 1, 1)
        cos, _ = rotary_module(config)(torch.zeros(1), places)
        first, second = cos.chunk(2, -1)
        assert not torch.allclose(first, second)
        with pytest.raises(ValueError, match=r"mrope|sections|axes"):
            read_rope(config)
