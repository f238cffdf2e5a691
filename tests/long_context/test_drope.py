"""DroPE: the layers of its authors' code, a folder that plain transformers opens, temperature, norms and resumption."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from examples.long_context.drope import TEMPERATURES, drop, dropped_config, with_qk_norm
from examples.long_context.tuning import Recipe
from transformers import LlamaConfig, LlamaForCausalLM

from posenc import attention
from posenc.hf.attach.rotary_modules import RotaryModules
from posenc.hf.extend.folder import write_folder
from tests.golden import config, load, names
from tests.hf.extend.extended import TARGET, TRAINED, small, text

SHORT = Recipe(steps=3, warmup=1, lr=1e-3, save_every=1)
WITHOUT_POSENC = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
tokens = torch.load(sys.argv[2])
with torch.no_grad():
    torch.save(model(tokens).logits, sys.argv[3])
assert not [name for name in sys.modules if name.split(".")[0] == "posenc"]
"""


def one_layer(arrays: dict[str, Any], facts: dict[str, Any], dtype: torch.dtype) -> Any:
    """A Llama of one layer with the golden file's attention weights."""
    width = facts["heads"] * facts["head_dim"]
    source = facts["source_rope"] or {"rope_type": "default", "rope_theta": 10000.0}
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=1, rope_parameters=source,
            num_attention_heads=facts["heads"], num_key_value_heads=facts["kv_heads"], max_position_embeddings=64,
            rms_norm_eps=facts["rms_norm_eps"],
        )
    )  # fmt: skip
    model = model.to(dtype).eval()
    weights = {key.removesuffix("_weight"): value for key, value in arrays.items() if key.endswith("proj_weight")}
    layer: Any = model.model.layers[0].self_attn
    for name, value in weights.items():
        getattr(layer, name).weight.data.copy_(value)
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", [name for name in names("drope_*") if name != "drope_q_norm"])
def test_a_layer_equals_the_authors(name: str, dtype: torch.dtype) -> None:
    arrays, facts = load(name, dtype), config(name)
    model = one_layer(arrays, facts, dtype)
    if "q_norm_weight" in arrays:
        model = with_qk_norm(model, "full")
        layer = model.model.layers[0].self_attn
        layer.q_norm.weight.data.copy_(arrays["q_norm_weight"])
        layer.k_norm.weight.data.copy_(arrays["k_norm_weight"])
    rotations = RotaryModules(model)
    rotations.rebuild(dropped_config(rotations, 64, 128))
    x = arrays["x"]
    rotation = model.model.rotary_emb(x, torch.arange(x.shape[1])[None])
    mask = torch.full((x.shape[1],) * 2, -torch.inf, dtype=dtype).triu(1)[None, None]
    out, _ = model.model.layers[0].self_attn(x, position_embeddings=rotation, attention_mask=mask)
    expected = load(name)["out"]
    # OlmoeRMSNorm of transformers computes in float32 whatever the dtype; the authors' was widened for the file
    tolerance = 1e-12 if dtype == torch.float64 and "q_norm_weight" not in arrays else 2.4e-5
    assert torch.allclose(out.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", names("drope_*"))
def test_attention_without_encodings_equals_the_authors_core(name: str) -> None:
    arrays = load(name)
    heads = attention(arrays["q"], arrays["k"], arrays["v"], [])
    out = heads.transpose(1, 2).flatten(2) @ arrays["o_proj_weight"].T
    assert torch.allclose(out, arrays["out"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "LlamaForCausalLM"), ({"temperature": 1.3}, "LlamaForCausalLM"), ({"qk_norm": "head"}, "Qwen3ForCausalLM")],
)
def test_plain_transformers_opens_the_folder_with_the_same_logits(
    options: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    model: Any = drop(small(), text(), TARGET, recipe=SHORT, work=tmp_path / "work", **options).model
    write_folder(tmp_path / "new", model, None, length=TARGET, original_length=TRAINED, work=tmp_path / "work")
    tokens = text(TARGET)[None]
    torch.save(tokens, tmp_path / "tokens.pt")
    subprocess.run(
        [sys.executable, "-c", WITHOUT_POSENC, tmp_path / "new", tmp_path / "tokens.pt", tmp_path / "logits.pt"],
        check=True, cwd=tmp_path,
    )  # fmt: skip
    with torch.no_grad():
        assert torch.allclose(torch.load(tmp_path / "logits.pt"), model(tokens).logits, rtol=0, atol=1e-5)
    written = json.loads((tmp_path / "new" / "config.json").read_text(encoding="utf-8"))
    assert written["architectures"] == [kind]
    assert written["max_position_embeddings"] == TARGET
    cos, sin = model.model.rotary_emb(model.model.embed_tokens(tokens), torch.arange(TARGET)[None])
    assert torch.allclose(cos, torch.full_like(cos, options.get("temperature", 1.0) ** 0.5))
    assert sin.abs().max() < 1e-6


def test_the_temperature_with_the_lowest_loss_is_taken(tmp_path: Path) -> None:
    lines: list[str] = []
    recipe = Recipe(steps=1, warmup=0, tokens=TARGET)  # of which a row has the original length at most
    done = drop(
        small(), text(), TARGET, recipe=recipe, work=tmp_path, temperature="auto", pieces=1, last=8,
        progress=lines.append,
    )  # fmt: skip
    tried = {line.split()[1]: float(line.split()[2]) for line in lines if line.startswith("temperature")}
    assert set(tried) == {f"{value:g}:" for value in TEMPERATURES}
    best = float(min(tried, key=tried.__getitem__).rstrip(":"))
    assert done.config.rope_parameters["attention_factor"] == pytest.approx(best**0.5)


@pytest.mark.parametrize(
    ("options", "name", "says"),
    [
        ({"qk_norm": "head"}, "gpt_neox", "no class with the layers"),
        ({"temperature": 1.2}, "gpt_neox", "cannot scale the attention logits"),
        ({"temperature": 0.0}, "llama", "temperature"),
        ({"qk_norm": "full", "recipe": Recipe(rank=4)}, "llama", "LoRA trains no norms"),
    ],
)
def test_what_cannot_be_dropped_is_refused(options: dict[str, Any], name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        drop(small(name), text(), TARGET, **{"recipe": SHORT, "work": tmp_path, **options})
    assert not list(tmp_path.iterdir())
