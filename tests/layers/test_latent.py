"""Latent attention: its two forms, its cache, and the attention of DeepSeek in transformers."""

from __future__ import annotations

import pytest
import torch

from posenc import ALiBi, AttentionSink, ForgetGate, RoPE, YaRN
from posenc.layers import KVCache
from posenc.layers.latent import LatentAttention
from posenc.score import Shaw, SSMax, XPos
from tests.samples import gap

LISTS = {
    "rope": lambda: [RoPE(4)], "interleaved": lambda: [RoPE(4, layout="interleaved")], "nope": list,
    "rope+alibi": lambda: [RoPE(4), ALiBi(4)], "rope+fox": lambda: [RoPE(4), ForgetGate(32, num_heads=4)],
    "rope+ssmax+sink": lambda: [RoPE(4), SSMax(4), AttentionSink(4, logit=0.5)],
}  # fmt: skip


def layer(name: str = "rope", **options: object) -> LatentAttention:
    torch.manual_seed(0)
    sizes = {"kv_rank": 12, "nope_dim": 6, "rope_dim": 4, "value_dim": 5, **options}
    return LatentAttention(32, 4, encodings=LISTS[name](), **sizes).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("q_rank", [None, 10])
@pytest.mark.parametrize("name", LISTS)
def test_a_cache_of_latents_equals_the_full_text(name: str, q_rank: int | None) -> None:
    module, x = layer(name, q_rank=q_rank), torch.randn(2, 40, 32, dtype=torch.float64)
    with torch.no_grad():
        full = module(x)
        for pieces in ([1] * 40, [20, 1, 19], [40], [17, 17, 6]):
            cache = KVCache()
            parts = [module(part, cache=cache) for part in x.split(pieces, 1)]
            assert gap(torch.cat(parts, 1), full) < 1e-10
        assert cache.k is not None
        assert cache.k.shape == (2, 1, 40, 12 + 4)
        assert cache.v is not None
        assert cache.v.numel() == 0


@pytest.mark.parametrize("name", LISTS)
def test_a_static_cache_does_too(name: str) -> None:
    module, x = layer(name), torch.randn(2, 24, 32, dtype=torch.float64)
    with torch.no_grad():
        for pieces in ([20, *[1] * 4], [17, 7]):
            cache = module.static_cache(2, 32)
            parts = [module(part, cache=cache) for part in x.split(pieces, 1)]
            assert gap(torch.cat(parts, 1), module(x)) < 1e-10
        cache = module.static_cache(2, 6, window=4)
        steps = [module(part, cache=cache) for part in x.split(1, 1)]
        assert gap(torch.cat(steps, 1), module(x, window=4)) < 1e-10


def test_padding_windows_and_packing() -> None:
    module, x = layer(), torch.randn(2, 12, 32, dtype=torch.float64)
    padding = torch.ones(2, 12, dtype=torch.bool)
    padding[1, :5] = False
    with torch.no_grad():
        padded = module(x, attention_mask=padding)
        assert gap(padded[1, 5:], module(x[1:, 5:])[0]) < 1e-10
        segments = torch.tensor([0] * 7 + [1] * 5)
        packed = module(x, segments=segments)
        assert gap(packed[:, 7:], module(x[:, 7:])) < 1e-10
        cache = KVCache(window=4)
        steps = [module(part, cache=cache) for part in x.split(1, 1)]
        assert gap(torch.cat(steps, 1), module(x, window=4)) < 1e-10


def test_a_cache_can_be_cropped_and_moved() -> None:
    module, x = layer(), torch.randn(1, 12, 32, dtype=torch.float64)
    with torch.no_grad():
        cache = KVCache()
        module(x[:, :8], cache=cache)
        cache.crop(3)
        assert gap(module(x[:, 5:], cache=cache), module(x)[:, 5:]) < 1e-10
        moved = KVCache()
        module(x[:, :8], torch.arange(8), cache=moved)
        module.shift(moved, 5)
        later = module(x[:, 8:], torch.arange(13, 17), cache=moved)
        assert gap(later, module(x)[:, 8:]) < 1e-10


def test_what_has_two_forms_is_refused() -> None:
    for wrong, words in ((Shaw(10, max_distance=4), "Shaw"), (XPos(4), "XPos")):
        with pytest.raises(ValueError, match=words):
            LatentAttention(32, 4, kv_rank=8, nope_dim=6, rope_dim=4, encodings=[wrong])
    for name in ("kv_rank", "nope_dim", "rope_dim", "value_dim", "q_rank"):
        sizes = {"kv_rank": 8, "nope_dim": 6, "rope_dim": 4, name: 0}
        with pytest.raises(ValueError, match=name):
            LatentAttention(32, 4, **sizes)
    with pytest.raises(ValueError, match="softmax_factor"):
        LatentAttention(32, 4, kv_rank=8, nope_dim=6, rope_dim=4, softmax_factor=0.0)


@pytest.mark.parametrize("q_rank", [None, 10])
@pytest.mark.parametrize("version", ["deepseek_v2", "deepseek_v3"])
def test_the_attention_of_deepseek(version: str, q_rank: int | None) -> None:
    transformers = pytest.importorskip("transformers")
    block = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.7,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(
        version, hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=1, kv_lora_rank=12,
        q_lora_rank=q_rank, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, vocab_size=8, intermediate_size=8,
        max_position_embeddings=64, first_k_dense_replace=1, rope_parameters=block, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    reference = model.layers[0].self_attn
    from posenc.hf import facts, read_rope

    result = read_rope(config.to_dict())
    actual = layer(q_rank=q_rank, softmax_factor=reference.scaling / 10**-0.5).float()
    actual.encodings[0].inner = result.layers["all"]
    names = {
        "q_down": "q_a_proj", "q_down_norm": "q_a_layernorm", "q_proj": "q_proj" if q_rank is None else "q_b_proj",
        "kv_down": "kv_a_proj_with_mqa", "kv_norm": "kv_a_layernorm", "kv_up": "kv_b_proj", "o_proj": "o_proj",
    }  # fmt: skip
    with torch.no_grad():
        for name, parameter in actual.named_parameters():
            whose, _, kind = name.rpartition(".")
            parameter.copy_(reference.get_parameter(f"{names[whose]}.{kind}"))
        x, positions = torch.randn(1, 30, 32), torch.arange(30)[None]
        mask = torch.full((30, 30), -torch.inf).triu(1)[None, None]
        expected = reference(x, position_embeddings=model.rotary_emb(x, positions), attention_mask=mask)[0]
        assert gap(actual(x), expected) < 1e-5
        cache = KVCache()
        steps = [actual(part, cache=cache) for part in x.split(1, 1)]
        assert gap(torch.cat(steps, 1), expected) < 1e-5
    assert isinstance(result.layers["all"].scaling, YaRN)
    assert facts(result)["layers"]["all"]["softmax_factor"] == pytest.approx(actual.softmax_factor)
