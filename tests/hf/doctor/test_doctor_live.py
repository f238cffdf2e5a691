"""The doctor at live models and at weights: what only they show is found, and a corrected folder is the model again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

from transformers import AttentionInterface, AutoModelForCausalLM, LlamaForCausalLM

import posenc_cli
from posenc.hf.attach import load
from posenc.hf.doctor import examine, fix
from posenc.rotary import permute_layout
from tests.hf.attach.smallest import built
from tests.hf.gguf.files import as_gguf
from tests.hf.looking_back import HEAD, looking_back, saved, text

logging.getLogger("transformers").setLevel(logging.CRITICAL)


def _set_later(model: Any) -> None:
    model.config.rope_parameters = {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}


def _round(model: Any) -> None:
    model.to(torch.bfloat16)


def _uninitialise(model: Any) -> None:
    model.model.rotary_emb.inv_freq.fill_(torch.nan)


def _without_mask(model: Any) -> None:
    AttentionInterface.register("unmasked", lambda *arguments, **options: None)
    model.config._attn_implementation = "unmasked"


def _scale(model: Any) -> None:
    model.model.layers[0].self_attn.scaling = 0.3


LIVE = {
    "rotation-of-another-configuration": _set_later, "frequencies-rounded": _round,
    "frequencies-uninitialised": _uninitialise, "attention-without-mask": _without_mask,
    "scale-of-another-configuration": _scale,
}  # fmt: skip


@pytest.mark.parametrize("name", LIVE)
def test_what_is_wrong_with_a_live_model(name: str) -> None:
    model = looking_back()
    assert examine(model).healthy
    LIVE[name](model)
    assert examine(model).names() == {name}


def test_sinks_and_windows() -> None:
    model = built("gpt_oss")
    before = examine(model).names()
    model.config._attn_implementation = "sdpa"
    assert examine(model).names() - before == {"sinks-ignored"}
    model.config._attn_implementation = "eager"
    for module in model.modules():
        if getattr(module, "sliding_window", None) and hasattr(module, "layer_idx"):
            module.sliding_window = 5
    assert examine(model).names() - before == {"window-of-another-configuration"}


def rewritten(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
    return folder


def logits(folder: Path) -> Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        result: Tensor = model(input_ids=text(96)[None]).logits
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(looking_back(sharp=4.0), tmp_path / "model")


def test_a_lost_base_is_found_in_the_weights_and_mended(folder: Path, tmp_path: Path) -> None:
    right = logits(folder)
    assert examine(folder, weights=True, text=text()).healthy
    rewritten(folder, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    assert examine(folder).healthy, "nothing but the weights knows it"
    assert (logits(folder) - right).abs().max() > 1e-2
    letters = bytes(text().tolist()).decode()
    report = examine(folder, weights=True, text=letters)
    assert report.names() == {"weights-of-another-base"}
    assert fix(folder, tmp_path / "fixed", weights=True, text=letters) == [], "a base is the best of nine, no more"
    (written,) = fix(folder, tmp_path / "fixed", weights=True, text=letters, guesses=True)
    assert written.corrected == {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    torch.testing.assert_close(logits(tmp_path / "fixed"), right, rtol=0, atol=1e-5)


def test_frequencies_that_were_saved_mend_a_lost_base(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    right = logits(folder)
    rewritten(folder, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    theta = 5e5 ** -(torch.arange(HEAD // 2) / (HEAD // 2))
    weights = load_file(folder / "model.safetensors")
    key = "model.layers.0.self_attn.rotary_emb.inv_freq"
    save_file({**weights, key: theta}, folder / "model.safetensors", metadata={"format": "pt"})
    assert [item.name for item in fix(folder, tmp_path / "fixed")] == ["saved-frequencies-differ"]
    torch.testing.assert_close(logits(tmp_path / "fixed"), right, rtol=0, atol=1e-5)


def test_llama_3s_recipe_comes_back(tmp_path: Path) -> None:
    block = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_theta": 5e5,
    }  # fmt: skip
    sizes = {"vocab_size": 128256, "tie_word_embeddings": True, "max_position_embeddings": 131072}
    folder = saved(looking_back(rope_parameters=block, **sizes), tmp_path / "model")
    right = logits(folder)
    rewritten(folder, rope_parameters={"rope_type": "linear", "factor": 2.0})
    assert (logits(folder) - right).abs().max() > 1e-2
    assert examine(folder).names() == {"base-lost", "linear-over-llama3"}
    fix(folder, in_place=True)
    torch.testing.assert_close(logits(folder), right, rtol=0, atol=1e-5)


def test_the_weights_of_a_gguf_file(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    model = looking_back(sharp=4.0)
    assert examine(as_gguf(model, tmp_path / "right.gguf", base=5e5), weights=True, text=text()).healthy
    lost = as_gguf(model, tmp_path / "lost.gguf", base=1e4)
    assert examine(lost).healthy, "nothing but the weights knows it"
    (result,) = (item for item in examine(lost, weights=True, text=text()).findings if item.alarms)
    assert (result.name, result.corrected, result.file) == ("weights-of-another-base", None, "lost.gguf")
    block = result.text.partition(" COPY --rope ")[2].strip("'")
    assert posenc_cli.run(["gguf", str(lost), str(tmp_path / "copy.gguf"), "--rope", block]) == 0
    assert examine(tmp_path / "copy.gguf", weights=True, text=text()).healthy
    with pytest.raises(ValueError, match="text"):
        examine(lost, weights=True)


def _permuted(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """With the rows of queries and keys in the order of the other layout, as Meta's weights have them."""
    attention = model.model.layers[0].self_attn
    for part in (attention.q_proj, attention.k_proj):
        part.weight.data = permute_layout(part.weight.data, HEAD, to="interleaved")
    return model


def test_weights_of_the_other_layout() -> None:
    report = examine(_permuted(looking_back(sharp=4.0)), weights=True, text=text())
    assert report.names() == {"weights-of-another-layout"}, str(report)


def test_a_promise_that_is_not_kept() -> None:
    model = looking_back(sharp=0.1, max_position_embeddings=1024)
    assert "promise-broken" in examine(model, weights=True, text=text()).names()
    report = examine(model, weights=True, text=text(), most=200)
    assert "1,024" in str(report)
    assert report.names() != {"promise-broken"}


def test_what_is_missing_for_the_loss(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="text"):
        examine(looking_back(), weights=True)
    with pytest.raises(ValueError, match="text"):
        examine(folder, weights=True, text=torch.zeros(2, 3))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="weights"):
        examine(folder, weights=True)


def test_the_commands(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letters.txt").write_bytes(bytes(text().tolist()))
    assert posenc_cli.run(["doctor", str(folder), "--weights", "--text", str(tmp_path / "letters.txt")]) == 0
    assert posenc_cli.run(["explain", str(folder), "--live"]) == 0
    assert "cos" in capsys.readouterr().out
    out = tmp_path / "attached"
    assert posenc_cli.run(["attach", str(folder), "own+alibi", "--out", str(out), "--layers", "0"]) == 0
    assert json.loads((out / "config.json").read_text())["posenc"]["layers"] == [0]
    assert (out / "tokenizer.json").exists()
    assert "ALiBi" in str(load(out))
    assert posenc_cli.run(["attach", str(folder), "alibi", "--out", str(out)]) == 2
    assert posenc_cli.run(["attach", str(folder), "alibi", "--out", str(tmp_path / "x"), "--layers", "7"]) == 2
    assert not (tmp_path / "x").exists()
    (folder / "model.safetensors").unlink()
    assert posenc_cli.run(["explain", str(folder), "--live", "--json"]) == 0
