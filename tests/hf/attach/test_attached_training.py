"""Models with encodings attached under what others train with: PEFT, the Trainer of transformers, compilers."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")


from safetensors.torch import load_file, save_file

import posenc_cli
from posenc.hf.attach import attach, load
from posenc.hf.attach.loading import load_model
from tests.hf.extend.extended import saved, small, text

logging.getLogger("transformers").setLevel(logging.CRITICAL)
IDS = text(96).view(4, 24)


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        result: Tensor = model.eval()(input_ids=IDS).logits
    return result


def of_encodings(model: Any) -> dict[str, Tensor]:
    return {name: entry.detach().clone() for name, entry in model.named_parameters() if ".posenc." in name}


def test_lora_trains_saves_loads_and_merges(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = attach(small(), "fox")
    before, initial = logits(model), of_encodings(model)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], modules_to_save=["posenc"], task_type="CAUSAL_LM"
    )
    wrapped = peft.get_peft_model(model, config)
    trained = [name for name, entry in wrapped.named_parameters() if entry.requires_grad]
    assert {part for name in trained for part in ("lora_", ".posenc.") if part in name} == {"lora_", ".posenc."}
    optimizer, losses = torch.optim.Adam([p for p in wrapped.parameters() if p.requires_grad], lr=3e-2), []
    for _ in range(6):
        loss = wrapped.train()(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    after = logits(wrapped)
    wrapped.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(attach(small(), "fox"), tmp_path)
    torch.testing.assert_close(logits(again), after, rtol=0, atol=1e-5)
    bare = peft.PeftModel.from_pretrained(small(), tmp_path)  # an adapter needs the encodings in its base
    assert not torch.allclose(logits(bare), after, atol=1e-3)
    merged = again.merge_and_unload()
    torch.testing.assert_close(logits(merged), after, rtol=0, atol=1e-4)
    changed = of_encodings(merged)
    assert set(changed) == set(initial)
    assert any(not torch.equal(changed[name], initial[name]) for name in initial)
    assert (after - before).abs().max() > 1e-2


def test_an_adapter_names_its_attached_base_which_is_not_loaded_without_encodings(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    attach(small(), "fox").save_pretrained(base)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["posenc"], task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(load(base), config)
    expected = logits(wrapped)
    wrapped.save_pretrained(adapter)
    again = peft.PeftModel.from_pretrained(load(base), adapter)
    torch.testing.assert_close(logits(again), expected, rtol=0, atol=1e-5)
    without_encodings = peft.AutoPeftModelForCausalLM.from_pretrained(adapter)  # which a fresh process refuses
    with pytest.raises(ValueError, match=r"posenc\.hf\.attach\.load"):
        without_encodings(input_ids=IDS)


def test_what_transformers_would_leave_out_of_a_model_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It warns and goes on with random weights where a file lacks some, and without an adapter's that find no place."""
    peft = pytest.importorskip("peft")
    base, full = tmp_path / "base", tmp_path / "full"
    saved(base, small())
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(small(), config)
    for name, weight in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    shutil.copytree(base, full)
    tuned.save_pretrained(full)
    description = json.loads((full / "adapter_config.json").read_text()) | {"base_model_name_or_path": str(base)}
    (full / "adapter_config.json").write_text(json.dumps(description))
    torch.testing.assert_close(logits(load_model(full)), logits(tuned), rtol=0, atol=1e-5)
    for command in (["attach", str(full), "fox"], ["extend", str(full), "--length", "112", "--method", "yarn"]):
        assert posenc_cli.run([*command, "--out", str(tmp_path / "new")]) == 2  # transformers saves the adapter alone
    assert "merge_and_unload" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    (full / "adapter_config.json").write_text(json.dumps(description | {"target_modules": ["q_proj"]}))
    with pytest.raises(ValueError, match=r"target_modules.*v_proj"):
        load_model(full)
    attach(small(), "fox").save_pretrained(tmp_path / "attached")
    for folder, opened, gone in ((base, load_model, "norm.weight"), (tmp_path / "attached", load, ".posenc.")):
        weights = load_file(folder / "model.safetensors")
        kept = {name: value for name, value in weights.items() if gone not in name}
        assert len(kept) < len(weights)
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ValueError, match=f"lacks.*{gone}"):
            opened(folder)
        assert load_model(folder, complete=False) is not None


def test_the_trainer_trains_and_its_checkpoint_is_the_model(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    model = attach(small(), "own+alibi")
    data = [{"input_ids": row, "labels": row} for row in IDS]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=6, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
        save_steps=6, report_to=[], use_cpu=True, gradient_checkpointing=True,
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.1
    again = load(tmp_path / "checkpoint-6")
    torch.testing.assert_close(logits(again), logits(model), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("encodings", ["own", "alibi", "fox"])
def test_compiled_in_one_graph(encodings: str) -> None:
    torch._dynamo.reset()
    model = attach(small(), encodings)
    expected = logits(model)
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(logits(compiled), expected, rtol=0, atol=1e-4)
